// tools/verify/gemm/draw.cpp: random GEMMs.
#include <algorithm>

#include "base/size.hpp"
#include "verify/draw.hpp"

namespace falchion::tools::storm {
namespace {

/// Reduces large sizes until the definition takes a reasonable time.
void fit(double budget, Problem* p) {
  Gemm& g = p->gemm;
  const auto work = [&] {
    const double columns = static_cast<double>(g.n) * (g.activation == Activation::swiglu ? 2 : 1);
    return static_cast<double>(g.batch) * static_cast<double>(g.m) * columns * static_cast<double>(g.k);
  };
  while (work() > budget) {
    std::int64_t& largest = *std::max({&g.m, &g.n, &g.k}, [](const auto* x, const auto* y) { return *x < *y; });
    (g.batch > 4 ? g.batch : largest) /= 2;
  }
}

/// Cuts an axis into parts, as heads do.
std::int64_t draw_parts(Dice* dice, std::int64_t* extent) {
  if (*extent == 0 || !dice->chance(0.25)) return 1;
  const std::int64_t parts = dice->pick<std::int64_t>({2, 3, 4, 8, *extent});
  *extent = parts * std::max<std::int64_t>(*extent / parts, 1);
  return parts;
}

/// Hopper's tensor cores accept bytes if their rows are whole chunks of 16, and their heads whole boxes of 128. Other
/// draws would rarely fulfil that.
void suit_bytes(Dice* dice, Problem* p) {
  Gemm& g = p->gemm;
  if (!is_8bit(g.dtype) || p->k2 > 8 || !dice->chance(0.6)) return;
  const std::int64_t whole = p->k2 > 1 ? 128 * p->k2 : 16;
  g.k = (g.k + whole - 1) / whole * whole;
}

void draw_sizes(Dice* dice, Problem* p) {
  Gemm& g = p->gemm;
  g.batch = dice->chance(0.6) ? 1 : dice->chance(0.9) ? dice->between(2, 4) : dice->log_between(5, 40);
  g.m = dice->chance(0.3) ? dice->between(1, 17) : draw_length(dice, 600);
  g.n = draw_length(dice, 800);
  g.k = draw_length(dice, 3000);
  if (dice->chance(0.01)) g.batch = 0;
  fit(dice->chance(0.6) ? 2e6 : 1e7, p);
  p->k2 = draw_parts(dice, &g.k);
  suit_bytes(dice, p);
  p->n2 = draw_parts(dice, &g.n);
  p->shared_b = dice->chance(0.5);
}

/// The types of d and c, of which f32 is the likeliest, since in 16 bits d hides most errors of a sum; and the scales.
void draw_types(Dice* dice, Gemm* g) {
  if (is_8bit(g->dtype)) {
    g->dtype_d = dice->pick({DType::f32, DType::f32, DType::bf16, DType::f16});
    if (g->dtype == DType::i8 && dice->chance(0.15)) g->dtype_d = DType::i32;
    using enum Scaling;
    g->scaling = dice->pick({none, tensor, row_col, g->dtype == DType::e4m3 ? block128 : row_col});
    if (dice->chance(0.3)) g->dtype_c = DType::f32;
  } else if (g->dtype != DType::f32) {
    if (dice->chance(0.5)) g->dtype_d = DType::f32;
    if (dice->chance(0.3)) g->dtype_c = dice->pick({DType::f32, g->dtype});
  }
}

void draw_features(Dice* dice, Problem* p) {
  using enum Activation;
  Gemm& g = p->gemm;
  draw_types(dice, &g);
  if (dice->chance(0.3)) g.alpha = dice->pick({-1.F, 0.125F, 0.3F, 0.F});
  g.activation = dice->pick({none, none, none, none, relu, gelu_tanh, gelu_erf, silu, swiglu, swiglu});
  if (g.activation != swiglu && dice->chance(0.4)) g.beta = dice->pick({1.F, -0.5F, 3.F});
  g.bias_n = dice->chance(0.3);
  g.bias_m = dice->chance(0.2);
  g.residual = dice->chance(0.3);
  // A type other than f32 means the type of a, or of d if a has 8 bits.
  p->bias_dtype = dice->chance(0.5) ? DType::f32 : DType::bf16;
  p->in_place = dice->chance(0.3);
  if (dice->chance(0.1)) p->data.q = dice->pick({0.01F, 10.F});
  if (dice->chance(0.1)) p->data.shape = "ones";
  if (dice->chance(0.05))
    p->data.plant.emplace_back(dice->pick<const char*>(
        {"nan_a", "nan_b", "nan_c", "nan_residual", "nan_bias_n", "nan_bias_m", "inf_a", "inf_b", "inf_c",
         "inf_residual", "inf_bias_n", "inf_bias_m", "nan_scale_a", "nan_scale_b", "inf_scale_a", "inf_scale_b"}));
}

void draw_storages(Dice* dice, Problem* p) {
  if (dice->chance(0.4)) return;
  const auto give = [&](const char* operand, bool rows, bool input) {
    if (const Storage storage = draw_storage(dice, rows, input); storage != Storage{}) p->storage[operand] = storage;
  };
  for (const char* operand : {"a", "b", "c", "residual"}) give(operand, dice->chance(0.5), true);
  for (const char* operand : {"bias_n", "bias_m", "scale_a", "scale_b"}) give(operand, false, true);
  give("d", dice->chance(0.5), false);
  for (const char* operand : {"a", "b", "d"})
    if (dice->chance(0.3)) p->storage[operand].order = "0231";  // rows lie side by side, as in a transposed matrix
}

}  // namespace

void draw_gemm(Dice* dice, Problem* p) {
  draw_features(dice, p);
  draw_sizes(dice, p);
  draw_storages(dice, p);
}

}  // namespace falchion::tools::storm
