// tools/verify/norm/draw.cpp: random norms.
#include <algorithm>

#include "verify/draw.hpp"

namespace falchion::tools::storm {
namespace {

void draw_sizes(Dice* dice, Problem* p) {
  Norm& n = p->norm;
  // Up to 16384 numbers a GPU keeps a row in registers. Longer rows are read again for each pass.
  n.d = dice->chance(0.06)  ? dice->between(16000, 40000)
        : dice->chance(0.3) ? 8 * draw_length(dice, 1100)
                            : draw_length(dice, 9000);
  const std::int64_t most = std::clamp<std::int64_t>(200000 / std::max<std::int64_t>(n.d, 1), 1, 300);
  const auto part = [&](std::int64_t left) {
    return dice->chance(0.5) ? 1 : dice->log_between(1, std::min(left, std::int64_t{12}));
  };
  p->s = part(most);
  p->h = part(most / p->s);
  n.rows = dice->chance(0.02) ? 0 : p->s * p->h * dice->log_between(1, std::max<std::int64_t>(most / p->s / p->h, 1));
}

/// The extents that are 1: often all three, else any of them.
Broadcast draw_shared(Dice* dice) { return {static_cast<unsigned>(dice->chance(0.6) ? 7 : dice->between(0, 7))}; }

void draw_features(Dice* dice, Problem* p) {
  Norm& n = p->norm;
  n.kind = dice->chance(0.5) ? NormKind::layer : NormKind::rms;
  n.eps = dice->pick({1e-5F, 1e-5F, 1e-6F, 1e-12F, 0.F, 0.5F});
  const auto any_type = [&] { return dice->pick({DType::f32, DType::f16, DType::bf16}); };
  if (dice->chance(0.5)) n.dtype_y = any_type();
  if (dice->chance(0.4)) n.dtype_residual = any_type();
  n.weight = dice->chance(0.7);
  n.zero_centered = n.weight && dice->chance(0.2);
  n.bias = dice->chance(0.4);
  n.residual = dice->chance(0.5);
  n.residual_out = n.residual && dice->chance(0.6);
  n.mean = n.kind == NormKind::layer && dice->chance(0.4);
  n.rstd = dice->chance(0.4);
  p->weight_dtype = any_type();
  p->bias_dtype = any_type();
  p->weight = draw_shared(dice);
  p->bias = draw_shared(dice);
  p->in_place = dice->chance(0.3);
  if (dice->chance(0.1)) p->data.q = dice->pick({0.01F, 10.F});
  if (dice->chance(0.2)) p->data.shape = dice->pick<const char*>({"constant", "shifted"});
  if (dice->chance(0.15)) {  // rows whose squares are outside the range of f32, among others
    p->data.shape = dice->pick<const char*>({"tiny", "tiny", "huge"});
    n.eps = dice->pick({0.F, 0.F, 1e-45F, 1e-38F, 1e-31F, 1e-20F, 1e-5F});
  }
  if (dice->chance(0.05))
    p->data.plant.emplace_back(dice->pick<const char*>(
        {"nan_x", "inf_x", "nan_residual", "inf_residual", "nan_weight", "inf_weight", "nan_bias", "inf_bias"}));
}

void draw_storages(Dice* dice, Problem* p) {
  if (dice->chance(0.4)) return;
  const auto give = [&](const char* operand, bool rows, bool input) {
    if (const Storage storage = draw_storage(dice, rows, input); storage != Storage{}) p->storage[operand] = storage;
  };
  for (const char* operand : {"x", "residual", "weight", "bias"}) give(operand, dice->chance(0.8), true);
  for (const char* operand : {"y", "residual_out", "mean", "rstd"}) give(operand, dice->chance(0.8), false);
}

}  // namespace

void draw_norm(Dice* dice, Problem* p) {
  draw_features(dice, p);
  draw_sizes(dice, p);
  draw_storages(dice, p);
}

}  // namespace falchion::tools::storm
