// src/sm80/attention_forward/f32/load.cuh: the loads of the f32 kernel. Q is loaded once; K and V are loaded in chunks
// of equal size through a ring in shared memory. All loads are cp.async of 16 bytes, or of 4 bytes where rows are not
// 16-byte aligned.
#pragma once

#include <cute/tensor.hpp>

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/copy.cuh"
#include "policy/cache.hpp"

namespace falchion::sm80 {

using namespace gpu;

using namespace cute;

/// Starts to copy kFloats floats to shared memory. From number `left` on it writes 0 without reading.
template <int kFloats>
FALCHION_DEVICE void copy_floats_async(const float* from, float* to, int left) {
  const unsigned address = cast_smem_ptr_to_uint(to);
  const int bytes = 4 * min(max(left, 0), kFloats);
  if constexpr (kFloats == 4) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
  }
}

/// Starts to load a block (kRows, kColumns), with 0 in the rows that are not there (gpu/blocks/copy.cuh) and in the
/// columns from `columns` on. at(row) is where a row begins in global memory, and to(row, column) is where an element
/// goes in shared memory.
template <int kRows, int kColumns, int kThreads, class ExistingRows, class At, class To>
FALCHION_DEVICE void load_block(bool aligned, ExistingRows rows, int columns, At at, To to) {
  constexpr int kThreadsARow = kColumns / 4;
  constexpr int kPass = kThreads / kThreadsARow;
  static_assert(kThreads % kThreadsARow == 0 && kRows % kPass == 0);
  const int column = static_cast<int>(threadIdx.x) % kThreadsARow * 4;
  CUTE_UNROLL
  for (int m = 0; m < kRows / kPass; ++m) {
    const int row = static_cast<int>(threadIdx.x) / kThreadsARow + m * kPass;
    const float* begin = at(row);
    const int left = is_row(rows, row, begin) ? columns - column : 0;
    const float* from = begin + column;
    if (aligned) {
      copy_floats_async<4>(from, to(row, column), left);
    } else {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) copy_floats_async<1>(from + i, to(row, column) + i, left - i);
    }
  }
}

/// Delivers the chunks of K and V in the order of their use: K of a tile, then its V, then those of the tile before.
template <class Config>
class Ring {
 public:
  FALCHION_DEVICE Ring(const AttentionArgs& a, const AttentionTile& t, float* shared)
      : a(a),
        t(t),
        shared(shared),
        n(t.end - 1),
        depths((static_cast<int>(a.d_qk) + Config::kDepth - 1) / Config::kDepth) {
    const std::int64_t batch = Config::kPages ? 0 : t.k.batch, begin = Config::kPages ? 0 : t.k.begin;
    k = static_cast<const float*>(a.k.data) + batch * a.k.stride[0] + begin * a.k.stride[1] + t.h_kv * a.k.stride[2];
    v = static_cast<const float*>(a.v.data) + batch * a.v.stride[0] + begin * a.v.stride[1] + t.h_kv * a.v.stride[2];
    if constexpr (Config::kPages) pages = KeyRows::of(a.pages, t.b, t.k.batch, t.k.begin);
  }
  FALCHION_DEVICE void load_q(float* sQ) const {
    const View& x = a.q;
    const float* q = static_cast<const float*>(x.data) + t.q.batch * x.stride[0] + t.q.begin * x.stride[1];
    load_block<Config::kRows, Config::kD, Config::kThreads>(
        a.aligned, t.rows - t.row0, static_cast<int>(a.d_qk),
        [&](int row) { return q + t.query(t.row0 + row) * x.stride[1] + t.head(t.row0 + row) * x.stride[2]; },
        [&](int row, int column) { return sQ + row * Config::kStrideQ + column; });
  }
  /// Starts to load the next chunk into the stage that is free. After the last chunk it commits an empty group, so that
  /// next() always has a group to wait for.
  FALCHION_DEVICE void load() {
    if (n >= t.begin) {
      float* to = shared + filled * Config::kChunk;
      step < depths ? load_k(to, step * Config::kDepth) : load_v(to, (step - depths) * Config::kSlice);
      filled = filled + 1 == Config::kStages ? 0 : filled + 1;
      if (++step == depths + Config::kSlices) {
        step = 0;
        --n;
      }
    }
    cp_async_fence();
  }
  /// Waits for the next chunk and returns it.
  FALCHION_DEVICE const float* next() {
    cp_async_wait<Config::kStages - 2>();
    __syncthreads();  // all threads have the chunk, and none still reads the one before
    load();
    const float* chunk = shared + used * Config::kChunk;
    used = used + 1 == Config::kStages ? 0 : used + 1;
    return chunk;
  }
  FALCHION_DEVICE int k_chunks() const { return depths; }
  /// S (rows, keys) = -inf at keys of tile n that lie in pages that are not there.
  template <class S, class Coordinates>
  FALCHION_DEVICE void hide_holes(int n, S& s, const Coordinates& at) const {
    CUTE_UNROLL
    for (int c = 0; c < size<1>(s); ++c) {
      const int key = n * Config::kKeys + static_cast<int>(get<1>(at(0, c)));
      if (key >= t.k.length || pages.at(key).exists()) continue;
      CUTE_UNROLL
      for (int r = 0; r < size<0>(s); ++r) s(r, c) = -FALCHION_INF;
    }
  }

 private:
  FALCHION_DEVICE void load_k(float* to, int column0) const {
    const int key0 = n * Config::kKeys;
    load_block<Config::kKeys, Config::kDepth, Config::kThreads>(
        a.aligned, keys_from(key0), static_cast<int>(a.d_qk) - column0,
        [&](int row) { return row_of(k, a.k, key0 + row, column0); },
        [&](int row, int column) { return to + Config::at_k(row, column); });
  }
  FALCHION_DEVICE void load_v(float* to, int slice0) const {
    const int key0 = n * Config::kKeys + slice0;
    load_block<Config::kSlice, Config::kD, Config::kThreads>(
        a.aligned, keys_from(key0), static_cast<int>(a.d_v), [&](int row) { return row_of(v, a.v, key0 + row, 0); },
        [&](int row, int column) { return to + row * Config::kD + column; });
  }

  /// Which rows of a block of keys there are.
  FALCHION_DEVICE auto keys_from(int key0) const {
    if constexpr (Config::kPages) {
      return RowsWithAddress{};
    } else {
      return t.k.length - key0;
    }
  }
  /// Column `column` of a key's row, or null where it lies in a page that is not there.
  FALCHION_DEVICE const float* row_of(const float* base, const View& x, int key, int column) const {
    if constexpr (!Config::kPages) return base + key * x.stride[1] + column;
    const KeyPlace place = key < t.k.length ? pages.at(key) : KeyPlace{-1, 0};
    return place.exists() ? base + place.batch * x.stride[0] + place.row * x.stride[1] + column : nullptr;
  }

  const AttentionArgs& a;
  const AttentionTile& t;
  KeyRows pages;  // kPages
  float* shared;
  const float *k, *v;
  int n, step = 0;           // the tile of keys, and the chunk of it, that are loaded next
  int filled = 0, used = 0;  // the stages that are filled and used next
  int depths;                // number of chunks of a K tile that hold data
};

}  // namespace falchion::sm80
