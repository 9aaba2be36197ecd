// src/sm90/attention_forward/decode/load.cuh: the producers. They gather rows of K and V with cp.async, 16 bytes a
// thread, so that a key may lie anywhere. TMA boxes were 7 % slower at 500 MB, bulk copies of a row each 4 times slower
// at 4 MB (H200).
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"
#include "gpu/blocks/async.cuh"
#include "gpu/blocks/lane_blocks.hpp"
#include "gpu/blocks/sm90_messages.cuh"
#include "policy/cache.hpp"
#include "sm90/attention_forward/decode/cached_tile.cuh"
#include "sm90/attention_forward/decode/new_keys.cuh"
#include "sm90/attention_forward/decode/parts.cuh"
#include "sm90/attention_forward/decode/scales.cuh"
#include "sm90/attention_forward/decode/walk.cuh"

namespace falchion::sm90 {

/// A thread's chunk of 16 bytes of the rows of k or v.
template <class Cached>
class DecodeSource {
 public:
  static constexpr int kWidth = 16 / sizeof(Cached);  // elements of a chunk
  FALCHION_DEVICE DecodeSource(const View& x, std::int64_t d, int chunk)
      : x(x), first(static_cast<const Cached*>(x.data) + chunk * kWidth), bytes(chunk * kWidth < d ? 16 : 0) {
    asm volatile("" : "+l"(first), "+r"(bytes));  // made here, before the kernel waits for earlier ones
  }
  FALCHION_DEVICE const Cached* of_head(int head) const { return first + head * x.stride[2]; }
  /// Where a key is, counted from where the first one is.
  FALCHION_DEVICE std::int64_t offset(const KeyPlace& place) const {
    return place.batch * x.stride[0] + place.row * x.stride[1];
  }
  /// Copies a chunk, or makes it 0. Chunks past the head dim become 0.
  FALCHION_DEVICE void copy(const Cached* from, std::uint32_t to, bool exists) const {
    copy_chunk_async(from, to, exists ? bytes : 0);
  }

 private:
  const View& x;
  const Cached* first;
  int bytes;
};

/// Writes 16 bytes to shared memory.
FALCHION_DEVICE void store_chunk(std::uint32_t to, const uint4& x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

/// Asks the L2 for a line of memory.
FALCHION_DEVICE void fetch(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

/// Arrives at a barrier when all copies that this thread has started have come.
FALCHION_DEVICE void arrive_with_copies(const SplitBarrier& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(cute::cast_smem_ptr_to_uint(&barrier))
               : "memory");
}

template <class Config>
class DecodeProducer {
 public:
  using Element = typename Config::Element;
  using Cached = typename Config::Cached;
  using Tile = CachedTile<Config>;

  FALCHION_DEVICE DecodeProducer(const AttentionArgs& a, typename Config::Shared& shared)
      : a(a),
        shared(shared),
        thread(static_cast<int>(threadIdx.x) % Config::kProducers),
        k(a.k, a.d_qk, thread % kChunks),
        v(a.v, a.d_v, thread % kChunks),
        k_scaled(Config::kScaled && has_scale_of_key<Config>(a.k_scale)),
        v_scaled(Config::kScaled && has_scale_of_key<Config>(a.v_scale)) {}

  FALCHION_DEVICE void run(DecodeWalk<Config> walk) {
    for (;; walk.go_back()) {
      load_segment(walk);
      if (walk.is_first()) break;
    }
    if (thread < 32) wait_for_places(walk);
    asm volatile("cp.async.wait_all;" ::: "memory");
  }

 private:
  static constexpr int kChunks = Config::kChunks;  // threads that copy a row
  static constexpr int kWarps = Config::kProducers / 32;
  static constexpr int kAtOnce = Config::kProducers / kChunks;  // rows that all threads copy at a time
  static constexpr int kPasses = Config::kKeys / kAtOnce;
  static constexpr int kOfWarp = Config::kKeys / kWarps;  // rows of a tile that a warp copies

  /// Where the chunk of pass i is, if that of the first one is at `to`.
  static FALCHION_DEVICE std::uint32_t place_of_pass(std::uint32_t to, int i) {
    return kAtOnce % 8 == 0 ? to + i * kAtOnce * Tile::kLine : (to ^ (i % 2 * 64)) + i * kAtOnce * Tile::kLine;
  }
  /// Loads the tiles of a segment. begin(t): called before tile t. copy(i, key, to, skips): copies this thread's chunk
  /// of row `key` of K, the i-th of the tile, to `to`, and that of V a tile further. skips: unless the key is new. Only
  /// tiles that may have new keys ask that, because the question costs 5 % of the time where keys lie in pages.
  template <class Begin, class Copy>
  FALCHION_DEVICE void load_tiles(const DecodeWalk<Config>& walk, const Begin& begin, const Copy& copy) {
    const int line0 = thread / kChunks, end = walk.end_tile();
    const std::uint32_t place = Tile::place(line0, thread % kChunks);
    for (int t = walk.begin_tile(); t < end; ++t, ++loaded) {
      const int stage = loaded % Config::kStages, round = loaded / Config::kStages;
      begin(t);
      if (round > 0) shared.empty[stage].wait((round - 1) % 2);
      const std::uint32_t to = cute::cast_smem_ptr_to_uint(shared.k_v[stage][0]) + place;
      const auto copy_tile = [&](auto skips) {
        CUTE_UNROLL
        for (int i = 0; i < kPasses; ++i) copy(i, t * Config::kKeys + line0 + i * kAtOnce, place_of_pass(to, i), skips);
      };
      if constexpr (Config::kScaled) {
        if (k_scaled || v_scaled) copy_scales(stage, (t - walk.begin_tile()) % 2);
      }
      if (fresh.has((t + 1) * Config::kKeys - 1)) {
        copy_tile(std::true_type());
        append(walk, t, to);
        __threadfence_block();  // the new keys are there before the copies are
      } else {
        copy_tile(std::false_type());
      }
      arrive_with_copies(shared.full[stage]);
    }
  }
  /// Copies this thread's chunk of a key. skips: not of a new one. to: of K; V is a tile further.
  FALCHION_DEVICE void take(int key, bool exists, const Cached* from_k, const Cached* from_v, std::uint32_t to,
                            bool skips) const {
    if (skips && fresh.has(key)) return;
    k.copy(from_k, to, exists);
    v.copy(from_v, to + Config::kTileBytes, exists);
  }
  /// The line in a tile of row i of those that this warp copies.
  FALCHION_DEVICE int line_of(int i) const {
    constexpr int kPass = kAtOnce / kWarps;  // rows of a pass
    return i / kPass * kAtOnce + thread / 32 * kPass + i % kPass;
  }
  /// Where the scales of this lane's key are. Of two tiles, whose keys of this warp the lanes share, each has one. That
  /// of a key that is not there becomes 0.
  FALCHION_DEVICE void find_scales(const KeyPlace& place, int head) {
    has_scale = place.exists();
    const KeyPlace there = has_scale ? place : KeyPlace{0, 0};
    if (k_scaled) scale_k = scale_at(a.k_scale, there, head);
    if (v_scaled) scale_v = scale_at(a.v_scale, there, head);
  }
  /// Copies those of tile `half` of the two.
  FALCHION_DEVICE void copy_scales(int stage, int half) const {
    const int lane = thread % 32;
    if (lane / kOfWarp != half) return;
    const int line = line_of(lane % kOfWarp);
    const std::uint32_t to = cute::cast_smem_ptr_to_uint(&shared.scales.of[stage][0][line]);
    if (k_scaled) copy_word_async(scale_k, to, has_scale ? 4 : 0);
    if (v_scaled) copy_word_async(scale_v, to + Config::kKeys * 4, has_scale ? 4 : 0);
  }
  /// Writes this thread's chunks of the new keys of tile t to the stage, and to the cache. Past the sequence they are
  /// 0.
  FALCHION_DEVICE void append(const DecodeWalk<Config>& walk, int t, std::uint32_t to) const {
    const Rows rows = rows_of_q(a, walk.b);
#pragma unroll 1
    for (int i = 0; i < kPasses; ++i) {
      const int key = t * Config::kKeys + thread / kChunks + i * kAtOnce;
      if (!fresh.has(key)) continue;
      const std::uint32_t at = place_of_pass(to, i);
      const KeyPlace place = key < walk.sequence.k_length ? keys.at(key) : KeyPlace{-1, 0};
      const std::int64_t row = rows.begin + key - fresh.first;
      append_chunk(walk, place, a.k_new, a.k, a.k_scale, a.d_qk, rows.batch, row, at, key);
      append_chunk(walk, place, a.v_new, a.v, a.v_scale, a.d_v, rows.batch, row, at + Config::kTileBytes, -1);
    }
  }
  /// Writes one of them. position: where the row stands in its sequence, or -1 where it does not turn.
  FALCHION_DEVICE void append_chunk(const DecodeWalk<Config>& walk, const KeyPlace& place, const View& from,
                                    const View& cache, const View& scale_of, std::int64_t d, std::int64_t batch,
                                    std::int64_t row, std::uint32_t to, int position) const {
    const int column = thread % kChunks * DecodeSource<Cached>::kWidth;
    uint4 chunk = {};
    if (column < d && place.exists()) {
      const auto* const x = static_cast<const Element*>(from.data) + batch * from.stride[0] + row * from.stride[1] +
                            walk.head_k * from.stride[2];
      if constexpr (Config::kScaled) {
        const float scale = scale_of.data == nullptr ? 1.f : *scale_at(scale_of, place, walk.head_k);
        chunk = cached_chunk<Cached>(x, column, a.rotation, position, scale);
      } else {
        chunk = *reinterpret_cast<const uint4*>(x + column);
        if (position >= 0 && column < a.rotation.dim) {
          chunk = {rotated_pair(x, column, a.rotation, position), rotated_pair(x, column + 2, a.rotation, position),
                   rotated_pair(x, column + 4, a.rotation, position),
                   rotated_pair(x, column + 6, a.rotation, position)};
        }
      }
      // Every row tile of the sequence has the keys, but one of them is enough.
      auto* const slot = static_cast<Cached*>(cache.data) + place.batch * cache.stride[0] +
                         place.row * cache.stride[1] + walk.head_k * cache.stride[2];
      if (walk.row0 == 0) *reinterpret_cast<uint4*>(slot + column) = chunk;
    }
    store_chunk(to, chunk);
  }
  /// Asks the L2 for the new keys of the segment, and for their rows of the rotary table: they come from DRAM, and
  /// behind the copies of the tiles they would come late.
  FALCHION_DEVICE void fetch_new_keys(const DecodeWalk<Config>& walk) const {
    constexpr int kLines = 8, kLine = 128 / sizeof(Element);  // threads a row; elements of a line
    const int key = max(fresh.first, walk.begin_tile() * Config::kKeys) + thread / kLines;
    if (key >= min(walk.sequence.k_length, walk.end_tile() * Config::kKeys)) return;
    const Rows rows = rows_of_q(a, walk.b);
    const auto fetch_row = [&](const View& x, std::int64_t d) {
      const auto* const row = static_cast<const Element*>(x.data) + rows.batch * x.stride[0] +
                              (rows.begin + key - fresh.first) * x.stride[1] + walk.head_k * x.stride[2];
      for (int i = thread % kLines * kLine; i < d; i += kLines * kLine) fetch(row + i);
    };
    fetch_row(a.k_new, a.d_qk);
    fetch_row(a.v_new, a.d_v);
    for (std::int64_t i = thread % kLines * 32; i < a.rotation.dim / 2; i += kLines * 32) {
      fetch(a.rotation.cosine(key, i));
      fetch(a.rotation.cosine(key, i) + a.rotation.stride_sine);
    }
  }
  FALCHION_DEVICE void load_segment(const DecodeWalk<Config>& walk) {
    fresh = DecodeNewKeys::of<Config>(a, walk);
    if (a.append) fetch_new_keys(walk);
    keys = Config::kPages ? KeyRows::of(a.pages, walk.b, 0, walk.sequence.k_begin)
                          : KeyRows{has_packed_keys(a) ? 0 : walk.b, walk.sequence.k_begin};
    if constexpr (Config::kPages) {
      load_pages(walk);
    } else {
      load_rows(walk);
    }
  }
  FALCHION_DEVICE void load_rows(const DecodeWalk<Config>& walk) {
    const KeyPlace first = keys.at(walk.begin_tile() * Config::kKeys + thread / kChunks);
    const std::int64_t step_k = kAtOnce * a.k.stride[1], step_v = kAtOnce * a.v.stride[1];
    const Cached *from_k = k.of_head(walk.head_k) + k.offset(first), *from_v = v.of_head(walk.head_k) + v.offset(first);
    const int begin = walk.begin_tile(), lane = thread % 32;
    const int line = lane / kOfWarp * Config::kKeys + line_of(lane % kOfWarp);
    load_tiles(
        walk,
        [&](int t) {
          if constexpr (Config::kScaled) {
            const int key = t * Config::kKeys + line;
            if ((k_scaled || v_scaled) && (t - begin) % 2 == 0)
              find_scales(key < walk.sequence.k_length ? keys.at(key) : KeyPlace{-1, 0}, walk.head_k);
          }
        },
        [&](int, int key, std::uint32_t to, bool skips) {
          take(key, key < walk.sequence.k_length, from_k, from_v, to, skips);
          from_k += step_k;
          from_v += step_v;
        });
  }
  /// A warp copies kOfWarp rows of each tile. Each lane looks one of them up and tells it to the lanes that copy the
  /// row, and as a warp has twice as many lanes, it looks up those of two tiles, two tiles ahead. Nothing may be
  /// computed from what a look finds before it is needed: the warp would wait there. A key in a page that is not there
  /// becomes 0.
  FALCHION_DEVICE void load_pages(const DecodeWalk<Config>& walk) {
    constexpr int kPass = kAtOnce / kWarps;  // rows of a pass
    static_assert(2 * kOfWarp <= 32);
    const Cached *of_k = k.of_head(walk.head_k), *of_v = v.of_head(walk.head_k);
    asm volatile("" : "+l"(of_k), "+l"(of_v));  // else each copy multiplies head and stride again
    const int lane = thread % 32, begin = walk.begin_tile();
    const int line = lane / kOfWarp * Config::kKeys + line_of(lane % kOfWarp);
    const auto look_up = [&](int t) {  // in the tiles t and t + 1
      const int key = t * Config::kKeys + line;
      return lane < 2 * kOfWarp && key < walk.sequence.k_length ? keys.look(key) : KeyRows::Look{-1, 0};
    };
    KeyRows::Look next = look_up(begin);
    std::int64_t in_k = 0, in_v = 0;
    bool exists = false;
    int first_lane = 0;  // of the tile's rows
    load_tiles(
        walk,
        [&](int t) {
          first_lane = (t - begin) % 2 * kOfWarp;
          if (first_lane != 0) return;
          const KeyPlace place = keys.found(next);
          exists = place.exists();
          in_k = k.offset(place);
          in_v = v.offset(place);
          if constexpr (Config::kScaled) find_scales(place, walk.head_k);
          next = look_up(t + 2);
        },
        [&](int i, int key, std::uint32_t to, bool skips) {
          const int from = first_lane + i * kPass + lane / kChunks;
          const std::int64_t row_k = __shfl_sync(~0u, in_k, from), row_v = __shfl_sync(~0u, in_v, from);
          const bool copies = __shfl_sync(~0u, exists, from);
          take(key, copies, of_k + (copies ? row_k : 0), of_v + (copies ? row_v : 0), to, skips);
        });
  }

  /// Waits until the CTAs that this one hears have emptied their places, or with split_keys have written the parts, and
  /// lets the consumers know.
  FALCHION_DEVICE void wait_for_places(const DecodeWalk<Config>& walk) {
    if constexpr (Config::kParts) return wait_for_parts(walk);
    const DecodeHeard heard = walk.heard();
    if (heard.count == 0) return;
    for (std::uint32_t i = threadIdx.x % 32; i < heard.count; i += 32)
      take_number(walk.grid.numbers + walk.cta(heard.group(i)), walk.grid.number);
    shared.emptied.arrive();
  }
  FALCHION_DEVICE void wait_for_parts(const DecodeWalk<Config>& walk) {
    const int begin = walk.parts().begin_part();
    if (walk.tells_parts() || walk.part == begin) return;
    const DecodePlaces<Config> places(walk);
    for (int part = begin + static_cast<int>(threadIdx.x % 32); part < walk.part; part += 32)
      take_number(places.number(part), walk.grid.number);
    shared.emptied.arrive();
  }

  const AttentionArgs& a;
  typename Config::Shared& shared;
  const int thread;
  const DecodeSource<Cached> k, v;
  const bool k_scaled, v_scaled;  // keys have scales of their own
  int loaded = 0;                 // tiles
  KeyRows keys;                   // of the segment
  const float *scale_k = nullptr, *scale_v = nullptr;
  bool has_scale = false;
  DecodeNewKeys fresh;
};

}  // namespace falchion::sm90
