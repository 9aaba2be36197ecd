// src/gpu/gemm/combine.cu: adds the sums of the parts of k up and turns them into D. The order of the additions depends
// on the plan alone, so that two runs give the same bits.
#include <cutlass/bfloat16.h>
#include <cutlass/float8.h>
#include <cutlass/half.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"
#include "gpu/blocks/epilogue.cuh"
#include "gpu/blocks/stream_order.cuh"
#include "gpu/gemm/after.hpp"
#include "gpu/gemm/store.cuh"

namespace falchion::gpu {

inline constexpr int kCombineThreads = 128;
/// One thread adds up to kPartsAThread parts, all of whose loads are in flight together. Where there are more, several
/// threads share the work: with 64 parts of 256 x 256, a single thread took 20 us.
inline constexpr int kPartsAThread = 8, kMostSharing = 8, kLeastCtas = 1024;

/// x += y. Sums of i8 are i32, stored in the partials as floats with the same bits.
template <class Element>
FALCHION_DEVICE void add(float& x, float y) {
  if constexpr (std::is_same_v<Element, std::int8_t>)
    x = __int_as_float(__float_as_int(x) + __float_as_int(y));
  else
    x += y;
}
template <class Element>
FALCHION_DEVICE void add(float4& x, const float4& y) {
  add<Element>(x.x, y.x);
  add<Element>(x.y, y.y);
  add<Element>(x.z, y.z);
  add<Element>(x.w, y.w);
}

/// The sum of parts [first, end) of a tile, for the four columns at `from`.
template <class Element>
FALCHION_DEVICE float4 add_parts(const GemmArgs& a, const float* from, int first, int end) {
  const std::int64_t part = std::int64_t{a.part_rows} * a.part_columns;
  float4 sum{};
#pragma unroll 1
  for (int s = first; s < end; s += kPartsAThread) {
    float4 x[kPartsAThread];
#pragma unroll
    for (int i = 0; i < kPartsAThread; ++i)
      x[i] = s + i < end ? __ldcg(reinterpret_cast<const float4*>(from + (s + i) * part)) : float4{};
#pragma unroll
    for (int i = 0; i < kPartsAThread; ++i) add<Element>(sum, x[i]);
  }
  return sum;
}

/// A CTA has `lines` rows of a tile. Four columns of a row are the work of `sharing` of its threads, each of which adds
/// some consecutive parts.
template <class Element>
__global__ void __launch_bounds__(kCombineThreads, 6)
    gemm_combine(const __grid_constant__ GemmArgs a, int rows, int lines, int sharing) {
  __shared__ float4 sums[2][kCombineThreads];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const Epilogue<Element> epilogue(a);
  const bool pairs = a.activation == GemmActivation::swiglu;
  const int columns = pairs ? a.part_columns / 2 : a.part_columns, fours = columns / 4;  // of D, of a tile
  const int chunks = (a.part_rows + lines - 1) / lines, in_cut = static_cast<int>(blockIdx.x) / chunks;
  const GemmTile t(a, GemmPiece::tile(a, static_cast<std::uint32_t>(a.whole + in_cut)), rows, columns);
  const int row0 = static_cast<int>(blockIdx.x) % chunks * lines, row1 = min(row0 + lines, a.part_rows);
  const int each = (a.splits + sharing - 1) / sharing, share = static_cast<int>(threadIdx.x) % sharing;
  const int first = min(share * each, a.splits), end = min(first + each, a.splits);
  const float* const tile = a.partials + std::int64_t{in_cut} * a.splits * a.part_rows * a.part_columns;
  const int all = (row1 - row0) * fours, together = kCombineThreads / sharing;
  for (int begin = 0; begin < all; begin += together) {
    const int at = begin + static_cast<int>(threadIdx.x) / sharing, row = row0 + at / fours, four = at % fours * 4;
    const std::int64_t i = t.row0 + row, j = t.column0 + four;
    const bool there = at < all && i < a.m && j < a.n;
    float4 z{}, up{};
    if (there) {
      z = add_parts<Element>(a, tile + row * a.part_columns + four, first, end);
      if (pairs) up = add_parts<Element>(a, tile + row * a.part_columns + columns + four, first, end);
    }
    if (sharing > 1) {
      sums[0][threadIdx.x] = z;
      sums[1][threadIdx.x] = up;
      __syncthreads();
      for (int other = 1; other < sharing && share == 0; ++other) {
        add<Element>(z, sums[0][threadIdx.x + other]);
        add<Element>(up, sums[1][threadIdx.x + other]);
      }
      __syncthreads();
    }
    if (!there || share != 0) continue;
    float of_z[4] = {z.x, z.y, z.z, z.w}, of_up[4] = {up.x, up.y, up.z, up.w};
    epilogue.run(t.batch, i, j, of_z, of_up);
  }
}

template <class Element>
int launch_gemm_combine(const GemmArgs& a, int rows, void* stream) {
  int sharing = 1;
  while (sharing < kMostSharing && sharing * kPartsAThread < a.splits) sharing *= 2;
  // A CTA has up to 8 rows, if enough CTAs remain.
  const std::int64_t tiles = GemmPiece::tiles(a) - a.whole;
  int lines = 8;
  while (lines > 1 && tiles * (a.part_rows / lines) < kLeastCtas) lines /= 2;
  const auto blocks = static_cast<unsigned>(tiles * ((a.part_rows + lines - 1) / lines));
  return launch_kernel<gemm_combine<Element>>(blocks, kCombineThreads, 0, stream, true, a, rows, lines, sharing);
}
template int launch_gemm_combine<cutlass::bfloat16_t>(const GemmArgs&, int, void*);
template int launch_gemm_combine<cutlass::half_t>(const GemmArgs&, int, void*);
template int launch_gemm_combine<float>(const GemmArgs&, int, void*);
template int launch_gemm_combine<cutlass::float_e4m3_t>(const GemmArgs&, int, void*);
template int launch_gemm_combine<std::int8_t>(const GemmArgs&, int, void*);

}  // namespace falchion::gpu
