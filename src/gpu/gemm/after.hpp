// src/gpu/gemm/after.hpp: the kernel that follows a GEMM with split k. It is compiled once, in combine.cu.
#pragma once

#include "args/gpu_gemm_args.hpp"

namespace falchion::gpu {

/// Enqueues the kernel that adds the partial sums up and turns them into D, and returns a cudaError_t. rows: of a tile
/// of D. Element is float, cutlass::half_t, cutlass::bfloat16_t, cutlass::float_e4m3_t or std::int8_t.
template <class Element>
int launch_gemm_combine(const GemmArgs& a, int rows, void* stream);

}  // namespace falchion::gpu
