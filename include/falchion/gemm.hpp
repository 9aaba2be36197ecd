/// falchion/gemm.hpp: a matrix product with what follows it: the problem and the tensors of a run.
#pragma once

#include <cstdint>

#include "falchion/tensor.hpp"

namespace falchion {

/// What a GEMM does with its sums. gelu_tanh is the approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), silu
/// is x / (1 + e^-x). With swiglu b has 2 n rows, those of the n gates first, and D = silu(gate) * up.
enum class Activation : std::uint8_t { none, relu, gelu_tanh, gelu_erf, silu, swiglu };

/// What the numbers of an 8-bit a and b are multiplied by: nothing, one scale for each tensor, or one for each row of a
/// (a row of d) and each row of b (a column of d). block128 is for e4m3: a has a scale for each row and 128 of k, and b
/// has one for each block of 128 rows and 128 of k, as DeepSeek-V3's weights and DeepGEMM have them.
enum class Scaling : std::uint8_t { none, tensor, row_col, block128 };

/// A matrix product with what follows it: Z = alpha s_a s_b A B^T + beta C + bias, D = activation(Z) + R. The scales
/// s_a and s_b are 1 unless `scaling` says that there are some; with block128 the sum over each 128 of k is multiplied
/// by its own. C enters before the activation, as in BLAS, and the residual R after it. Sums and what follows them are
/// f32, except that sums of i8 are exact. There is no backward pass of its own: the gradients of A and B are Gemms of
/// other views.
struct Gemm {
  DType dtype = DType::bf16;    // the type of a: f32, f16, bf16, e4m3 or i8
  DType dtype_b = DType::as_q;  // as_q: as a; only that is built today
  /// as_q means that d has the type of a, and c that of d. Each may also be f32 or the type of a. Where a has 8 bits, d
  /// must be named: f32, f16 or bf16, or where a is i8 also i32, which is the sums alone; and c is f32 or as d.
  DType dtype_c = DType::as_q, dtype_d = DType::as_q;
  std::int64_t batch = 1, m = 0, n = 0, k = 0;  // n: the columns of d; k = 0 leaves beta C + bias; in i8 k < 2^17
  float alpha = 1, beta = 0;                    // finite; where alpha is 0, a and b are not read, and c where beta is
  Activation activation = Activation::none;
  bool bias_n = false, bias_m = false;  // a bias for each row of b, for each row of a
  bool residual = false;
  Scaling scaling = Scaling::none;  // of an 8-bit a and b
  bool operator==(const Gemm&) const = default;
};

/// The tensors of one run of Gemm. An input may have any strides, also 0 and negative ones. The axes k2 and k1 are one
/// axis k of k2 * k1, cut in two so that heads need not be contiguous: the o of attention (b, s, h, d) is an a, and its
/// q, k and v are a d. a and b are cut alike, and so are c, d and residual.
struct GemmOperands {
  Tensor a{};         // input   (batch, m, k2, k1)
  Tensor b{};         // input   (batch or 1, n, k2, k1); swiglu: 2 n rows
  Tensor c{};         // input   (batch, m, n2, n1), read where beta is not 0; not with swiglu
  Tensor d{};         // output  (batch, m, n2, n1); it may be the very view c, or residual
  Tensor residual{};  // input   (batch, m, n2, n1), of the type of d
  Tensor bias_n{};    // input   (1, 1, 1, rows of b), f32 or of the type of a, or where a has 8 bits of the type of d
  Tensor bias_m{};    // input   (batch or 1, m, 1, 1), likewise
  // inputs, f32: (batch or 1, 1, 1, 1), or with row_col (batch or 1, m or 1, 1, 1) and (batch or 1, rows of b or 1, 1,
  // 1), or with block128 (batch or 1, m, ceil(k / 128), 1) and (batch or 1, ceil(rows of b / 128), ceil(k / 128), 1)
  Tensor scale_a{}, scale_b{};
};

}  // namespace falchion
