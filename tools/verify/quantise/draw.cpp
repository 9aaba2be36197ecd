// tools/verify/quantise/draw.cpp: random problems of Quantise.
#include <algorithm>

#include "verify/draw.hpp"

namespace falchion::tools::storm {
namespace {

void draw_sizes(Dice* dice, Problem* p) {
  Quantise& q = p->quantise;
  q.d = dice->chance(0.5) ? dice->pick<std::int64_t>({64, 96, 128, 192, 256}) : dice->between(1, 256);
  const std::int64_t most = 300000 / q.d;  // tokens of all heads
  q.b = dice->chance(0.02) ? 0 : dice->log_between(1, 4);
  q.h = dice->chance(0.02) ? 0 : dice->log_between(1, 12);
  const std::int64_t left = std::max<std::int64_t>(most / std::max<std::int64_t>(q.b * q.h, 1), 1);
  q.s = dice->chance(0.02) ? 0 : dice->log_between(1, left);
  q.rows = dice->chance(0.3)   ? dice->pick<std::int64_t>({64, 128, 128, 1024})
           : dice->chance(0.3) ? dice->log_between(1, 2 * left)
                               : dice->pick<std::int64_t>({0, 1, 1});
}

void draw_features(Dice* dice, Problem* p) {
  Quantise& q = p->quantise;
  q.dtype_y = dice->pick({DType::e4m3, DType::i8});
  q.scale_given = dice->chance(0.2);
  q.powers_of_two = !q.scale_given && dice->chance(0.3);
  q.smooth = dice->chance(0.4);
  q.mean_given = q.smooth && dice->chance(0.4);
  q.rotate = dice->chance(0.5);
  if (q.scale_given && dice->chance(0.5)) p->k_scale.one = static_cast<unsigned>(dice->between(0, 7));
  if (dice->chance(0.2)) p->data.q = dice->pick({1e-4F, 100.F});
  if (dice->chance(0.2)) p->data.shape = dice->pick<const char*>({"outliers", "zero", "tiny", "huge"});
  if (dice->chance(0.1))
    p->data.plant.emplace_back(dice->pick<const char*>({"nan_x", "inf_x", "nan_scale", "inf_scale"}));
}

void draw_storages(Dice* dice, Problem* p) {
  if (dice->chance(0.4)) return;
  const Quantise& q = p->quantise;
  const auto give = [&](const char* operand, bool input) {
    if (const Storage storage = draw_storage(dice, dice->chance(0.8), input); storage != Storage{})
      p->storage[operand] = storage;
  };
  give("x", true);
  give("mean", q.mean_given);
  give("scale", q.scale_given);
  give("y", false);
}

}  // namespace

void draw_quantise(Dice* dice, Problem* p) {
  draw_features(dice, p);
  draw_sizes(dice, p);
  draw_storages(dice, p);
}

}  // namespace falchion::tools::storm
