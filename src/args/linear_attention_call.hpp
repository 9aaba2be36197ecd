// src/args/linear_attention_call.hpp: one call of linear attention as every kernel sees it. Plain data, like
// attention_call.hpp.
#pragma once

#include "args/attention_call.hpp"

namespace falchion {

/// Axes (b, s, h, d); states (b, h_v, d_qk, d_v), z (b, h_v, d_qk, 1), both f32.
struct LinearAttentionCall {
  View q, k, v, o;
  View decay;  // g (b, s, h_v, 1) f32, natural logarithm; a constant a head has strides 0 on b and s. null: none
  View initial_state, final_state, initial_z, final_z;              // null: absent (initial: 0)
  std::int64_t b = 0, s = 0, h_qk = 0, h_v = 0, d_qk = 0, d_v = 0;  // s: capacity of one sequence
  bool packed = false;                                              // q, k, v, o, decay are (1, total, h, d)
  const std::int32_t* cu_seqlens = nullptr;                         // (b + 1) when packed
  std::int64_t total = 0;                                           // packed: rows there are
  float scale = 1, eps = 0;                                         // scale is final
  bool elu = false;                                                 // phi = elu + 1, else identity
  bool normalise = false, reverse = false;
  // One g for all tokens of a head. Strides do not tell: a tensor of one token, or of none, may have 0 there too.
  bool decay_by_head = false;

  // Backward.
  View grad_o, grad_final_state, grad_final_z;  // the last two: null where absent
  View grad_q, grad_k, grad_v;
  View grad_decay;  // strides as decay's; of a decay by head the sum over all tokens of all sequences
  View grad_initial_state, grad_initial_z;
};

}  // namespace falchion
