// src/blocks/sm90_tma.cuh: how the bulk copy engine (TMA) brings tiles from global to shared memory, the barriers of
// the ring of stages that the tiles go through, and the tensor maps that describe tensors to the engine. The rings are
// described in docs/design/sm90_forward.md ("Who waits for whom") and docs/design/linear_attention.md.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <cutlass/arch/barrier.h>

#include <algorithm>
#include <cstdint>

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "args/attention_call.hpp"
#include "blocks/sm90_map_cache.hpp"
#include "blocks/sm90_tensor_map.hpp"

namespace falchion::sm90 {

/// Where a warp stands in a ring of stages: the stage, and the parity of this round. Who reads a stage waits for this
/// parity on its barrier `full`. Who fills it waits for the other parity on `empty`, which ends at once in the first
/// round.
template <int kStages>
struct RingPosition {
  int stage = 0;
  unsigned parity = 0;
  RingPosition() = default;
  __device__ __forceinline__ explicit RingPosition(int turns) : stage(turns % kStages), parity(turns / kStages % 2) {}
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// CUTLASS's barriers and fences have no memory clobber, so the compiler may move plain loads and stores past them. It
/// may not do so with these.
template <class Base>
struct Ordered : Base {
  CUTE_DEVICE void wait(unsigned parity) const {
    Base::wait(parity);
    asm volatile("" ::: "memory");
  }
  CUTE_DEVICE void arrive() const {
    asm volatile("" ::: "memory");
    Base::arrive();
  }
};
using Barrier = Ordered<cutlass::arch::ClusterBarrier>;
using BarrierOfBytes = Ordered<cutlass::arch::ClusterTransactionBarrier>;

/// Named barriers for kThreads threads of a CTA. sync_threads waits until all of them have come; arrive_threads says
/// that this warp has come and does not wait.
template <int kThreads>
__device__ __forceinline__ void sync_threads(int barrier) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void arrive_threads(int barrier) {
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

/// Makes what this thread has written to shared memory visible to TMA and wgmma. It stands before the barrier that
/// tells them that the data are there.
__device__ __forceinline__ void publish_to_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Asks for a tile that starts at (column 0, head, row, batch). It comes as boxes of kBox columns, which lie one after
/// another in shared memory. What lies outside of the tensor becomes 0. The phase of `full` completes when all bytes
/// have come.
template <int kBoxes, int kBox, class Element, int kSize>
__device__ __forceinline__ void load_boxes(const CUtensorMap& map, cutlass::arch::ClusterTransactionBarrier& full,
                                           Element (&to)[kSize], std::uint64_t hint, int head, int row, int batch) {
  full.arrive_and_expect_tx(kSize * sizeof(Element));
  CUTE_UNROLL
  for (int i = 0; i < kBoxes; ++i)
    cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), hint, to + i * (kSize / kBoxes),
                                 kBox * i, head, row, batch);
}
// The hints tell the L2 how long to keep what is loaded.
inline constexpr auto kReadOnce = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST);
inline constexpr auto kReadAgain = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_LAST);
/// For rows that CTAs running beside this one read too. With kReadOnce such rows came from DRAM twice, and the backward
/// pass of linear attention took 104 us instead of 86.
inline constexpr auto kReadByOthers = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);

/// A tensor (batch, rows, heads, d) that is loaded in boxes of box_columns x box_heads x box_rows. The swizzle is that
/// for the bytes in a row of a box, 64 or 128.
struct TensorBox {
  std::int64_t batch, rows, heads, d;
  int box_columns, box_heads, box_rows;
};

/// Writes a tensor map of kRank dimensions, of which the first is contiguous. `size` is that of a box.
template <class Element, int kRank>
cudaError_t encode_tensor_map(CUtensorMap* map, void* data, const cuuint64_t (&shape)[kRank],
                              const cuuint64_t (&stride)[kRank - 1], const cuuint32_t (&size)[kRank]) {
  constexpr auto kType = std::is_same_v<Element, float>             ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                         : std::is_same_v<Element, cutlass::half_t> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                    : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  MapRequest request{.data = data, .type = kType, .rank = kRank};
  std::copy_n(shape, kRank, request.shape.begin());
  std::copy_n(stride, kRank - 1, request.stride.begin());
  std::copy_n(size, kRank, request.box.begin());
  thread_local MapCache cache;
  if (const CUtensorMap* known = cache.find(request); known != nullptr) {
    *map = *known;
    return cudaSuccess;
  }
  EncodeTensorMap encode = nullptr;
  if (const cudaError_t error = find_tensor_map_encoder(&encode); error != cudaSuccess) return error;
  const bool whole_line = size[0] * sizeof(Element) == 128;
  const cuuint32_t step[] = {1, 1, 1, 1, 1};
  const CUresult result = encode(map, kType, kRank, data, shape, stride, size, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 whole_line ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
  cache.keep(request, *map);
  return cudaSuccess;
}
/// Extents and strides in bytes for a map. A map cannot have an extent of 0, so that of an empty tensor, which is never
/// read, says 1. Strides must be multiples of 16 bytes, and where a dimension has one entry, whose stride may be
/// anything, the map says 16.
inline cuuint64_t map_extent(std::int64_t n) { return static_cast<cuuint64_t>(std::max<std::int64_t>(n, 1)); }
template <class Element>
cuuint64_t map_stride(std::int64_t n, std::int64_t stride) {
  return static_cast<cuuint64_t>(n > 1 ? stride * std::int64_t{sizeof(Element)} : 16);
}

/// The map of `x`. Its coordinates are (column, head, row, batch). An empty tensor may have no address, and then its
/// map has the address never_null, which must not be null.
template <class Element>
cudaError_t make_tensor_map(CUtensorMap* map, const View& x, const TensorBox& box, void* never_null) {
  const auto size = [](int n) { return static_cast<cuuint32_t>(n); };
  return encode_tensor_map<Element, 4>(
      map, x.data != nullptr ? x.data : never_null,
      {map_extent(box.d), map_extent(box.heads), map_extent(box.rows), map_extent(box.batch)},
      {map_stride<Element>(box.heads, x.stride[2]), map_stride<Element>(box.rows, x.stride[1]),
       map_stride<Element>(box.batch, x.stride[0])},
      {size(box.box_columns), size(box.box_heads), size(box.box_rows), 1});
}
/// The same for boxes whose rows have several lines of 128 bytes. In shared memory the first lines of all rows come
/// first, then the second lines. d must be a multiple of a line. The coordinates are (0, row, line, head, batch).
template <class Element>
cudaError_t make_lines_map(CUtensorMap* map, const View& x, const TensorBox& box) {
  constexpr int kLine = 128 / sizeof(Element);
  const auto size = [](int n) { return static_cast<cuuint32_t>(n); };
  return encode_tensor_map<Element, 5>(
      map, x.data,
      {kLine, map_extent(box.rows), map_extent(box.d / kLine), map_extent(box.heads), map_extent(box.batch)},
      {map_stride<Element>(box.rows, x.stride[1]), 128, map_stride<Element>(box.heads, x.stride[2]),
       map_stride<Element>(box.batch, x.stride[0])},
      {kLine, size(box.box_rows), size(box.box_columns / kLine), size(box.box_heads), 1});
}

}  // namespace falchion::sm90
