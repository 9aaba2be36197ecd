// src/args/attention_backward_call.hpp: one call of attention's backward pass as every kernel sees it. It is plain data
// for the reason that attention_call.hpp gives.
#pragma once

#include "args/attention_call.hpp"

namespace falchion {

/// o and lse are inputs here; row_max and probabilities are not used. Gradients have the axes of their tensors: grad_q,
/// grad_k, grad_v and grad_o (b, s, h, d), grad_lse (b, h, s_q, 1), grad_bias (b, h, s_q, s_k), grad_alibi and
/// grad_sinks (b or 1, 1, h_q, 1).
struct AttentionBackwardCall : AttentionCall {
  View grad_o, grad_lse;                   // inputs; grad_lse is null if absent, and then counts as 0
  View grad_q, grad_k, grad_v;             // outputs, with a last axis of stride 1; null: not requested
  View grad_bias, grad_alibi, grad_sinks;  // outputs in f32; null: not requested
  /// Over which axes (b, h, s_q, s_k) grad_bias is summed; its strides on them are 0.
  bool summed[4] = {};
  bool alibi_summed = false;  // grad_alibi has one entry for all sequences
  bool sinks_summed = false;  // the same of grad_sinks
  bool grads_f32 = false;     // grad_q, grad_k and grad_v are f32, else of the input type
  bool accumulate = false;    // results are added to the outputs' contents (then they all are f32)
  bool zero_unused = false;   // rows of grad_q, grad_k and grad_v that belong to no used length get 0
  bool any_order = false;     // sums of grad_q may be made in any order
};

}  // namespace falchion
