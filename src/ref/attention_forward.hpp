// src/ref/attention_forward.hpp: the definition of attention. Start here.
#pragma once

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// Where a rival would round. The default rounds nothing but the store of O into its tensor.
struct Rounding {
  DType p = DType::f32;  // exp(s - m), unnormalised, is rounded so before P V (the sum l is not); f32: no rounding
  DType o = DType::f32;  // likewise O, when the tensor it goes to is wider
  double least_p = 0;    // exp(s - m) below this counts as 0 in P V
  bool single_precision = false;  // all arithmetic in f32: the naive computation that others are measured against
};

/// O = softmax(S) V in double, in the plainest way: for each query, the largest score, then the weighted sum.
/// problem and operands are valid (src/api/validate.hpp), save that o may also be f32, for a reference that is not
/// rounded. Lengths are clamped into bounds whatever they are. Allocates nothing, throws nothing, runs on one thread.
void attention_forward(const Attention& problem, const Operands& operands, Rounding rounding) noexcept;

}  // namespace falchion::ref
