// src/args/linear_attention_call.hpp: one call of linear attention as every kernel sees it. It is plain data for the
// reason that attention_call.hpp gives.
#pragma once

#include <cstdint>

#include "args/view.hpp"

namespace falchion {

/// Tensors have axes (b, s, h, d), states (b, h_v, d_qk, d_v) and z (b, h_v, d_qk, 1); states and z are f32.
struct LinearAttentionCall {
  View q, k, v, o;
  View decay;  // g (b, s, h_v, 1) f32, a natural logarithm; constant per head: strides 0 for b and s; null: no decay
  View initial_state, final_state, initial_z, final_z;              // null: absent (initial: 0)
  std::int64_t b = 0, s = 0, h_qk = 0, h_v = 0, d_qk = 0, d_v = 0;  // s: capacity of one sequence
  bool packed = false;                                              // q, k, v, o, decay are (1, total, h, d)
  const std::int32_t* cu_seqlens = nullptr;                         // (b + 1) when packed
  std::int64_t total = 0;                                           // packed: the number of rows
  float scale = 1, eps = 0;                                         // the plan has filled in the default scale
  bool elu = false;                                                 // phi is elu + 1, else the identity
  bool normalise = false, reverse = false;
  /// All tokens of a head have the same g. The strides of decay cannot show that, because they are also 0 if decay
  /// holds a single token.
  bool decay_by_head = false;

  // For the backward pass only:
  View grad_o, grad_final_state, grad_final_z;  // the last two are null where absent
  View grad_q, grad_k, grad_v;
  View grad_decay;  // shape as of decay; constant per head: the sum over tokens and sequences
  View grad_initial_state, grad_initial_z;
};

}  // namespace falchion
