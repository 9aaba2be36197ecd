// src/gpu/attention_forward/after.hpp: the kernels that may follow an attention kernel. They are compiled once each, in
// combine.cu and probabilities.cu: compiled with every variant, they took a tenth of the build time.
#pragma once

#include "args/gpu_attention_args.hpp"

namespace falchion::gpu {

/// Enqueues the kernel that merges the parts in partial_o and partial_m_l into o and lse, and returns a cudaError_t.
/// Element is float, cutlass::half_t or cutlass::bfloat16_t.
template <class Element>
int launch_attention_combine(const AttentionArgs& a, void* stream);

/// Enqueues the kernel that computes P (b, h_q, s_q, s_k) from q and k, and returns a cudaError_t. kTerms is how many
/// terms of a dot product are summed at a time, as in the attention kernel before: 8, or for float also 4.
template <class Element, int kTerms = 8>
int launch_attention_probabilities(const AttentionArgs& a, void* stream);

}  // namespace falchion::gpu
