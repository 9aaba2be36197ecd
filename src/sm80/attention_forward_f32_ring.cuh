// src/sm80/attention_forward_f32_ring.cuh: loads of the f32 kernel: Q once, K and V in chunks of equal size through a
// ring in shared memory. All by cp.async, 4 bytes at a time where rows are not 16-byte aligned.
#pragma once

#include <cute/tensor.hpp>

#include "blocks/sm80_copy.cuh"
#include "sm80/attention_tile.cuh"

namespace falchion::sm80 {

using namespace cute;

/// 4 bytes to shared memory in the background; 0 and nothing read where not inside.
__device__ __forceinline__ void copy_float_async(const float* from, float* to, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(cast_smem_ptr_to_uint(to)), "l"(from), "r"(inside ? 4 : 0)
               : "memory");
}

/// A block (kRows, kColumns) by kThreads threads, 16 bytes each; a thread has every kPass-th row.
template <int kRows_, int kColumns, int kThreads>
struct Block {
  static constexpr int kRows = kRows_, kThreadsARow = kColumns / 4, kPass = kThreads / kThreadsARow;
  static_assert(kThreads % kThreadsARow == 0 && kRows % kPass == 0);
  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / kThreadsARow; }
  static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x) % kThreadsARow * 4; }
};

/// Loads a block, 0 from `rows` and `columns` on. at(row): where this thread's part of a row begins, asked once for
/// each of its rows, in order; to(row, column): where it goes. kWhole: rows are 16-byte aligned, columns a multiple
/// of 4.
template <class Block, bool kWhole, class At, class To>
__device__ __forceinline__ void load_block(int rows, int columns, At at, To to) {
  const int column = Block::column();
  CUTE_UNROLL
  for (int m = 0; m < Block::kRows / Block::kPass; ++m) {
    const int row = Block::row() + m * Block::kPass;
    const float* from = at(row);
    if constexpr (kWhole) {
      copy_async(from, to(row, column), row < rows && column < columns);
    } else {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) copy_float_async(from + i, to(row, column) + i, row < rows && column + i < columns);
    }
  }
}

/// The chunks of K and V in the order of their use: a tile's K, its V, then the tile before it.
template <class Config>
class Ring {
 public:
  __device__ __forceinline__ Ring(const AttentionArgs& a, const AttentionTile& t, float* shared)
      : a(a),
        t(t),
        shared(shared),
        n(t.end - 1),
        depths((static_cast<int>(a.d_qk) + Config::kDepth - 1) / Config::kDepth),
        whole(a.aligned && a.d_qk % 4 == 0 && a.d_v % 4 == 0) {
    k = static_cast<const float*>(a.k.data) + t.k.batch * a.k.stride[0] + t.k.begin * a.k.stride[1] +
        t.h_kv * a.k.stride[2];
    v = static_cast<const float*>(a.v.data) + t.k.batch * a.v.stride[0] + t.k.begin * a.v.stride[1] +
        t.h_kv * a.v.stride[2];
  }
  __device__ __forceinline__ void load_q(float* sQ) const {
    using BlockQ = Block<Config::kRows, Config::kD, Config::kThreads>;
    const View& x = a.q;
    const float* q =
        static_cast<const float*>(x.data) + t.q.batch * x.stride[0] + t.q.begin * x.stride[1] + BlockQ::column();
    load<BlockQ>(
        t.rows - t.row0, a.d_qk,
        [&](int row) { return q + t.query(t.row0 + row) * x.stride[1] + t.head(t.row0 + row) * x.stride[2]; },
        [&](int row, int column) { return sQ + row * Config::kStrideQ + column; });
  }
  /// Starts the next load, into the chunk that nobody reads any more. Past the last one: an empty group to wait for.
  __device__ __forceinline__ void load() {
    if (n >= t.begin) {
      float* to = shared + filled * Config::kChunk;
      step < depths ? load_k(to, step * Config::kDepth) : load_v(to, (step - depths) * Config::kSlice);
      filled = filled + 1 == Config::kStages ? 0 : filled + 1;
      if (++step == depths + Config::kSlices) step = 0, --n;
    }
    cp_async_fence();
  }
  /// The next chunk, once it has come.
  __device__ __forceinline__ const float* next() {
    cp_async_wait<Config::kStages - 2>();
    __syncthreads();  // the chunk has come for all, and nobody reads the one before
    load();
    const float* chunk = shared + used * Config::kChunk;
    used = used + 1 == Config::kStages ? 0 : used + 1;
    return chunk;
  }
  __device__ __forceinline__ int k_chunks() const { return depths; }

 private:
  template <class Block, class At, class To>
  __device__ __forceinline__ void load(int rows, std::int64_t columns, At at, To to) const {
    if (whole) {
      load_block<Block, true>(rows, static_cast<int>(columns), at, to);
    } else {
      load_block<Block, false>(rows, static_cast<int>(columns), at, to);
    }
  }
  /// x: the sequence; row0: the first row of the block.
  template <class Block, class To>
  __device__ __forceinline__ void load(const float* x, std::int64_t stride, int row0, std::int64_t columns,
                                       To to) const {
    const float* from = x + (row0 + Block::row()) * stride + Block::column();
    const std::int64_t pass = Block::kPass * stride;
    const auto at = [&](int) {
      const float* row = from;
      from += pass;
      return row;
    };
    load<Block>(t.k.length - row0, columns, at, to);
  }
  __device__ __forceinline__ void load_k(float* to, int column0) const {
    load<Block<Config::kKeys, Config::kDepth, Config::kThreads>>(
        k + column0, a.k.stride[1], n * Config::kKeys, a.d_qk - column0,
        [&](int row, int column) { return to + Config::at_k(row, column); });
  }
  __device__ __forceinline__ void load_v(float* to, int slice0) const {
    load<Block<Config::kSlice, Config::kD, Config::kThreads>>(
        v, a.v.stride[1], n * Config::kKeys + slice0, a.d_v,
        [&](int row, int column) { return to + row * Config::kD + column; });
  }

  const AttentionArgs& a;
  const AttentionTile& t;
  float* shared;
  const float *k, *v;
  int n, step = 0;           // what is loaded next
  int filled = 0, used = 0;  // stages
  int depths;                // chunks of K that hold data
  bool whole;                // 16 bytes at a time
};

}  // namespace falchion::sm80
