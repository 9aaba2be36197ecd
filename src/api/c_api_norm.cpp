// src/api/c_api_norm.cpp: the C shim of norms.
#include "api/c_convert.hpp"

namespace falchion {
namespace {

static_assert(FAL_LAYER_NORM == static_cast<int>(NormKind::layer) && FAL_RMS_NORM == static_cast<int>(NormKind::rms),
              "the numbers of falchion.h are those of NormKind");

Norm to_problem(const fal_norm* from, Check* check) {
  fal_norm x;
  if (!copy("norm", from, &x, check)) return {};
  Norm out;
  out.dtype = to_enum(x.dtype, kLastDType, check, "dtype");
  out.dtype_y = to_enum(x.dtype_y, kLastDType, check, "dtype_y");
  out.dtype_residual = to_enum(x.dtype_residual, kLastDType, check, "dtype_residual");
  out.kind = to_enum(x.kind, NormKind::rms, check, "kind");
  out.rows = x.rows;
  out.d = x.d;
  out.eps = x.eps;
  out.zero_centered = to_flag(x.zero_centered, check, "zero_centered");
  out.weight = to_flag(x.weight, check, "weight");
  out.bias = to_flag(x.bias, check, "bias");
  out.residual = to_flag(x.residual, check, "residual");
  out.residual_out = to_flag(x.residual_out, check, "residual_out");
  out.mean = to_flag(x.mean, check, "mean");
  out.rstd = to_flag(x.rstd, check, "rstd");
  out.frozen = x.frozen;
  check_reserved(x.reserved, check, "norm.reserved");
  return out;
}

NormOperands to_operands(const fal_norm_operands* from, Check* check) {
  fal_norm_operands x;
  if (!copy("norm_operands", from, &x, check)) return {};
  NormOperands out;
  out.x = to_tensor("x", x.x, check);
  out.residual = to_tensor("residual", x.residual, check);
  out.weight = to_tensor("weight", x.weight, check);
  out.bias = to_tensor("bias", x.bias, check);
  out.y = to_tensor("y", x.y, check);
  out.residual_out = to_tensor("residual_out", x.residual_out, check);
  out.mean = to_tensor("mean", x.mean, check);
  out.rstd = to_tensor("rstd", x.rstd, check);
  out.grad_y = to_tensor("grad_y", x.grad_y, check);
  out.grad_residual_out = to_tensor("grad_residual_out", x.grad_residual_out, check);
  out.grad_x = to_tensor("grad_x", x.grad_x, check);
  out.grad_weight = to_tensor("grad_weight", x.grad_weight, check);
  out.grad_bias = to_tensor("grad_bias", x.grad_bias, check);
  return out;
}

}  // namespace
}  // namespace falchion

using namespace falchion;

fal_norm fal_norm_init(void) {
  const fal_norm start = FAL_NORM_INIT;
  return start;
}

fal_status fal_norm_plan_make(const fal_norm* problem, const fal_target* target, fal_plan** out) {
  return c_plan_make(to_problem, problem, target, out);
}

fal_status fal_norm_backward_plan_make(const fal_norm* problem, const fal_target* target, fal_plan** out) {
  return c_plan_make(to_problem, problem, target, out, std::int32_t{FAL_BACKWARD});
}

fal_status fal_norm_plan_run(const fal_plan* plan, const fal_norm_operands* operands, void* workspace,
                             size_t workspace_bytes, void* stream) {
  return c_plan_run(to_operands, plan, operands, workspace, workspace_bytes, stream);
}

const char* fal_norm_explain(const fal_norm* problem, const fal_target* target, int32_t format) {
  return c_explain(to_problem, problem, target, format);
}

const char* fal_norm_backward_explain(const fal_norm* problem, const fal_target* target, int32_t format) {
  return c_explain(to_problem, problem, target, format, std::int32_t{FAL_BACKWARD});
}

fal_status fal_norm_run(const fal_norm_operands* operands, const fal_norm* options, const fal_target* target,
                        void* stream) {
  return c_call(norm, to_problem, options, to_operands, operands, target, stream);
}
