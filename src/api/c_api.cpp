// src/api/c_api.cpp: the C shim of attention and of plans. Structs are copied over defaults by their size, enums
// checked, exceptions stopped (c_convert.hpp).
#include <algorithm>
#include <cstdint>
#include <string>

#include "api/c_convert.hpp"

namespace falchion {
namespace {

Attention to_problem(const fal_attention* from, Check* check) {
  fal_attention x;
  if (!copy("attention", from, &x, check)) return {};
  Attention out;
  out.dtype = to_enum(x.dtype, kLastDType, check, "dtype");
  out.dtype_k = to_enum(x.dtype_k, kLastDType, check, "dtype_k");
  out.dtype_v = to_enum(x.dtype_v, kLastDType, check, "dtype_v");
  out.dtype_o = to_enum(x.dtype_o, kLastDType, check, "dtype_o");
  out.b = x.b;
  out.s_q = x.s_q;
  out.s_k = x.s_k;
  out.h_q = x.h_q;
  out.h_k = x.h_k;
  out.d_qk = x.d_qk;
  out.d_v = x.d_v;
  const bool full = x.band.left == 0 && x.band.right == 0 && x.band.align == FAL_ALIGN_UNSET;
  if (!full) out.band = {x.band.left, x.band.right, to_enum(x.band.align, Align::at, check, "band.align")};
  out.band.offset = x.band.offset;
  out.score = {x.scale, x.softcap};
  out.dropout = x.dropout;
  out.packed = to_flag(x.packed, check, "packed");
  out.used_q = to_flag(x.used_q, check, "used_q");
  out.used_k = to_flag(x.used_k, check, "used_k");
  out.first_k = to_flag(x.first_k, check, "first_k");
  out.alibi = to_flag(x.alibi, check, "alibi");
  out.bias = to_flag(x.bias, check, "bias");
  out.mask = to_flag(x.mask, check, "mask");
  out.lse = to_flag(x.lse, check, "lse");
  out.row_max = to_flag(x.row_max, check, "row_max");
  out.probabilities = to_flag(x.probabilities, check, "probabilities");
  out.any_order = to_flag(x.any_order, check, "any_order");
  out.grads = to_enum(x.grads, Grads::accumulate, check, "grads");
  out.zero_unused = to_flag(x.zero_unused, check, "zero_unused");
  out.grad_lse = to_flag(x.grad_lse, check, "grad_lse");
  out.grad_bias = to_flag(x.grad_bias, check, "grad_bias");
  out.grad_alibi = to_flag(x.grad_alibi, check, "grad_alibi");
  out.frozen = x.frozen;
  check_reserved(x.reserved, check, "attention.reserved");
  check_reserved(x.reserved2, check, "attention.reserved2");
  return out;
}

Operands to_operands(const fal_operands* from, Check* check) {
  fal_operands x;
  if (!copy("operands", from, &x, check)) return {};
  Operands out;
  const auto tensor = [check](const char* name, const fal_tensor& t) { return to_tensor(name, t, check); };
  out.q = tensor("q", x.q);
  out.k = tensor("k", x.k);
  out.v = tensor("v", x.v);
  out.o = tensor("o", x.o);
  out.lse = tensor("lse", x.lse);
  out.row_max = tensor("row_max", x.row_max);
  out.probabilities = tensor("probabilities", x.probabilities);
  out.bias = tensor("bias", x.bias);
  out.mask = tensor("mask", x.mask);
  out.alibi = tensor("alibi", x.alibi);
  out.cu_seqlens_q = x.cu_seqlens_q;
  out.cu_seqlens_k = x.cu_seqlens_k;
  out.used_q = x.used_q;
  out.used_k = x.used_k;
  out.first_k = x.first_k;
  out.rng = {x.rng.seed, x.rng.offset, x.rng.at, {x.origin.b, x.origin.h, x.origin.i, x.origin.j, x.origin.h_q}};
  out.grad_o = tensor("grad_o", x.grad_o);
  out.grad_lse = tensor("grad_lse", x.grad_lse);
  out.grad_q = tensor("grad_q", x.grad_q);
  out.grad_k = tensor("grad_k", x.grad_k);
  out.grad_v = tensor("grad_v", x.grad_v);
  out.grad_bias = tensor("grad_bias", x.grad_bias);
  out.grad_alibi = tensor("grad_alibi", x.grad_alibi);
  check_reserved(static_cast<std::int64_t>(x.rng.reserved), check, "operands.rng.reserved");
  return out;
}

fal_tensor to_c(const Tensor& x) {
  fal_tensor out{};
  out.data = x.data;
  out.dtype = static_cast<std::int32_t>(x.dtype);
  std::copy(x.shape.begin(), x.shape.end(), out.shape);
  std::copy(x.stride.begin(), x.stride.end(), out.stride);
  return out;
}

}  // namespace
}  // namespace falchion

using namespace falchion;

fal_attention fal_attention_init(void) {
  const fal_attention start = FAL_ATTENTION_INIT;
  return start;
}

fal_tensor fal_tensor_dense(void* data, int32_t dtype, int64_t b, int64_t s, int64_t h, int64_t d) {
  fal_tensor out = to_c(Tensor::dense(data, DType::f32, {b, s, h, d}));
  out.dtype = dtype;
  return out;
}

fal_tensor fal_tensor_heads_first(void* data, int32_t dtype, int64_t b, int64_t s, int64_t h, int64_t d) {
  fal_tensor out = to_c(Tensor::heads_first(data, DType::f32, {b, s, h, d}));
  out.dtype = dtype;
  return out;
}

fal_status fal_plan_make(const fal_attention* problem, int32_t pass, const fal_target* target, fal_plan** out) {
  return c_plan_make(to_problem, problem, target, out, pass);
}

void fal_plan_free(fal_plan* plan) { delete plan; }
size_t fal_plan_workspace(const fal_plan* plan) { return plan != nullptr ? plan->plan.workspace_bytes() : 0; }
int32_t fal_plan_backend(const fal_plan* plan) {
  return static_cast<int32_t>(plan != nullptr ? plan->plan.backend() : Backend::best);
}

const char* fal_plan_describe(const fal_plan* plan) {
  return plan != nullptr ? plan->describe.get([plan] { return plan->plan.describe(); }) : "no plan";
}

const char* fal_plan_explain(const fal_plan* plan, int32_t format) {
  const std::optional<Format> wanted = to_format(format);
  if (!wanted) return nullptr;
  if (plan == nullptr) {
    thread_local std::string place;
    return kept_text(&place, [&] { return Plan().explain(*wanted); });
  }
  LazyText& kept = *wanted == Format::json ? plan->json : plan->text;
  return kept.get([&] { return plan->plan.explain(*wanted); });
}

fal_status fal_plan_run(const fal_plan* plan, const fal_operands* operands, void* workspace, size_t workspace_bytes,
                        void* stream) {
  return c_plan_run(to_operands, plan, operands, workspace, workspace_bytes, stream);
}

const char* fal_explain(const fal_attention* problem, int32_t pass, const fal_target* target, int32_t format) {
  return c_explain(to_problem, problem, target, format, pass);
}

fal_status fal_attention_run(const fal_operands* operands, const fal_attention* options, const fal_target* target,
                             void* stream) {
  return c_call(attention, to_problem, options, to_operands, operands, target, stream);
}

void fal_release_workspaces(void) { release_workspaces(); }

fal_status fal_merge(const fal_tensor* o_a, const fal_tensor* lse_a, const fal_tensor* o_b, const fal_tensor* lse_b,
                     const fal_tensor* o, const fal_tensor* lse) {
  return guarded([&]() -> Status {
    Check check;
    const auto tensor = [&check](const char* name, const fal_tensor* x) {
      return check.require(x != nullptr, name, " is null") ? to_tensor(name, *x, &check) : Tensor{};
    };
    const Tensor a = tensor("o_a", o_a), la = tensor("lse_a", lse_a), b = tensor("o_b", o_b),
                 lb = tensor("lse_b", lse_b);
    const Tensor out = tensor("o", o), out_lse = tensor("lse", lse);
    return check.ok() ? merge(a, la, b, lb, out, out_lse) : check.take();
  });
}

fal_status fal_validate_lengths(const fal_attention* problem, const fal_operands* operands) {
  return guarded([&]() -> Status {
    Check check;
    const Attention a = to_problem(problem, &check);
    const Operands x = to_operands(operands, &check);
    return check.ok() ? validate_lengths(a, x) : check.take();
  });
}

const char* fal_why(void) { return last_why(); }
const char* fal_version(void) { return version(); }
const char* fal_build_info(void) {
  thread_local std::string place;
  return kept_text(&place, [] { return build_info(); });
}
