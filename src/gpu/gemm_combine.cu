// src/gpu/gemm_combine.cu: adds the sums of the parts of k up and turns them into D. The parts are added in their
// order, so that two runs agree to the bit.
#include <cutlass/bfloat16.h>
#include <cutlass/float8.h>
#include <cutlass/half.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "blocks/epilogue.cuh"
#include "blocks/stream_order.cuh"
#include "gpu/gemm_after.hpp"

namespace falchion::gpu {

inline constexpr int kCombineThreads = 128;

/// Adds a part of a sum. Those of i8 are i32, whose bits lie in the partials.
template <class Element>
__device__ __forceinline__ void add_part(float& sum, float part) {
  if constexpr (std::is_same_v<Element, std::int8_t>)
    sum = __int_as_float(__float_as_int(sum) + __float_as_int(part));
  else
    sum += part;
}

/// The sums of four columns, over all parts.
template <class Element>
__device__ __forceinline__ void add_parts(const GemmArgs& a, const float* from, float (&sum)[4]) {
  const std::int64_t part = a.batch * a.m * a.pitch;
#pragma unroll 4
  for (int s = 0; s < a.splits; ++s) {
    const float4 x = *reinterpret_cast<const float4*>(from + s * part);
    add_part<Element>(sum[0], x.x);
    add_part<Element>(sum[1], x.y);
    add_part<Element>(sum[2], x.z);
    add_part<Element>(sum[3], x.w);
  }
}

/// A thread has four columns of a row.
template <class Element>
__global__ void __launch_bounds__(kCombineThreads) gemm_combine(const __grid_constant__ GemmArgs a) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const Epilogue<Element> epilogue(a);
  const bool pairs = a.activation == GemmActivation::swiglu;
  const std::int64_t fours = (a.n + 3) / 4, all = fours * a.m * a.batch;
  const std::int64_t step = std::int64_t{gridDim.x} * kCombineThreads;
  for (std::int64_t at = std::int64_t{blockIdx.x} * kCombineThreads + threadIdx.x; at < all; at += step) {
    const std::int64_t row = at / fours, j = (at - row * fours) * 4;
    const float* from = a.partials + row * a.pitch + j;
    float z[4] = {}, up[4] = {};
    add_parts<Element>(a, from, z);
    if (pairs) add_parts<Element>(a, from + a.pitch / 2, up);
    const std::int64_t b = row / a.m;
    epilogue.run(b, row - b * a.m, j, z, up);
  }
}

template <class Element>
int launch_gemm_combine(const GemmArgs& a, void* stream) {
  const std::int64_t blocks = ((a.n + 3) / 4 * a.m * a.batch + kCombineThreads - 1) / kCombineThreads;
  const auto most = static_cast<unsigned>(std::min<std::int64_t>(blocks, 1 << 20));
  return launch_kernel<gemm_combine<Element>>(most, kCombineThreads, 0, stream, true, a);
}
template int launch_gemm_combine<cutlass::bfloat16_t>(const GemmArgs&, void*);
template int launch_gemm_combine<cutlass::half_t>(const GemmArgs&, void*);
template int launch_gemm_combine<float>(const GemmArgs&, void*);
template int launch_gemm_combine<cutlass::float_e4m3_t>(const GemmArgs&, void*);
template int launch_gemm_combine<std::int8_t>(const GemmArgs&, void*);

}  // namespace falchion::gpu
