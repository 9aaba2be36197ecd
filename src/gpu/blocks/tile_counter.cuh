// src/gpu/blocks/tile_counter.cuh: a counter in global memory from which the CTAs of a launch draw their tiles. It need
// not be cleared before a launch. docs/design/sm90_forward.md, "Who gets which tile", describes it.
#pragma once

#include <cuda/atomic>

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion {

/// The counter in the workspace, which may hold anything before a launch.
struct TileCounter {
  std::uint64_t launch;  // gpu/blocks/launch_number.hpp: the launch to which `next` belongs
  std::uint32_t next;
};

/// One CTA's view of the counter, used by one thread. Each CTA must draw until it gets a number that is too large, and
/// then stop.
class TileDraw {
 public:
  /// launch: the number of this launch. draws: how many numbers all CTAs will draw together.
  FALCHION_DEVICE TileDraw(TileCounter* counter, std::uint64_t launch, std::uint32_t draws)
      : counter_(counter), launch_(launch), draws_(draws) {}
  /// Call it before the first draw. CTA 0 sets the counter to 0 and stores the number of the launch. All others wait
  /// for that in draw(), so CTA 0 must get an SM without another CTA of this launch having to end first. It does: a
  /// grid has no more CTAs than fit on the device at once, and all GPUs known to us start CTAs in the order of their
  /// numbers. CUDA promises neither.
  FALCHION_DEVICE void open() const {
    if (blockIdx.x != 0) return;
    next().store(0, cuda::memory_order_relaxed);
    owner().store(launch_, cuda::memory_order_release);
  }
  /// Returns 0, 1, 2, ... in the order of the calls of all CTAs. The CTA that draws the last number clears the
  /// counter's launch number: a CUDA graph that runs again has the same number, and its CTAs would draw before CTA 0
  /// has set the counter to 0.
  FALCHION_DEVICE std::uint32_t draw() {
    while (!ready_) ready_ = owner().load(cuda::memory_order_acquire) == launch_;
    const std::uint32_t drawn = next().fetch_add(1, cuda::memory_order_relaxed);
    if (drawn + 1 == draws_) owner().store(0, cuda::memory_order_relaxed);
    return drawn;
  }

 private:
  template <class T>
  using Atomic = cuda::atomic_ref<T, cuda::thread_scope_device>;
  FALCHION_DEVICE Atomic<std::uint64_t> owner() const { return Atomic<std::uint64_t>(counter_->launch); }
  FALCHION_DEVICE Atomic<std::uint32_t> next() const { return Atomic<std::uint32_t>(counter_->next); }

  TileCounter* counter_;
  std::uint64_t launch_;
  std::uint32_t draws_;
  bool ready_ = false;
};

}  // namespace falchion
