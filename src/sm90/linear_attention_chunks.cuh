// src/sm90/linear_attention_chunks.cuh: causal linear attention in chunks of 64 tokens, with TMA and wgmma.   What:
// ref/. Here: when. The twin: sm80/linear_attention_chunks.cuh. What was measured: docs/design/linear_attention.md
#pragma once

#include "blocks/gpu_fragments.cuh"
#include "blocks/sm90_tma.cuh"
#include "blocks/sm90_wgmma.cuh"
#include "gpu/linear_attention_block.cuh"
#include "sm90/linear_attention_config.hpp"

namespace falchion::sm90 {

using namespace gpu;

struct LinearMaps {
  CUtensorMap q, k, v, o;
};
struct AllLinearMaps {
  LinearMaps of[3];
};

/// Chunks in the order of the sweep: chunk i is chunk first + i * step of the sequence.
struct ChunkRange {
  int first = 0, step = 1, count = 0;
  /// One of all pieces, of which a segment has `parts`.
  __device__ __forceinline__ ChunkRange(const LinearAttentionArgs& a, const LinearSweep& sweep, int parts, int piece) {
    const int all = static_cast<int>((a.s + 63) / 64), each = static_cast<int>(a.segment / 64) / parts;
    const int pieces = a.segments * parts, at = sweep.reverse ? pieces - 1 - piece : piece;
    const int begin = min(at * each, all), end = at + 1 == pieces ? all : min(begin + each, all);
    step = sweep.reverse ? -1 : 1, first = sweep.reverse ? end - 1 : begin, count = end - begin;
  }
  __device__ __forceinline__ int row(int i) const { return (first + i * step) * 64; }
};

/// What a CTA works on: columns of one head's v and o, in one segment of its tokens.
struct LinearCta {
  const LinearAttentionArgs& a;
  const LinearBlock block;
  const LinearSweep& sweep;
  const LinearMaps& maps;
  const std::uint64_t number;  // of the launch
  const int column0;
  const bool sums;  // for later segments, before its own chunks: the part of this number
  const ChunkRange summed, chunks;

  __device__ __forceinline__ LinearCta(const LinearAttentionArgs& a, const LinearSweeps& sweeps,
                                       const AllLinearMaps& maps, std::uint64_t number)
      : a(a),
        block(a, sweeps),
        sweep(sweeps.sweep[block.which]),
        maps(maps.of[block.which]),
        number(number),
        column0(block.column_tile * 64),
        sums(block.segment < (a.segments - 1) * a.parts),
        summed(a, sweep, a.parts, block.segment),
        chunks(a, sweep, 1, block.segment) {}
  __device__ __forceinline__ int to_sum() const { return sums ? summed.count : 0; }
};

template <class Element, class Layout_>
__device__ __forceinline__ auto in_shared(Element* data, Layout_ layout) {
  return make_tensor(make_smem_ptr(data), layout);
}

/// The barrier turns when one lane of each warp has arrived. No branch: where paths part while products are running,
/// ptxas waits for them.
template <class Barrier>
__device__ __forceinline__ void arrive_by_warp(Barrier& barrier, int times = 1) {
  asm volatile(
      "{\n"
      ".reg .pred first;\n"
      "setp.eq.u32 first, %1, 0;\n"
      "@first mbarrier.arrive.shared::cta.b64 _, [%0], %2;\n"
      "}\n" ::"r"(cast_smem_ptr_to_uint(&barrier)),
      "r"(threadIdx.x % 32), "r"(times)
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

/// Barriers of warps: of those that carry S; of these and the outputs', when sums are made and when tiles are empty; of
/// the outputs' first, which emptied them; of each team of splitters; of each half of o.
enum NamedBarrier { kOfState = 1, kOfSums, kOfTiles, kOfEmptied, kOfSplitters, kOfOutputs = kOfSplitters + 2 };
/// While sums are made the outputs' warps stay away from the rings: a barrier's phases two apart look the same to them.
template <class Config>
__device__ __forceinline__ void wait_for_sums() {
  sync_threads<128 * (1 + Config::kOutputs)>(kOfSums);
}
template <class Config>
__device__ __forceinline__ void sums_are_made() {
  arrive_threads<128 * (1 + Config::kOutputs)>(kOfSums);
}

/// The producer, one thread. Sums do without q.
template <class Config, bool kSums>
__device__ __forceinline__ void load_chunks(const LinearCta& cta, const ChunkRange& chunks,
                                            RingPosition<Config::kStages>& at, typename Config::Shared& shared) {
  constexpr int kBoxes = Config::kD / 64, kBox = 64 * 64;
  const LinearSweep& sweep = cta.sweep;
  const int h = cta.block.h, head_q = h / sweep.q.shared, head_k = h / sweep.k.shared, head_v = h / sweep.v.shared;
  for (int i = 0; i < chunks.count; ++i, at.advance()) {
    shared.empty[at.stage].wait(at.parity ^ 1);
    auto& full = shared.full[at.stage];
    full.arrive_and_expect_tx(((kSums ? 1 : 2) * kBoxes + 1) * kBox * sizeof(typename Config::Element));
    const auto load = [&](const CUtensorMap& map, typename Config::Element* to, int column, int head) {
      cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadByOthers, to, column, head,
                                   chunks.row(i), cta.block.b);
    };
    CUTE_UNROLL
    for (int box = 0; box < kBoxes; ++box) {
      load(cta.maps.k, shared.k[at.stage] + box * kBox, 64 * box, head_k);
      if constexpr (!kSums) load(cta.maps.q, shared.q[at.stage] + box * kBox, 64 * box, head_q);
    }
    load(cta.maps.v, shared.v[at.stage], cta.column0, head_v);
  }
}

/// The consumer of the outputs, one thread. A tile lies as boxes of 128 bytes a row.
template <class Config>
__device__ __forceinline__ void store_chunks(const LinearCta& cta, typename Config::Shared& shared) {
  constexpr int kBox = 128 / sizeof(shared.o[0][0]),
                kBehind = Config::kTiles > 1 ? 1 : 0;  // stores that may still read
  const int head = cta.block.h / cta.sweep.o.shared;
  RingPosition<Config::kTiles> at, read;
  CUTE_NO_UNROLL  // few registers
      for (int i = 0; i < cta.chunks.count; ++i, at.advance()) {
    shared.o_full[at.stage].wait(at.parity);
    CUTE_UNROLL
    for (int column = 0; column < Config::kColumns; column += kBox)
      cute::SM90_TMA_STORE_4D::copy(&cta.maps.o, shared.o[at.stage] + column * Config::kChunk, cta.column0 + column,
                                    head, cta.chunks.row(i), cta.block.b);
    cute::tma_store_arrive();
    cute::tma_store_wait<kBehind>();
    if (i >= kBehind) shared.o_empty[read.stage].arrive(), read.advance();
  }
  cute::tma_store_wait<0>();
}

/// Where in a tile of 64 rows of 128 bytes, swizzled as TMA and wgmma do, this lane's row of 16 bytes of a warpgroup's
/// 64 x 16 elements lies, columns / 16 = 0. Lane i names row i % 8 of the 8 x 8 matrix i / 8; matrices below each
/// other, then beside each other.
template <class Element>
__device__ __forceinline__ unsigned matrix_address(const Element* tile) {
  const unsigned lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
  return cast_smem_ptr_to_uint(tile) + row * 128 + (lane / 16 ^ lane % 8) * 16;
}
/// Columns / 16 = j of rounded accumulators.
template <class Element>
__device__ __forceinline__ void store_matrices(const std::uint32_t (&pairs)[4], Element* to, int j) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(matrix_address(to) ^ (32 * j)),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}
/// The way back: such columns as operand A of wgmma lies, which is as the accumulators do.
template <class Element>
__device__ __forceinline__ void load_matrices(const Element* from, int j, std::uint32_t* pairs) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(matrix_address(from) ^ (32 * j))
               : "memory");
}
/// 64 x 64 rounded accumulators.
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
  __device__ __forceinline__ explicit LinearStateElements(const LinearCta& cta)
      : sweep(cta.sweep), column0(cta.column0) {
    clear(rS);
  }
  __device__ __forceinline__ void set_zero() { clear(rS); }

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
  /// This thread's elements of S, as its registers have them.
  __device__ __forceinline__ float& element(int i) { return rS(i); }
  /// And with their places: f(m, e, element), m and e within the whole state.
  template <class F>
  __device__ __forceinline__ void for_each(F f) {
    const auto coordinates = rows_columns(typename Config::MmaOfRows{}
                                              .get_thread_slice(threadIdx.x % 128)
                                              .partition_C(make_identity_tensor(Shape<_64, _64>{})));
    CUTE_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      auto rows = rS(_, half, 0);
      auto S = rows_columns(as_mma_accumulator(rows));
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

  /// kSums: only S behind `count` chunks. Else S before each of them, rounded, for the outputs too.
  template <bool kSums, class Shared>
  __device__ __forceinline__ void run(int count, Shared& shared) {
    RingPosition<Config::kSlots> slot;
    const auto slice = typename Config::MmaState{}.get_slice(0);
    const auto rK = slice.partition_fragment_A(in_shared(shared.k[0], typename Config::LayoutKt{}));
    const auto rV = slice.partition_fragment_B(in_shared(shared.v[0], typename Config::LayoutVt{}));
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, at.advance()) {
      if constexpr (!kSums) convert(rS, rounded);
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
      arrive_by_warp(shared.empty[at.stage], kSums ? 2 : 1);  // sums: for the outputs' warps too
    }
  }

 private:
  using LinearStateElements<Config>::rS, LinearStateElements<Config>::kHalves;
  RingPosition<Config::kStages> at;
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

  __device__ __forceinline__ LinearOutputs(const LinearCta& cta, Shared& shared)
      : sweep(cta.sweep), chunks(cta.chunks), shared(shared), kept(causal_bits(chunks)), at(cta.to_sum()) {}

  __device__ __forceinline__ void run(int group) {
    RingPosition<Config::kSlots> slot;
    RingPosition<Config::kTiles> tile;
    const auto advance = [&] { at.advance(), slot.advance(), tile.advance(); };
    for (int i = 0; i < group; ++i) advance();
    wait_for_sums<Config>();
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
      convert(rO, rounded);
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
    convert(rP, rounded);
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
  RingPosition<Config::kStages> at;
  decltype(partition_fragment_C(typename Config::MmaQk{}, Shape<_64, _64>{})) rP;  // (C, C) f32
  decltype(partition_fragment_C(typename Config::MmaQs{}, Shape<_64, _64>{})) rO;  // (C, M) f32
  decltype(make_tensor<Element>(Layout<_32>{})) rounded;                           // P, operand A as it lies
};

}  // namespace falchion::sm90
