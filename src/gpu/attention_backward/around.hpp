// src/gpu/attention_backward/around.hpp: the small kernels before and after those of attention's backward pass. They
// are compiled once each, in around.cu.
#pragma once

#include "args/gpu_attention_backward_args.hpp"

namespace falchion::gpu {

/// Enqueues the kernels before the main one: gradients of unused rows become 0 if requested, and the statistics of all
/// rows (RowStatistic) are written into the workspace, from which grad_sinks is summed if it is requested. unit is the
/// factor of the lse: 1, or log2(e) for kernels that fold the scale into the exponent of 2. summed: the columns of
/// grad_q's sums to which several CTAs will add, or 0 if there are no such sums; with any_order these sums become 0,
/// else the turns of the CTAs are reset. counter: becomes 0 unless it is null. Element is float, cutlass::half_t or
/// cutlass::bfloat16_t. Returns a cudaError_t.
template <class Element>
int launch_before_backward(const AttentionBackwardArgs& a, float unit, int summed, unsigned* counter, void* stream);

/// Enqueues the last kernel if grad_alibi is requested: it sums the partial sums that the tiles of `rows` rows have
/// left in the workspace, in their order. Returns a cudaError_t.
int launch_slope_sums(const AttentionBackwardArgs& a, int rows, void* stream);

}  // namespace falchion::gpu
