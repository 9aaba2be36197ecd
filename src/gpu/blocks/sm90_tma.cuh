// src/gpu/blocks/sm90_tma.cuh: loads of tiles by the bulk copy engine (TMA), the barriers of the ring of stages that
// the tiles go through, and tensor maps. The rings are described in docs/design/sm90_forward.md ("Who waits for whom")
// and docs/design/linear_attention.md.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <cutlass/arch/barrier.h>

#include <cstdint>
#include <type_traits>

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tensor_map.hpp"

namespace falchion::sm90 {

/// The position of a warp in a ring of stages: the stage, and the parity of this round. The reader of a stage waits for
/// this parity on its barrier `full`. The writer waits for the other parity on `empty`, which returns at once in the
/// first round.
template <int kStages>
struct RingPosition {
  int stage = 0;
  unsigned parity = 0;
  RingPosition() = default;
  FALCHION_DEVICE explicit RingPosition(int turns) : stage(turns % kStages), parity(turns / kStages % 2) {}
  FALCHION_DEVICE void advance() {
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
  FALCHION_DEVICE void wait(unsigned parity) const {
    Base::wait(parity);
    asm volatile("" ::: "memory");
  }
  FALCHION_DEVICE void arrive() const {
    asm volatile("" ::: "memory");
    Base::arrive();
  }
};
using Barrier = Ordered<cutlass::arch::ClusterBarrier>;
using BarrierOfBytes = Ordered<cutlass::arch::ClusterTransactionBarrier>;

/// Named barriers for kThreads threads of a CTA. sync_threads waits until all of them have arrived; arrive_threads
/// arrives without waiting.
template <int kThreads>
FALCHION_DEVICE void sync_threads(int barrier) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
template <int kThreads>
FALCHION_DEVICE void arrive_threads(int barrier) {
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

/// Makes this thread's writes to shared memory visible to TMA and wgmma. Call it before the arrival that signals them.
FALCHION_DEVICE void publish_to_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Issues the load of a tile that starts at (column 0, head, row, batch), in boxes of kBox columns, which lie one after
/// another in shared memory. Elements outside of the tensor become 0. The phase of `full` completes when all bytes have
/// arrived.
template <int kBoxes, int kBox, class Element, int kSize>
FALCHION_DEVICE void load_boxes(const CUtensorMap& map, cutlass::arch::ClusterTransactionBarrier& full,
                                Element (&to)[kSize], std::uint64_t hint, int head, int row, int batch) {
  full.arrive_and_expect_tx(kSize * sizeof(Element));
  CUTE_UNROLL
  for (int i = 0; i < kBoxes; ++i)
    cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), hint, to + i * (kSize / kBoxes),
                                 kBox * i, head, row, batch);
}
// Hints to the L2 how long to keep loaded lines.
inline constexpr auto kReadOnce = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST);
inline constexpr auto kReadAgain = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_LAST);
/// For rows that CTAs running beside this one read too. With kReadOnce such rows came from DRAM twice, and the backward
/// pass of linear attention took 104 us instead of 86.
inline constexpr auto kReadByOthers = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);

/// Writes a map, new or from the cache of this thread.
inline cudaError_t write_kept_map(CUtensorMap* map, const MapRequest& request) {
  thread_local MapCache cache;
  return write_tensor_map(request, find_tensor_map_encoder, &cache, map);
}
template <class Element>
inline constexpr auto kMapType = sizeof(Element) == 1                       ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                 : std::is_same_v<Element, float>           ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                 : std::is_same_v<Element, cutlass::half_t> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                            : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
template <class Element>
cudaError_t make_tensor_map(CUtensorMap* map, const View& x, const TensorBox& box, void* never_null) {
  return write_kept_map(map, tensor_request(kMapType<Element>, x, box, never_null));
}
template <class Element>
cudaError_t make_lines_map(CUtensorMap* map, const View& x, const TensorBox& box) {
  return write_kept_map(map, lines_request(kMapType<Element>, x, box));
}

}  // namespace falchion::sm90
