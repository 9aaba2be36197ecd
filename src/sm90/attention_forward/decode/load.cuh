// src/sm90/attention_forward/decode/load.cuh: the producers. They gather rows of K and V with cp.async, 16 bytes a
// thread, so that a key may lie anywhere. TMA boxes were 7 % slower at 500 MB, bulk copies of a row each 4 times slower
// at 4 MB (H200).
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/async.cuh"
#include "gpu/blocks/lane_blocks.hpp"
#include "sm90/attention_forward/decode/walk.cuh"

namespace falchion::sm90 {

/// The place of a key: row `row` of entry `batch` of k and v.
struct KeyPlace {
  int batch, row;
};
/// Where the keys of a sequence lie.
struct KeyRows {
  int batch, begin;
  FALCHION_DEVICE KeyPlace at(int key) const { return {batch, begin + key}; }
};

/// A thread's chunk of 16 bytes of the rows of k or v.
template <class Element>
class DecodeSource {
 public:
  FALCHION_DEVICE DecodeSource(const View& x, std::int64_t d, int chunk)
      : x(x), first(static_cast<const Element*>(x.data) + chunk * 8), bytes(chunk * 8 < d ? 16 : 0) {
    asm volatile("" : "+l"(first), "+r"(bytes));  // made here, before the kernel waits for earlier ones
  }
  FALCHION_DEVICE const Element* at(const KeyPlace& place, int head) const {
    return first + place.batch * x.stride[0] + place.row * x.stride[1] + head * x.stride[2];
  }
  /// Copies a chunk, or makes it 0. Chunks past the head dim become 0.
  FALCHION_DEVICE void copy(const Element* from, std::uint32_t to, bool exists) const {
    copy_chunk_async(from, to, exists ? bytes : 0);
  }

 private:
  const View& x;
  const Element* first;
  int bytes;
};

/// Arrives at a barrier when all copies that this thread has started have come.
FALCHION_DEVICE void arrive_with_copies(const SplitBarrier& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(cute::cast_smem_ptr_to_uint(&barrier))
               : "memory");
}

template <class Config>
class DecodeProducer {
 public:
  using Element = typename Config::Element;

  FALCHION_DEVICE DecodeProducer(const AttentionArgs& a, typename Config::Shared& shared)
      : a(a),
        shared(shared),
        thread(static_cast<int>(threadIdx.x) % Config::kProducers),
        k(a.k, a.d_qk, thread % kChunks),
        v(a.v, a.d_v, thread % kChunks) {}

  FALCHION_DEVICE void run(DecodeWalk<Config> walk) {
    for (;; walk.go_back()) {
      load_segment(walk);
      if (walk.is_first()) break;
    }
    if (thread < 32) wait_for_places(walk);
    asm volatile("cp.async.wait_all;" ::: "memory");
  }

 private:
  static constexpr int kChunks = Config::kD / 8;                          // threads that copy a row
  static constexpr int kAtOnce = Config::kProducers / kChunks;            // rows that all threads copy at a time
  static constexpr std::uint32_t kTile = Config::kKeys * Config::kD * 2;  // bytes

  FALCHION_DEVICE void load_segment(const DecodeWalk<Config>& walk) {
    const KeyRows rows{a.packed ? 0 : walk.b, walk.sequence.k_begin};
    const int line0 = thread / kChunks, end = walk.end_tile();
    const std::uint32_t place = 2 * swizzled<Config::kKeys>(line0, thread % kChunks * 8);
    const std::int64_t step_k = kAtOnce * a.k.stride[1], step_v = kAtOnce * a.v.stride[1];
    int key = walk.begin_tile() * Config::kKeys + line0;
    const KeyPlace first = rows.at(key);
    const Element *from_k = k.at(first, walk.head_k), *from_v = v.at(first, walk.head_k);
    for (int t = walk.begin_tile(); t < end; ++t, ++loaded) {
      const int stage = loaded % Config::kStages, round = loaded / Config::kStages;
      if (round > 0) shared.empty[stage].wait((round - 1) % 2);
      const std::uint32_t to = cute::cast_smem_ptr_to_uint(shared.k_v[stage][0]) + place;
      CUTE_UNROLL
      for (int i = 0; i < Config::kKeys / kAtOnce; ++i) {
        const bool exists = key < walk.sequence.k_length;
        const std::uint32_t at = kAtOnce % 8 == 0 ? to + i * kAtOnce * 128 : (to ^ (i % 2 * 64)) + i * kAtOnce * 128;
        k.copy(from_k, at, exists);
        v.copy(from_v, at + kTile, exists);
        key += kAtOnce;
        from_k += step_k;
        from_v += step_v;
      }
      arrive_with_copies(shared.full[stage]);
    }
  }

  /// Waits until the CTAs that this one hears have emptied their places, and lets the consumers know. It sets their
  /// numbers to 0, because a CUDA graph that runs again has the same number, and would believe that the places are
  /// empty already.
  FALCHION_DEVICE void wait_for_places(const DecodeWalk<Config>& walk) {
    const DecodeHeard heard = walk.heard();
    if (heard.count == 0) return;
    for (std::uint32_t i = threadIdx.x % 32; i < heard.count; i += 32) {
      std::uint64_t* const number = walk.grid.numbers + walk.cta(heard.group(i));
      std::uint64_t there = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(there) : "l"(number) : "memory");
      } while (there != walk.grid.number);
      *number = 0;
    }
    shared.emptied.arrive();
  }

  const AttentionArgs& a;
  typename Config::Shared& shared;
  const int thread;
  const DecodeSource<Element> k, v;
  int loaded = 0;  // tiles
};

}  // namespace falchion::sm90
