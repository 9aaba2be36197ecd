// src/gpu/attention_after.hpp: what may follow an attention kernel. Compiled once each (attention_combine.cu,
// attention_probabilities.cu): with every row they were a tenth of the build.
#pragma once

#include "args/gpu_attention_args.hpp"

namespace falchion::gpu {

/// The parts of partial_o, partial_m_l -> o and lse. Element: float, cutlass::half_t, cutlass::bfloat16_t. Enqueues; a
/// cudaError_t.
template <class Element>
int launch_attention_combine(const AttentionArgs& a, void* stream);

/// P (b, h_q, s_q, s_k) from q and k. kTerms: 8, or 4 for float.
template <class Element, int kTerms = 8>
int launch_attention_probabilities(const AttentionArgs& a, void* stream);

}  // namespace falchion::gpu
