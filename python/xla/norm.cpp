// python/xla/norm.cpp: layer norm and RMSNorm, and their gradients, as an operation of call.hpp.
#include "operations.hpp"

namespace falchion::xla_ffi {
namespace {

using Known = NormOperation::Known;
using Operands = fal_norm_operands;
using Problem = fal_norm;

constexpr Known kNames[] = {
    {.name = "x", .axes = Axes::whole, .tensor = &Operands::x},
    {.name = "residual", .axes = Axes::whole, .tensor = &Operands::residual, .flag = &Problem::residual},
    {.name = "weight", .axes = Axes::whole, .tensor = &Operands::weight, .flag = &Problem::weight},
    {.name = "bias", .axes = Axes::whole, .tensor = &Operands::bias, .flag = &Problem::bias},
    {.name = "y", .axes = Axes::whole, .tensor = &Operands::y},
    {.name = "residual_out", .axes = Axes::whole, .tensor = &Operands::residual_out, .flag = &Problem::residual_out},
    {.name = "mean", .axes = Axes::whole, .tensor = &Operands::mean, .flag = &Problem::mean},
    {.name = "rstd", .axes = Axes::whole, .tensor = &Operands::rstd, .flag = &Problem::rstd},
    {.name = "grad_y", .axes = Axes::whole, .tensor = &Operands::grad_y},
    {.name = "grad_residual_out",
     .axes = Axes::whole,
     .tensor = &Operands::grad_residual_out,
     .flag = &Problem::residual_out},
    {.name = "grad_x", .axes = Axes::whole, .tensor = &Operands::grad_x},
    {.name = "grad_weight", .axes = Axes::whole, .tensor = &Operands::grad_weight},
    {.name = "grad_bias", .axes = Axes::whole, .tensor = &Operands::grad_bias, .flag = &Problem::bias},
};

}  // namespace

const Known* NormOperation::find(std::string_view name) {
  for (const Known& known : kNames) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

void NormOperation::complete(std::int32_t pass, std::string_view, Attributes* attributes, Operands* operands,
                             Problem* problem) {
  problem->dtype = operands->x.dtype;
  const bool backward = pass == FAL_BACKWARD;
  problem->dtype_y = (backward ? operands->grad_y : operands->y).dtype;
  problem->dtype_residual = (backward ? operands->grad_residual_out : operands->residual).dtype;
  problem->kind = attributes->code("kind");
  problem->rows = operands->x.shape[0] * operands->x.shape[1] * operands->x.shape[2];
  problem->d = operands->x.shape[3];
  problem->eps = attributes->number("eps");
  problem->zero_centered = attributes->flag("zero_centered");
}

}  // namespace falchion::xla_ffi
