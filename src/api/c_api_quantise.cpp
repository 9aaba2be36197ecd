// src/api/c_api_quantise.cpp: the C shim of Quantise.
#include "api/c_convert.hpp"

namespace falchion {
namespace {

Quantise to_problem(const fal_quantise* from, Check* check) {
  fal_quantise x;
  if (!copy("quantise", from, &x, check)) return {};
  Quantise out;
  out.dtype = to_enum(x.dtype, kLastDType, check, "dtype");
  out.dtype_y = to_enum(x.dtype_y, kLastDType, check, "dtype_y");
  out.b = x.b;
  out.s = x.s;
  out.h = x.h;
  out.d = x.d;
  out.rows = x.rows;
  out.scale_given = to_flag(x.scale_given, check, "scale_given");
  out.powers_of_two = to_flag(x.powers_of_two, check, "powers_of_two");
  out.smooth = to_flag(x.smooth, check, "smooth");
  out.mean_given = to_flag(x.mean_given, check, "mean_given");
  out.rotate = to_flag(x.rotate, check, "rotate");
  check_reserved(x.reserved, check, "quantise.reserved");
  return out;
}

QuantiseOperands to_operands(const fal_quantise_operands* from, Check* check) {
  fal_quantise_operands x;
  if (!copy("quantise_operands", from, &x, check)) return {};
  QuantiseOperands out;
  out.x = to_tensor("x", x.x, check);
  out.mean = to_tensor("mean", x.mean, check);
  out.scale = to_tensor("scale", x.scale, check);
  out.y = to_tensor("y", x.y, check);
  return out;
}

}  // namespace
}  // namespace falchion

using namespace falchion;

fal_quantise fal_quantise_init(void) {
  const fal_quantise start = FAL_QUANTISE_INIT;
  return start;
}

fal_status fal_quantise_plan_make(const fal_quantise* problem, const fal_target* target, fal_plan** out) {
  return c_plan_make(to_problem, problem, target, out);
}

fal_status fal_quantise_plan_run(const fal_plan* plan, const fal_quantise_operands* operands, void* workspace,
                                 size_t workspace_bytes, void* stream) {
  return c_plan_run(to_operands, plan, operands, workspace, workspace_bytes, stream);
}

const char* fal_quantise_explain(const fal_quantise* problem, const fal_target* target, int32_t format) {
  return c_explain(to_problem, problem, target, format);
}

fal_status fal_quantise_run(const fal_quantise_operands* operands, const fal_quantise* options,
                            const fal_target* target, void* stream) {
  return c_call(quantise, to_problem, options, to_operands, operands, target, stream);
}
