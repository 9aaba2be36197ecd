// tools/verify/norm_backward/draw.cpp: random gradients of norms: the sizes and most features of a norm, without those
// that only its forward pass has.
#include "verify/draw.hpp"

namespace falchion::tools::storm {

void draw_norm_backward(Dice* dice, Problem* p) {
  draw_norm(dice, p);
  Norm& n = p->norm;
  n.residual = n.mean = n.rstd = false;
  n.residual_out = dice->chance(0.5);
  n.frozen = static_cast<std::uint8_t>(dice->chance(0.7) ? 0 : dice->between(0, 3));
  n.bias = n.bias || (n.frozen == 3 && !dice->chance(0.1));
  // The two are mostly summed over the same rows; where they are not, a run is two sweeps.
  if (dice->chance(0.6)) p->bias = p->weight;
  const auto any_type = [&] { return dice->pick({DType::f32, DType::f16, DType::bf16}); };
  p->grad_weight_dtype = any_type();
  p->grad_bias_dtype = any_type();
  if (!p->data.plant.empty())
    p->data.plant = {dice->pick<const char*>({"nan_x", "inf_x", "nan_grad_y", "inf_grad_y", "nan_weight", "inf_weight",
                                              "nan_grad_residual_out", "inf_grad_residual_out"})};
  p->storage.clear();
  if (dice->chance(0.4)) return;
  const auto give = [&](const char* operand, bool rows, bool input) {
    if (const Storage storage = draw_storage(dice, rows, input); storage != Storage{}) p->storage[operand] = storage;
  };
  for (const char* operand : {"x", "weight", "grad_y", "grad_residual_out"}) give(operand, dice->chance(0.8), true);
  for (const char* operand : {"grad_x", "grad_weight", "grad_bias"}) give(operand, dice->chance(0.8), false);
}

}  // namespace falchion::tools::storm
