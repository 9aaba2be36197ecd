// src/args/gemm_call.hpp: one GEMM as every kernel sees it. It is plain data for the reason that attention_call.hpp
// gives.
#pragma once

#include <cstdint>

#include "args/view.hpp"

namespace falchion {

/// The values of the public enum Activation.
enum class GemmActivation : std::uint8_t { none, relu, gelu_tanh, gelu_erf, silu, swiglu };

/// a (batch, m, k2, k1), b (batch, n, k2, k1), or 2 n rows with swiglu; c, d, residual (batch, m, n2, n1); bias_n (1,
/// 1, 1, rows of b), bias_m (batch, m, 1, 1). Tensors shared by the batch have a stride of 0 there.
struct GemmCall {
  View a, b, c, d, residual, bias_n, bias_m;  // null: absent; c: absent where beta is 0
  // Of f32, absent where there is no product: (batch, m, 1, 1) and (batch, rows of b, 1, 1), or of blocks of 128
  // (policy/scale_block.hpp) (batch, m, blocks of k, 1) and (batch, blocks of the rows of b, blocks of k, 1).
  View scale_a, scale_b;
  bool c_f32 = false, d_f32 = false;            // else the type of a; residual has the type of d
  bool bias_n_f32 = false, bias_m_f32 = false;  // the same
  bool half_f16 = false;      // where a has 8 bits, f16 (true) or bf16 (false) stands for "the type of a" above
  bool d_i32 = false;         // a is i8, and d gets the sums themselves
  bool block_scales = false;  // scale_a and scale_b are there, and of blocks
  std::int64_t batch = 0, m = 0, n = 0, k = 0, k1 = 0, n1 = 0;  // k = k2 k1, n = n2 n1; where alpha is 0, k is 0 too
  float alpha = 1, beta = 0;
  GemmActivation activation = GemmActivation::none;
};

}  // namespace falchion
