// src/sm90/linear_attention_chunks.cuh: causal linear attention in chunks of 64 tokens, with TMA and wgmma.   What:
// ref/. Here: when. The twin: sm80/linear_attention_chunks.cuh. What was measured: docs/design/linear_attention.md
#pragma once

#include "blocks/sm80_fragments.cuh"
#include "blocks/sm90_tma.cuh"
#include "blocks/sm90_wgmma.cuh"
#include "sm80/linear_attention_launch.cuh"
#include "sm90/linear_attention_config.hpp"

namespace falchion::sm90 {

using gpu::LinearAttentionArgs;
using sm80::LinearSweep, sm80::LinearSweeps;

struct LinearMaps {
  CUtensorMap q, k, v, o;
};
struct AllLinearMaps {
  LinearMaps of[3];
};

/// One CTA's chunks, in the order of the sweep: chunk i is chunk first + i * step of the sequence.
struct ChunkRange {
  int first, step, count;
  __device__ __forceinline__ ChunkRange(const LinearAttentionArgs& a, const LinearSweep& sweep, int segment) {
    const int all = static_cast<int>((a.s + 63) / 64), each = static_cast<int>(a.segment / 64);
    const int at = sweep.reverse ? a.segments - 1 - segment : segment;
    const int begin = min(at * each, all), end = at + 1 == a.segments ? all : min(begin + each, all);
    step = sweep.reverse ? -1 : 1, first = sweep.reverse ? end - 1 : begin, count = end - begin;
  }
  __device__ __forceinline__ int row(int i) const { return (first + i * step) * 64; }
};

/// The producer, one thread.
template <class Config, bool kSums>
__device__ __forceinline__ void load_chunks(const LinearMaps& maps, const LinearSweep& sweep, const ChunkRange& chunks,
                                            const sm80::LinearBlock& block, int column0,
                                            typename Config::Shared& shared) {
  constexpr int kBoxes = Config::kD / 64, kBox = 64 * 64;
  RingPosition<Config::kStages> at;
  for (int i = 0; i < chunks.count; ++i, at.advance()) {
    shared.empty[at.stage].wait(at.parity ^ 1);
    auto& full = shared.full[at.stage];
    full.arrive_and_expect_tx(((kSums ? 1 : 2) * kBoxes + 1) * kBox * sizeof(typename Config::Element));
    const auto load = [&](const CUtensorMap& map, typename Config::Element* to, int column, int head) {
      cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadOnce, to, column, head,
                                   chunks.row(i), block.b);
    };
    CUTE_UNROLL
    for (int box = 0; box < kBoxes; ++box) {
      if (!kSums) load(maps.q, shared.q[at.stage] + box * kBox, 64 * box, block.h / sweep.q.shared);
      load(maps.k, shared.k[at.stage] + box * kBox, 64 * box, block.h / sweep.k.shared);
    }
    load(maps.v, shared.v[at.stage], column0, block.h / sweep.v.shared);
  }
}

/// The warpgroup: 64 columns of v and o.
template <class Config>
class LinearChunks {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;
  static constexpr int kC = Config::kChunk, kE = Config::kD, kM = Config::kColumns;

  __device__ __forceinline__ LinearChunks(const LinearSweep& sweep, const ChunkRange& chunks, int column0,
                                          Shared& shared)
      : sweep(sweep), chunks(chunks), column0(column0), columns(min(sweep.d_v - column0, kM)), shared(shared) {
    clear(rS);
  }

  /// o of all chunks, and the state behind them in rS. All products of a chunk are started at once, with P of the next
  /// one; O, S and P are then rounded as they come. Nothing runs across the end of the loop: ptxas would serialise it.
  __device__ __forceinline__ void run(const CUtensorMap& map, int head, int batch) {
    if (chunks.count == 0) return;
    wait_full(at);
    start_p(at);
    wait_multiply<0>(rP);
    stage_p(0);
    round_state();
    meet();
    CUTE_NO_UNROLL
    for (int i = 0; i < chunks.count; ++i) {
      const int stage = at.stage;
      if (i + 1 < chunks.count) at.advance();
      start_o(stage, i % 2);
      start_state(stage);
      wait_full(at);
      start_p(at);  // of the last chunk twice
      wait_multiply<2>(rO);
      stage_o(i);
      meet();
      store_o(i, map, head, batch);
      wait_multiply<1>(rS);
      round_state();
      wait_multiply<0>(rP);
      release(stage);
      stage_p((i + 1) % 2);
      meet();
    }
    cute::tma_store_wait<0>();
  }
  /// Nothing but the state behind all chunks.
  __device__ __forceinline__ void run_state() {
    CUTE_NO_UNROLL
    for (int i = 0; i < chunks.count; ++i, at.advance()) {
      wait_full(at);
      start_state(at.stage);
      wait_multiply<0>(rS);
      release(at.stage);
    }
  }

  /// This thread's elements of S^T: f(m, e, element), m and e within the whole state.
  template <class F>
  __device__ __forceinline__ void for_each_of_state(F f) {
    auto S = sm80::rows_columns(as_mma_accumulator(rS));
    const auto cS = coordinates<kE>();
    CUTE_UNROLL
    for (int i = 0; i < size(S); ++i) {
      const int m = static_cast<int>(get<0>(cS(i))), e = static_cast<int>(get<1>(cS(i)));
      if (m < columns && e < sweep.d_qk) f(column0 + m, e, S(i));
    }
  }

 private:
  using Ring = RingPosition<Config::kStages>;

  template <int kN>
  static __device__ __forceinline__ auto coordinates() {
    return sm80::rows_columns(typename Config::MmaOfRows{}
                                  .get_thread_slice(threadIdx.x)
                                  .partition_C(make_identity_tensor(Shape<_64, Int<kN>>{})));
  }
  template <class Layout_>
  static __device__ __forceinline__ auto tile(Element* data, Layout_ layout) {
    return make_tensor(make_smem_ptr(data), layout);
  }
  __device__ __forceinline__ void wait_full(const Ring& ring) { shared.full[ring.stage].wait(ring.parity); }
  __device__ __forceinline__ void release(int stage) {
    if (threadIdx.x % 32 == 0) shared.empty[stage].arrive();
  }

  __device__ __forceinline__ void start_p(const Ring& ring) {  // P = Q K^T (C, C)
    const auto slice = typename Config::MmaQk{}.get_slice(0);
    const auto rQ = slice.partition_fragment_A(tile(shared.q[0], typename Config::LayoutQ{}));
    const auto rK = slice.partition_fragment_B(tile(shared.k[0], typename Config::LayoutQ{}));
    start_multiply<true>(typename Config::MmaQk{}, rQ(_, _, _, ring.stage), rK(_, _, _, ring.stage), rP);
  }
  __device__ __forceinline__ void start_o(int stage, int p) {  // O^T = S^T Q^T + V^T P^T (M, C)
    const auto rQ =
        typename Config::MmaQs{}.get_slice(0).partition_fragment_B(tile(shared.q[0], typename Config::LayoutQ{}));
    start_multiply<true>(typename Config::MmaQs{}, as_wgmma_operand_a(rounded), rQ(_, _, _, stage), rO);
    const auto slice = typename Config::MmaPv{}.get_slice(0);
    const auto rV = slice.partition_fragment_A(tile(shared.v[0], typename Config::LayoutVt{}));
    const auto rPt = slice.partition_fragment_B(tile(shared.p[0], typename Config::LayoutP{}));
    start_multiply<false>(typename Config::MmaPv{}, rV(_, _, _, stage), rPt(_, _, _, p), rO);
  }
  __device__ __forceinline__ void start_state(int stage) {  // S^T += V^T K (M, E)
    const auto slice = typename Config::MmaState{}.get_slice(0);
    const auto rV = slice.partition_fragment_A(tile(shared.v[0], typename Config::LayoutVt{}));
    const auto rK = slice.partition_fragment_B(tile(shared.k[0], typename Config::LayoutKt{}));
    start_multiply<false>(typename Config::MmaState{}, rV(_, _, _, stage), rK(_, _, _, stage), rS);
  }
  /// S^T in 16 bits: operand A as it lies.
  __device__ __forceinline__ void round_state() { sm80::convert(rS, rounded); }
  /// mask.keep, then to shared memory in 16 bits.
  __device__ __forceinline__ void stage_p(int p) {
    auto P = sm80::rows_columns(as_mma_accumulator(rP));
    const auto cP = coordinates<kC>();
    CUTE_UNROLL
    for (int i = 0; i < size(P); ++i) {
      const int distance = static_cast<int>(get<0>(cP(i))) - static_cast<int>(get<1>(cP(i)));
      P(i) = (chunks.step > 0 ? distance >= 0 : distance <= 0) ? P(i) : 0.f;
    }
    auto bits = make_tensor<Element>(Layout<Int<kC / 2>>{});
    sm80::convert(rP, bits);
    const auto pairs = recast<std::uint32_t>(bits);  // (2 rows, columns / 8) of pairs
    const auto sP = tile(shared.p[p], typename Config::LayoutTile{});
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    CUTE_UNROLL
    for (int i = 0; i < size(pairs); ++i)
      *reinterpret_cast<std::uint32_t*>(
          raw_pointer_cast(&sP(16 * warp + lane / 4 + 8 * (i % 2), 8 * (i / 2) + lane % 4 * 2))) = pairs(i);
  }
  /// What the threads wrote is seen by wgmma and TMA behind it.
  __device__ __forceinline__ void meet() {
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(128, 1);
  }

  /// O^T, a warp's 16 columns of o, -> (C, M) in shared memory.
  __device__ __forceinline__ void stage_o(int i) {
    CUTE_UNROLL
    for (int j = 0; j < size(rO); ++j) rO(j) *= sweep.scale;
    auto bits = make_tensor<Element>(Layout<Int<kC / 2>>{});
    sm80::convert(rO, bits);
    const auto pairs = recast<std::uint32_t>(bits);
    const auto sO = tile(shared.o[i % 2], typename Config::LayoutTile{});
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    CUTE_UNROLL
    for (int j = 0; j < size(pairs); ++j) {
      std::uint32_t x;
      asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(x) : "r"(pairs(j)));
      *reinterpret_cast<std::uint32_t*>(
          raw_pointer_cast(&sO(8 * (j / 2) + lane / 4, 16 * warp + 8 * (j % 2) + lane % 4 * 2))) = x;
    }
  }
  /// By one thread, and without a branch: products are running, and ptxas waits for them where paths part.
  __device__ __forceinline__ void store_o(int i, const CUtensorMap& map, int head, int batch) const {
    asm volatile(
        "{\n"
        ".reg .pred first;\n"
        "setp.eq.u32 first, %0, 0;\n"
        "@first cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%1, {%3, %4, %5, %6}], [%2];\n"
        "cp.async.bulk.commit_group;\n"
        "}\n" ::"r"(threadIdx.x),
        "l"(&map), "r"(cast_smem_ptr_to_uint(shared.o[i % 2])), "r"(column0), "r"(head), "r"(chunks.row(i)), "r"(batch)
        : "memory");
    cute::tma_store_wait<1>();  // the other buffer has been read
  }

  const LinearSweep& sweep;
  const ChunkRange& chunks;
  const int column0, columns;
  Shared& shared;
  Ring at;
  decltype(partition_fragment_C(typename Config::MmaQk{}, Shape<_64, Int<kC>>{})) rP;     // (C, C) f32
  decltype(partition_fragment_C(typename Config::MmaPv{}, Shape<_64, Int<kC>>{})) rO;     // (M, C) f32
  decltype(partition_fragment_C(typename Config::MmaState{}, Shape<_64, Int<kE>>{})) rS;  // (M, E) f32
  decltype(make_tensor<Element>(Layout<Int<kE / 2>>{})) rounded;                          // (M, E) 16-bit
};

}  // namespace falchion::sm90
