// src/api/c_api_linear.cpp: the C shim of linear attention.
#include "api/c_convert.hpp"

namespace falchion {
namespace {

LinearAttention to_problem(const fal_linear_attention* from, Check* check) {
  fal_linear_attention x;
  if (!copy("linear_attention", from, &x, check)) return {};
  LinearAttention out;
  out.dtype = to_enum(x.dtype, kLastDType, check, "dtype");
  out.dtype_k = to_enum(x.dtype_k, kLastDType, check, "dtype_k");
  out.dtype_v = to_enum(x.dtype_v, kLastDType, check, "dtype_v");
  out.dtype_o = to_enum(x.dtype_o, kLastDType, check, "dtype_o");
  out.b = x.b;
  out.s = x.s;
  out.h_qk = x.h_qk;
  out.h_v = x.h_v;
  out.d_qk = x.d_qk;
  out.d_v = x.d_v;
  out.scale = x.scale;
  out.eps = x.eps;
  out.feature_map = to_enum(x.feature_map, FeatureMap::elu_plus_one, check, "feature_map");
  out.decay = to_enum(x.decay, Decay::token, check, "decay");
  out.normalise = to_flag(x.normalise, check, "normalise");
  out.reverse = to_flag(x.reverse, check, "reverse");
  out.packed = to_flag(x.packed, check, "packed");
  out.initial_state = to_flag(x.initial_state, check, "initial_state");
  out.final_state = to_flag(x.final_state, check, "final_state");
  check_reserved(x.reserved, check, "linear_attention.reserved");
  return out;
}

LinearOperands to_operands(const fal_linear_operands* from, Check* check) {
  fal_linear_operands x;
  if (!copy("linear_operands", from, &x, check)) return {};
  const auto tensor = [check](const char* name, const fal_tensor& t) { return to_tensor(name, t, check); };
  LinearOperands out;
  out.q = tensor("q", x.q);
  out.k = tensor("k", x.k);
  out.v = tensor("v", x.v);
  out.o = tensor("o", x.o);
  out.decay = tensor("decay", x.decay);
  out.initial_state = tensor("initial_state", x.initial_state);
  out.final_state = tensor("final_state", x.final_state);
  out.initial_z = tensor("initial_z", x.initial_z);
  out.final_z = tensor("final_z", x.final_z);
  out.cu_seqlens = x.cu_seqlens;
  out.grad_o = tensor("grad_o", x.grad_o);
  out.grad_final_state = tensor("grad_final_state", x.grad_final_state);
  out.grad_final_z = tensor("grad_final_z", x.grad_final_z);
  out.grad_q = tensor("grad_q", x.grad_q);
  out.grad_k = tensor("grad_k", x.grad_k);
  out.grad_v = tensor("grad_v", x.grad_v);
  out.grad_decay = tensor("grad_decay", x.grad_decay);
  out.grad_initial_state = tensor("grad_initial_state", x.grad_initial_state);
  out.grad_initial_z = tensor("grad_initial_z", x.grad_initial_z);
  return out;
}

}  // namespace
}  // namespace falchion

using namespace falchion;

fal_linear_attention fal_linear_attention_init(void) {
  const fal_linear_attention start = FAL_LINEAR_ATTENTION_INIT;
  return start;
}

fal_status fal_linear_plan_make(const fal_linear_attention* problem, int32_t pass, const fal_target* target,
                                fal_plan** out) {
  return c_plan_make(to_problem, problem, target, out, pass);
}

fal_status fal_linear_plan_run(const fal_plan* plan, const fal_linear_operands* operands, void* workspace,
                               size_t workspace_bytes, void* stream) {
  return c_plan_run(to_operands, plan, operands, workspace, workspace_bytes, stream);
}

const char* fal_linear_explain(const fal_linear_attention* problem, int32_t pass, const fal_target* target,
                               int32_t format) {
  return c_explain(to_problem, problem, target, format, pass);
}

fal_status fal_linear_attention_run(const fal_linear_operands* operands, const fal_linear_attention* options,
                                    const fal_target* target, void* stream) {
  return c_call(linear_attention, to_problem, options, to_operands, operands, target, stream);
}

fal_status fal_linear_validate_lengths(const fal_linear_attention* problem, const fal_linear_operands* operands) {
  return guarded([&]() -> Status {
    Check check;
    const LinearAttention a = to_problem(problem, &check);
    const LinearOperands x = to_operands(operands, &check);
    return check.ok() ? validate_lengths(a, x) : check.take();
  });
}
