// src/gpu/attention_forward/before.hpp: the kernel that may run before an attention kernel. It is compiled once, in
// append.cu.
#pragma once

#include "args/gpu_attention_args.hpp"

namespace falchion::gpu {

/// Enqueues the kernel that writes k_new and v_new into k and v, and the rotated q to a.rotated, and returns a
/// cudaError_t. Element is float, cutlass::half_t or cutlass::bfloat16_t.
template <class Element>
int launch_attention_append(const AttentionArgs& a, void* stream);

}  // namespace falchion::gpu
