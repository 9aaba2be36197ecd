// python/xla/gemm.cpp: a matrix product with what follows it as an operation of call.hpp.
#include "operations.hpp"

namespace falchion::xla_ffi {
namespace {

using Known = GemmOperation::Known;
using Operands = fal_gemm_operands;
using Problem = fal_gemm;

constexpr Known kNames[] = {
    {.name = "a", .axes = Axes::whole, .tensor = &Operands::a},
    {.name = "b", .axes = Axes::whole, .tensor = &Operands::b},
    {.name = "c", .axes = Axes::whole, .tensor = &Operands::c},
    {.name = "d", .axes = Axes::whole, .tensor = &Operands::d},
    {.name = "residual", .axes = Axes::whole, .tensor = &Operands::residual, .flag = &Problem::residual},
    {.name = "bias", .axes = Axes::whole, .tensor = &Operands::bias_n, .flag = &Problem::bias_n},
    {.name = "bias_m", .axes = Axes::whole, .tensor = &Operands::bias_m, .flag = &Problem::bias_m},
    {.name = "scale_a", .axes = Axes::whole, .tensor = &Operands::scale_a},
    {.name = "scale_b", .axes = Axes::whole, .tensor = &Operands::scale_b},
};

/// One matrix that serves all of a batch.
void share(std::int64_t batch, fal_tensor* x) {
  if (x->shape[0] != 1) return;
  x->shape[0] = batch;
  x->stride[0] = 0;
}

}  // namespace

const Known* GemmOperation::find(std::string_view name) {
  for (const Known& known : kNames) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

void GemmOperation::complete(std::int32_t, std::string_view, Attributes* attributes, Operands* operands,
                             Problem* problem) {
  problem->dtype = operands->a.dtype;
  problem->dtype_c = operands->c.dtype;
  problem->dtype_d = operands->d.dtype;
  problem->batch = operands->d.shape[0];
  problem->m = operands->d.shape[1];
  problem->n = operands->d.shape[3];
  problem->k = operands->a.shape[3];
  problem->alpha = attributes->number("alpha");
  problem->beta = attributes->number("beta");
  problem->activation = attributes->code("activation");
  problem->scaling = static_cast<std::uint8_t>(attributes->code("scaling"));
  share(problem->batch, &operands->a);
  share(problem->batch, &operands->c);
  share(problem->batch, &operands->residual);
}

}  // namespace falchion::xla_ffi
