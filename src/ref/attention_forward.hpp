// src/ref/attention_forward.hpp: the definition of attention. A reader of the library should start here.
#pragma once

#include <cstdint>
#include <limits>

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// The roundings of a fast kernel. The default rounds only O, when it is stored into its tensor.
struct Rounding {
  DType p = DType::f32;  // exp(s - m), unnormalised, is rounded to this before P V (the sum l is not); f32: not rounded
  bool exact_p = false;  // v of e4m3: exp(s - m) is not rounded, as it is by definition
  DType o = DType::f32;  // O, or the gradients, are rounded to this, if their tensor is wider
  double least_p = 0;    // exp(s - m) below this counts as 0 in P V; in the backward pass exp(s - lse), everywhere
  bool single_precision = false;  // all arithmetic is f32: the naive computation, the yardstick for others
  double sum_step = 0;     // each dot product is moved by this share of the root of the sum of the squares of its sums
                           // so far, of which every fourth counts
  std::uint64_t draw = 0;  // which of the numbers that are moved go up

  // These are for the backward pass alone.
  DType ds = DType::f32;   // the gradient of scale q.k is rounded to this before its products with q and k
  bool p_in_ds = false;    // that gradient is computed from the rounded P, as by a kernel that keeps no other
  double step = 0;         // each P and each gradient of scale q.k is moved by this share of itself, up or down,
  double least_step = 0;   // and by this amount
  double slope_step = 0;   // the derivative of the softcap, from 0 to 1, is moved by this amount
  double least_slope = 0;  // that derivative counts as 0 below this
  double most_ds = std::numeric_limits<double>::infinity();  // the gradient of scale q.k becomes NaN beyond this
  bool magnitudes = false;                                   // each term of a sum counts with its magnitude
};

/// Computes O = softmax(S) V in double in the plainest way: for each query it finds the largest score and then makes
/// the weighted sum. problem and operands must be valid (src/api/validate.hpp), except that o may also be f32, for a
/// reference that is not rounded. Lengths are clamped into the tensors. It allocates nothing, throws nothing and runs
/// on one thread.
void attention_forward(const Attention& problem, const Operands& operands, Rounding rounding) noexcept;

}  // namespace falchion::ref
