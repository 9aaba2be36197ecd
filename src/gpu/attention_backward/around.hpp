// src/gpu/attention_backward/around.hpp: the small kernels before and after those of attention's backward pass. They
// are compiled once each, in around.cu.
#pragma once

#include "args/gpu_attention_backward_args.hpp"

namespace falchion::gpu {

/// Enqueues what comes first: gradients of unused rows become 0 where that is wanted, and the statistics of all rows
/// (RowStatistic) are written into the workspace. unit is what the lse is multiplied by: 1, or log2(e) for kernels that
/// fold the scale into the exponent of 2. summed: how many columns the sums of grad_q have that several CTAs will add
/// to, or 0 where nobody does; with any_order these sums become 0, else the turns of the CTAs begin anew. Element is
/// float, cutlass::half_t or cutlass::bfloat16_t. Returns a cudaError_t.
template <class Element>
int launch_before_backward(const AttentionBackwardArgs& a, float unit, int summed, void* stream);

/// Enqueues what comes last where grad_alibi is wanted: it becomes the sum of what the tiles of `rows` rows have left
/// in the workspace, in their order. Returns a cudaError_t.
int launch_slope_sums(const AttentionBackwardArgs& a, int rows, void* stream);

}  // namespace falchion::gpu
