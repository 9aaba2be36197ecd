// src/api/c_api_gemm.cpp: the C shim of GEMMs.
#include "api/c_convert.hpp"

namespace falchion {
namespace {

constexpr bool is(int of_c, Activation ours) { return of_c == static_cast<int>(ours); }
static_assert(is(FAL_ACTIVATION_NONE, Activation::none) && is(FAL_RELU, Activation::relu) &&
                  is(FAL_GELU_TANH, Activation::gelu_tanh) && is(FAL_GELU_ERF, Activation::gelu_erf) &&
                  is(FAL_SILU, Activation::silu) && is(FAL_SWIGLU, Activation::swiglu),
              "the numbers of falchion.h are those of Activation");
constexpr bool is(int of_c, Scaling ours) { return of_c == static_cast<int>(ours); }
static_assert(is(FAL_SCALING_NONE, Scaling::none) && is(FAL_SCALING_TENSOR, Scaling::tensor) &&
                  is(FAL_SCALING_ROW_COL, Scaling::row_col) && is(FAL_SCALING_BLOCK128, Scaling::block128),
              "the numbers of falchion.h are those of Scaling");

Gemm to_problem(const fal_gemm* from, Check* check) {
  fal_gemm x;
  if (!copy("gemm", from, &x, check)) return {};
  Gemm out;
  out.dtype = to_enum(x.dtype, kLastDType, check, "dtype");
  out.dtype_b = to_enum(x.dtype_b, kLastDType, check, "dtype_b");
  out.dtype_c = to_enum(x.dtype_c, kLastDType, check, "dtype_c");
  out.dtype_d = to_enum(x.dtype_d, kLastDType, check, "dtype_d");
  out.batch = x.batch;
  out.m = x.m;
  out.n = x.n;
  out.k = x.k;
  out.alpha = x.alpha;
  out.beta = x.beta;
  out.activation = to_enum(x.activation, Activation::swiglu, check, "activation");
  out.bias_n = to_flag(x.bias_n, check, "bias_n");
  out.bias_m = to_flag(x.bias_m, check, "bias_m");
  out.residual = to_flag(x.residual, check, "residual");
  out.scaling = to_enum(x.scaling, Scaling::block128, check, "scaling");
  check_reserved(x.reserved, check, "gemm.reserved");
  return out;
}

GemmOperands to_operands(const fal_gemm_operands* from, Check* check) {
  fal_gemm_operands x;
  if (!copy("gemm_operands", from, &x, check)) return {};
  GemmOperands out;
  out.a = to_tensor("a", x.a, check);
  out.b = to_tensor("b", x.b, check);
  out.c = to_tensor("c", x.c, check);
  out.d = to_tensor("d", x.d, check);
  out.residual = to_tensor("residual", x.residual, check);
  out.bias_n = to_tensor("bias_n", x.bias_n, check);
  out.bias_m = to_tensor("bias_m", x.bias_m, check);
  out.scale_a = to_tensor("scale_a", x.scale_a, check);
  out.scale_b = to_tensor("scale_b", x.scale_b, check);
  return out;
}

}  // namespace
}  // namespace falchion

using namespace falchion;

fal_gemm fal_gemm_init(void) {
  const fal_gemm start = FAL_GEMM_INIT;
  return start;
}

fal_status fal_gemm_plan_make(const fal_gemm* problem, const fal_target* target, fal_plan** out) {
  return c_plan_make(to_problem, problem, target, out);
}

fal_status fal_gemm_plan_run(const fal_plan* plan, const fal_gemm_operands* operands, void* workspace,
                             size_t workspace_bytes, void* stream) {
  return c_plan_run(to_operands, plan, operands, workspace, workspace_bytes, stream);
}

const char* fal_gemm_explain(const fal_gemm* problem, const fal_target* target, int32_t format) {
  return c_explain(to_problem, problem, target, format);
}

fal_status fal_gemm_run(const fal_gemm_operands* operands, const fal_gemm* options, const fal_target* target,
                        void* stream) {
  return c_call(gemm, to_problem, options, to_operands, operands, target, stream);
}
