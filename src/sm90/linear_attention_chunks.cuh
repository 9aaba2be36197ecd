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

template <class Element, class Layout_>
__device__ __forceinline__ auto in_shared(Element* data, Layout_ layout) {
  return make_tensor(make_smem_ptr(data), layout);
}

/// The barrier turns when one lane of each warp has arrived. No branch: where paths part while products are running,
/// ptxas waits for them.
template <class Barrier>
__device__ __forceinline__ void arrive_by_warp(Barrier& barrier) {
  asm volatile(
      "{\n"
      ".reg .pred first;\n"
      "setp.eq.u32 first, %1, 0;\n"
      "@first mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}\n" ::"r"(cast_smem_ptr_to_uint(&barrier)),
      "r"(threadIdx.x % 32)
      : "memory");
}

/// arrive_by_warp, but not before `value` is there. An arrival alone does not wait for loads that are on their way, and
/// what uses them may move behind it: TMA was faster, and the next rows came.
__device__ __forceinline__ void arrive_by_warp_having(unsigned value, Barrier& barrier) {  // never 0xffffffff
  asm volatile(
      "{\n"
      ".reg .pred first;\n"
      "setp.eq.u32 first, %1, 0;\n"
      "setp.ne.and.u32 first, %2, 0xffffffff, first;\n"
      "@first mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}\n" ::"r"(cast_smem_ptr_to_uint(&barrier)),
      "r"(threadIdx.x % 32), "r"(value)
      : "memory");
}

/// The producer, one thread. Sums do without q.
template <class Config, bool kSums, class Shared>
__device__ __forceinline__ void load_chunks(const LinearMaps& maps, const LinearSweep& sweep, const ChunkRange& chunks,
                                            const sm80::LinearBlock& block, int column0, Shared& shared) {
  constexpr int kBoxes = Config::kD / 64, kBox = 64 * 64;
  const int head_q = block.h / sweep.q.shared, head_k = block.h / sweep.k.shared, head_v = block.h / sweep.v.shared;
  RingPosition<Config::kStages> at;
  for (int i = 0; i < chunks.count; ++i, at.advance()) {
    shared.empty[at.stage].wait(at.parity ^ 1);
    auto& full = shared.full[at.stage];
    full.arrive_and_expect_tx(((kSums ? 1 : 2) * kBoxes + 1) * kBox * sizeof(typename Config::Element));
    const auto load = [&](const CUtensorMap& map, typename Config::Element* to, int column, int head) {
      cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadByOthers, to, column, head,
                                   chunks.row(i), block.b);
    };
    CUTE_UNROLL
    for (int box = 0; box < kBoxes; ++box) {
      load(maps.k, shared.k[at.stage] + box * kBox, 64 * box, head_k);
      if constexpr (!kSums) load(maps.q, shared.q[at.stage] + box * kBox, 64 * box, head_q);
    }
    load(maps.v, shared.v[at.stage], column0, head_v);
  }
}

/// The consumer of the outputs, one thread. A tile lies as boxes of 128 bytes a row.
template <class Config>
__device__ __forceinline__ void store_chunks(const CUtensorMap& map, const ChunkRange& chunks,
                                             const sm80::LinearBlock& block, int head, int column0,
                                             typename Config::Shared& shared) {
  constexpr int kBox = 128 / sizeof(shared.o[0][0]),
                kBehind = Config::kTiles > 1 ? 1 : 0;  // stores that may still read
  RingPosition<Config::kTiles> at, read;
  CUTE_NO_UNROLL  // few registers
      for (int i = 0; i < chunks.count; ++i, at.advance()) {
    shared.o_full[at.stage].wait(at.parity);
    CUTE_UNROLL
    for (int column = 0; column < Config::kColumns; column += kBox)
      cute::SM90_TMA_STORE_4D::copy(&map, shared.o[at.stage] + column * Config::kChunk, column0 + column, head,
                                    chunks.row(i), block.b);
    cute::tma_store_arrive();
    cute::tma_store_wait<kBehind>();
    if (i >= kBehind) shared.o_empty[read.stage].arrive(), read.advance();
  }
  cute::tma_store_wait<0>();
}

/// 64 x 16 rounded accumulators of a warpgroup, columns / 16 = j, to rows of 128 bytes in shared memory, swizzled as
/// TMA and wgmma do.
template <class Element>
__device__ __forceinline__ void store_matrices(const std::uint32_t (&pairs)[4], Element* to, int j) {
  // stmatrix: lane i names row i % 8 of the 8 x 8 matrix i / 8; matrices below each other, then beside each other.
  const unsigned lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
  const unsigned address = cast_smem_ptr_to_uint(to) + row * 128 + (lane / 16 ^ lane % 8) * 16;
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address ^ (32 * j)),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}
/// 64 x 64 of them.
template <class Element, class Fragment>
__device__ __forceinline__ void stage(const Fragment& rounded, Element* to) {
  const auto pairs = recast<std::uint32_t>(rounded);  // (2 rows, columns / 8) of pairs
  CUTE_UNROLL
  for (int j = 0; j < 4; ++j)
    store_matrices({pairs(4 * j), pairs(4 * j + 1), pairs(4 * j + 2), pairs(4 * j + 3)}, to, j);
}

/// S (E, M) in the accumulators of a warpgroup: 64 columns of it, f32.
template <class Config>
class LinearStateElements {
 public:
  __device__ __forceinline__ LinearStateElements(const LinearSweep& sweep, int column0)
      : sweep(sweep), column0(column0) {
    clear(rS);
  }

  /// S += scale x, (E, M) in global memory. Where S fills the tile nothing is asked before a load: behind a condition
  /// each waits for the one before it, 4200 clocks for all instead of 1200.
  __device__ __forceinline__ void add(const float* x, std::int64_t stride_e, std::int64_t stride_m, float scale) {
    const bool whole = column0 + Config::kColumns <= sweep.d_v && Config::kD == sweep.d_qk && stride_m == 1;
    if (!whole) return for_each([&](int m, int e, float& s) { s += x[e * stride_e + m * stride_m] * scale; });
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    CUTE_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      const float* from = x + (64 * half + row) * stride_e + column0 + threadIdx.x % 4 * 2;
      float more[8][2][2];  // (columns / 8, 2 rows, 2 columns), as the accumulators lie
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r, from += 8 * stride_e) CUTE_UNROLL
      for (int i = 0; i < 16; ++i) more[i / 2][r][i % 2] = __ldcg(from + i / 2 * 8 + i % 2);
      auto rows = rS(_, half, 0);
      CUTE_UNROLL
      for (int i = 0; i < size(rows); ++i) rows(i) += (&more[0][0][0])[i] * scale;
    }
  }
  /// This thread's elements of S: f(m, e, element), m and e within the whole state.
  template <class F>
  __device__ __forceinline__ void for_each(F f) {
    const auto coordinates = sm80::rows_columns(typename Config::MmaOfRows{}
                                                    .get_thread_slice(threadIdx.x % 128)
                                                    .partition_C(make_identity_tensor(Shape<_64, _64>{})));
    CUTE_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      auto rows = rS(_, half, 0);
      auto S = sm80::rows_columns(as_mma_accumulator(rows));
      CUTE_UNROLL
      for (int i = 0; i < size(S); ++i) {
        const int e = 64 * half + static_cast<int>(get<0>(coordinates(i)));
        const int m = column0 + static_cast<int>(get<1>(coordinates(i)));
        if (m < sweep.d_v && e < sweep.d_qk) f(m, e, S(i));
      }
    }
  }

 protected:
  static constexpr int kHalves = Config::kD / 64;
  const LinearSweep& sweep;
  const int column0;
  decltype(partition_fragment_C(typename Config::MmaState{}, Shape<Int<Config::kD>, Int<Config::kColumns>>{})) rS;
};

/// The warpgroup that carries S from the first chunk to the last.
template <class Config>
class LinearState : public LinearStateElements<Config> {
 public:
  using LinearStateElements<Config>::LinearStateElements;

  /// kSums: only S behind all chunks. Else S before each of them, rounded, for the outputs too.
  template <bool kSums, class Shared>
  __device__ __forceinline__ void run(int count, Shared& shared) {
    RingPosition<Config::kStages> at;
    RingPosition<Config::kSlots> slot;
    const auto slice = typename Config::MmaState{}.get_slice(0);
    const auto rK = slice.partition_fragment_A(in_shared(shared.k[0], typename Config::LayoutKt{}));
    const auto rV = slice.partition_fragment_B(in_shared(shared.v[0], typename Config::LayoutVt{}));
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, at.advance()) {
      if constexpr (!kSums) sm80::convert(rS, rounded);
      shared.full[at.stage].wait(at.parity);
      start_multiply<false>(typename Config::MmaState{}, rK(_, _, _, at.stage), rV(_, _, _, at.stage), rS);
      if constexpr (!kSums) {
        shared.s_empty[slot.stage].wait(slot.parity ^ 1);
        CUTE_UNROLL
        for (int half = 0; half < kHalves; ++half)
          stage(rounded(_, half), shared.s[slot.stage] + half * 64 * Config::kColumns);
        publish_to_async();
        __syncwarp();
        arrive_by_warp(shared.s_full[slot.stage]);
        slot.advance();
      }
      wait_multiply<0>(rS);
      arrive_by_warp(shared.empty[at.stage]);
    }
  }

 private:
  using LinearStateElements<Config>::rS, LinearStateElements<Config>::kHalves;
  decltype(make_tensor<typename Config::Element>(Layout<Shape<_32, Int<kHalves>>>{})) rounded;
};

/// Of P (C, C), as a warpgroup's accumulators lie: the bits that are kept of two columns in 16 bits each, all of those
/// of tokens that see each other. chunks.step says in which direction.
using CausalBits = decltype(make_tensor<std::uint32_t>(Layout<_16>{}));
__device__ __forceinline__ CausalBits causal_bits(const ChunkRange& chunks) {
  CausalBits kept;
  const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  CUTE_UNROLL
  for (int i = 0; i < size(kept); ++i) {
    const int column = 8 * (i / 2) + static_cast<int>(threadIdx.x) % 4 * 2;
    const auto keep = [&](int c) { return chunks.step > 0 ? c <= row + 8 * (i % 2) : c >= row + 8 * (i % 2); };
    kept(i) = (keep(column) ? 0xffffu : 0u) | (keep(column + 1) ? 0xffff0000u : 0u);
  }
  return kept;
}

/// A warpgroup that makes the outputs of every kOutputs-th chunk.
template <class Config>
class LinearOutputs {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;

  __device__ __forceinline__ LinearOutputs(const LinearSweep& sweep, const ChunkRange& chunks, Shared& shared)
      : sweep(sweep), chunks(chunks), shared(shared), kept(causal_bits(chunks)) {}

  __device__ __forceinline__ void run(int group) {
    RingPosition<Config::kStages> at;
    RingPosition<Config::kSlots> slot;
    RingPosition<Config::kTiles> tile;
    const auto advance = [&] { at.advance(), slot.advance(), tile.advance(); };
    for (int i = 0; i < group; ++i) advance();
    CUTE_NO_UNROLL
    for (int i = group; i < chunks.count; i += Config::kOutputs) {
      shared.full[at.stage].wait(at.parity);
      start_p(at.stage);
      shared.s_full[slot.stage].wait(slot.parity);
      start_qs(at.stage, slot.stage);
      wait_multiply<1>(rP);
      mask_p();
      start_pv(at.stage);
      wait_multiply<0>(rO);
      arrive_by_warp(shared.empty[at.stage]);
      arrive_by_warp(shared.s_empty[slot.stage]);
      CUTE_UNROLL
      for (int j = 0; j < size(rO); ++j) rO(j) *= sweep.scale;
      sm80::convert(rO, rounded);
      shared.o_empty[tile.stage].wait(tile.parity ^ 1);
      stage(rounded, shared.o[tile.stage]);
      publish_to_async();
      __syncwarp();
      arrive_by_warp(shared.o_full[tile.stage]);
      CUTE_UNROLL
      for (int n = 0; n < Config::kOutputs; ++n) advance();
    }
  }

 private:
  __device__ __forceinline__ void start_p(int stage) {  // P = Q K^T (C, C)
    const auto slice = typename Config::MmaQk{}.get_slice(0);
    const auto rQ = slice.partition_fragment_A(in_shared(shared.q[0], typename Config::LayoutQ{}));
    const auto rK = slice.partition_fragment_B(in_shared(shared.k[0], typename Config::LayoutQ{}));
    start_multiply<true>(typename Config::MmaQk{}, rQ(_, _, _, stage), rK(_, _, _, stage), rP);
  }
  __device__ __forceinline__ void start_qs(int stage, int slot) {  // O = Q S (C, M)
    const auto slice = typename Config::MmaQs{}.get_slice(0);
    const auto rQ = slice.partition_fragment_A(in_shared(shared.q[0], typename Config::LayoutQ{}));
    const auto rS = slice.partition_fragment_B(in_shared(shared.s[0], typename Config::LayoutSt{}));
    start_multiply<true>(typename Config::MmaQs{}, rQ(_, _, _, stage), rS(_, _, _, slot), rO);
  }
  __device__ __forceinline__ void mask_p() {  // rounded, and 0 where a token would see a later one
    sm80::convert(rP, rounded);
    auto pairs = recast<std::uint32_t>(rounded);
    CUTE_UNROLL
    for (int i = 0; i < size(pairs); ++i) pairs(i) &= kept(i);
  }
  __device__ __forceinline__ void start_pv(int stage) {  // O += P V (C, M)
    const auto rV =
        typename Config::MmaPv{}.get_slice(0).partition_fragment_B(in_shared(shared.v[0], typename Config::LayoutVt{}));
    start_multiply<false>(typename Config::MmaPv{}, as_wgmma_operand_a(rounded), rV(_, _, _, stage), rO);
  }

  const LinearSweep& sweep;
  const ChunkRange& chunks;
  Shared& shared;
  const CausalBits kept;
  decltype(partition_fragment_C(typename Config::MmaQk{}, Shape<_64, _64>{})) rP;  // (C, C) f32
  decltype(partition_fragment_C(typename Config::MmaQs{}, Shape<_64, _64>{})) rO;  // (C, M) f32
  decltype(make_tensor<Element>(Layout<_32>{})) rounded;                           // P, operand A as it lies
};

}  // namespace falchion::sm90
