/// falchion/quantise.hpp: 8-bit numbers with scales from wider ones: the problem and the tensors of a run.
#pragma once

#include <cstdint>

#include "falchion/tensor.hpp"

namespace falchion {

/// x, which is f32, f16 or bf16, becomes y of 8 bits, with scales so that y * scale is about x. A block is `rows`
/// tokens of one head, and its numbers share a scale. In this order: mean is subtracted, the row is rotated, and the
/// result is divided by the scale and rounded to nearest even; what is finite and beyond y's range becomes its largest
/// number, 448 (e4m3) or 127 (i8). A scale that is not given maps the largest magnitude of its block to that number.
/// NaN and Inf become NaN in e4m3, beside which the scale is that of the finite numbers. i8 has no NaN: a scale that is
/// not given becomes NaN, and all numbers of its block 0.
struct Quantise {
  DType dtype = DType::bf16;    // the type of x: f32, f16 or bf16
  DType dtype_y = DType::e4m3;  // of y: e4m3 or i8
  std::int64_t b = 0, s = 0, h = 0, d = 0;
  std::int64_t rows = 1;  // tokens of a block; the last block of a sequence may have fewer. 0: all tokens of the head
  bool scale_given = false;    // scale is an input
  bool powers_of_two = false;  // scales that are not given are rounded up to powers of two
  /// Subtract one vector a head. With K softmax(Q K^T) stays the same whatever the vector is, and with channels that
  /// are large in every token fewer bits are lost. The vector is the mean over all s tokens, or an input.
  bool smooth = false, mean_given = false;
  /// Multiply rows by an orthonormal Hadamard matrix, which spreads single large channels over many. With Q and K alike
  /// Q K^T stays the same. It is block-diagonal, with blocks of the largest power of two that divides d.
  bool rotate = false;
  bool operator==(const Quantise&) const = default;
};

/// The tensors of one run of Quantise. They may have any strides. A GPU is fastest where d is a multiple of 8, the
/// numbers of a row are contiguous, and each row begins at a multiple of 16 bytes.
struct QuantiseOperands {
  Tensor x{};      // input   (b, s, h, d)
  Tensor mean{};   // output  (b, 1, h, d) f32; with mean_given an input, whose first three extents may also be 1
  Tensor scale{};  // output  (b, ceil(s / rows), h, 1) f32; with scale_given an input, likewise
  Tensor y{};      // output  (b, s, h, d)
};

}  // namespace falchion
