// src/sm90/linear_attention_chunks.cuh: causal linear attention on Hopper, in chunks of 64 tokens, with TMA and wgmma.
// ref/ defines the result; this file says which step runs when. Each warpgroup does one part of a chunk, and rings of
// mbarriers connect them (linear_attention_roles.cuh has the list). The counterpart for sm_80 is
// sm80/linear_attention_chunks.cuh. The schedule and the measurements are in docs/design/linear_attention.md.
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
  /// The chunks of piece number `piece`: each segment is cut into `parts` pieces, numbered in the order of the sweep.
  __device__ __forceinline__ ChunkRange(const LinearAttentionArgs& a, const LinearSweep& sweep, int parts, int piece) {
    const int all = static_cast<int>((a.s + 63) / 64), each = static_cast<int>(a.segment / 64) / parts;
    const int pieces = a.segments * parts;
    const int at = sweep.reverse ? pieces - 1 - piece : piece;
    const int begin = min(at * each, all);
    const int end = at + 1 == pieces ? all : min(begin + each, all);
    step = sweep.reverse ? -1 : 1;
    first = sweep.reverse ? end - 1 : begin;
    count = end - begin;
  }
  __device__ __forceinline__ int row(int i) const { return (first + i * step) * 64; }
};

/// What a CTA works on: some columns of v and o of one head, in one segment of its tokens.
struct LinearCta {
  const LinearAttentionArgs& a;
  const LinearBlock block;
  const LinearSweep& sweep;
  const LinearMaps& maps;
  const std::uint64_t number;  // tells this launch from all others (blocks/launch_number.hpp)
  const int column0;
  const bool sums;  // whether it first sums K^T V of part number block.segment, for later segments
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

/// Lane 0 arrives for its warp. The arrival is predicated and not behind a branch: where paths part while products are
/// running, ptxas makes the warp wait for these products.
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

/// Like arrive_by_warp, but not before `value`, which depends on the loads, is known; `value` is never 0xffffffff. An
/// arrival alone does not wait for loads of the same thread that are in flight, and the compiler may move the use of
/// what they load behind it. Then TMA overwrote rows before they were read.
__device__ __forceinline__ void arrive_by_warp_having(unsigned value, Barrier& barrier) {
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

/// The named barriers, on which some warps of a CTA wait for others.
enum NamedBarrier {
  kOfState = 1,                  // the warps that carry S wait for each other
  kOfSums,                       // the output warps wait until the warps that carry S have made the sums
  kOfTiles,                      // the warps that carry S wait until the first output warpgroup has prepared the tiles
  kOfEmptied,                    // the threads of that output warpgroup wait until all of them have emptied their share
  kOfSplitters,                  // the splitters of a team wait for each other; one barrier for each team
  kOfOutputs = kOfSplitters + 2  // wide CTAs: the warps that store the same 64 columns of o wait for each other
};
/// The output warps call this before their first chunk. While sums are made they take no part in the rings, and the
/// warps that carry S arrive in their place: a barrier tells its phases apart by parity only, so phases that are two
/// apart look the same, and output warps that are not waiting for each of them would lose count.
template <class Config>
__device__ __forceinline__ void wait_for_sums() {
  sync_threads<128 * (1 + Config::kOutputs)>(kOfSums);
}
template <class Config>
__device__ __forceinline__ void sums_are_made() {
  arrive_threads<128 * (1 + Config::kOutputs)>(kOfSums);
}

/// The producer, which is one thread: for each chunk it waits until a stage is empty and loads k, q and v into it. For
/// sums (kSums) it does not load q. It divides to find its heads before the loop: inside it, three divisions made the
/// producer the slowest role (a chunk took 1170 clocks instead of 950).
template <class Config, bool kSums>
__device__ __forceinline__ void load_chunks(const LinearCta& cta, const ChunkRange& chunks,
                                            RingPosition<Config::kStages>& at, typename Config::Shared& shared) {
  constexpr int kBoxes = Config::kD / 64, kBox = 64 * 64;
  const LinearSweep& sweep = cta.sweep;
  const int h = cta.block.h;
  const int head_q = h / sweep.q.shared;
  const int head_k = h / sweep.k.shared;
  const int head_v = h / sweep.v.shared;
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

/// The thread that stores the outputs: it waits for each tile of O, stores it by TMA, and gives its place back once the
/// copy has read it. A tile lies in shared memory as boxes whose rows have 128 bytes.
template <class Config>
__device__ __forceinline__ void store_chunks(const LinearCta& cta, typename Config::Shared& shared) {
  constexpr int kBox = 128 / sizeof(shared.o[0][0]),
                kBehind = Config::kTiles > 1 ? 1 : 0;  // how many stores may still be reading their tiles
  const int head = cta.block.h / cta.sweep.o.shared;
  RingPosition<Config::kTiles> at, read;
  CUTE_NO_UNROLL
  for (int i = 0; i < cta.chunks.count; ++i, at.advance()) {  // not unrolled, since this warp has few registers
    shared.o_full[at.stage].wait(at.parity);
    CUTE_UNROLL
    for (int column = 0; column < Config::kColumns; column += kBox)
      cute::SM90_TMA_STORE_4D::copy(&cta.maps.o, shared.o[at.stage] + column * Config::kChunk, cta.column0 + column,
                                    head, cta.chunks.row(i), cta.block.b);
    cute::tma_store_arrive();
    cute::tma_store_wait<kBehind>();
    if (i >= kBehind) {
      shared.o_empty[read.stage].arrive();
      read.advance();
    }
  }
  cute::tma_store_wait<0>();
}

/// The address that this lane gives to stmatrix or ldmatrix for the first 16 columns of a tile. The tile has 64 rows of
/// 128 bytes in the swizzle of TMA and wgmma, 16 rows for each warp of a warpgroup. Lane i addresses row i % 8 of
/// matrix i / 8, all of them 8 x 8. Matrix 1 lies below matrix 0; matrices 2 and 3 lie to the right of these.
template <class Element>
__device__ __forceinline__ unsigned matrix_address(const Element* tile) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned row = threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
  return cast_smem_ptr_to_uint(tile) + row * 128 + (lane / 16 ^ lane % 8) * 16;
}
/// Stores columns 16 j to 16 j + 15 of rounded accumulators.
template <class Element>
__device__ __forceinline__ void store_matrices(const std::uint32_t (&pairs)[4], Element* to, int j) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(matrix_address(to) ^ (32 * j)),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}
/// Loads the same columns into the layout of operand A of wgmma, which is also that of the accumulators.
template <class Element>
__device__ __forceinline__ void load_matrices(const Element* from, int j, std::uint32_t* pairs) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(matrix_address(from) ^ (32 * j))
               : "memory");
}
/// Stores 64 x 64 rounded accumulators of a warpgroup.
template <class Element, class Fragment>
__device__ __forceinline__ void stage(const Fragment& rounded, Element* to) {
  const auto pairs = recast<std::uint32_t>(rounded);  // (2 rows, columns / 8) of pairs
  CUTE_UNROLL
  for (int j = 0; j < 4; ++j)
    store_matrices({pairs(4 * j), pairs(4 * j + 1), pairs(4 * j + 2), pairs(4 * j + 3)}, to, j);
}

/// S (E, M) in f32, in the accumulators of one warpgroup: the 64 columns of this CTA.
template <class Config>
class LinearStateElements {
 public:
  __device__ __forceinline__ explicit LinearStateElements(const LinearCta& cta)
      : sweep(cta.sweep), column0(cta.column0) {
    clear(rS);
  }
  __device__ __forceinline__ void set_zero() { clear(rS); }

  /// S += scale x, where x (E, M) is in global memory. Where S fills the tile, no load stands behind a condition:
  /// behind one, each load waits for the load before it, and all of them take 4200 clocks instead of 1200.
  __device__ __forceinline__ void add(const float* x, std::int64_t stride_e, std::int64_t stride_m, float scale) {
    const bool whole = column0 + Config::kColumns <= sweep.d_v && Config::kD == sweep.d_qk && stride_m == 1;
    if (!whole) return for_each([&](int m, int e, float& s) { s += x[e * stride_e + m * stride_m] * scale; });
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    CUTE_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      const float* from = x + (64 * half + row) * stride_e + column0 + threadIdx.x % 4 * 2;
      float more[8][2][2];  // (columns / 8, 2 rows, 2 columns), in the order of the accumulators
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r, from += 8 * stride_e) CUTE_UNROLL
      for (int i = 0; i < 16; ++i) more[i / 2][r][i % 2] = __ldcg(from + i / 2 * 8 + i % 2);
      auto rows = rS(_, half, 0);
      CUTE_UNROLL
      for (int i = 0; i < size(rows); ++i) rows(i) += (&more[0][0][0])[i] * scale;
    }
  }
  /// Element i of S of this thread, in the order of its registers.
  __device__ __forceinline__ float& element(int i) { return rS(i); }
  /// Calls f(m, e, element) for each element of this thread, where m and e are indices in the state of the whole head.
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

/// The warpgroup that carries S from the first chunk to the last. For each chunk it waits for k and v (full) and starts
/// S += K^T V; waits for a free slot (s_empty), puts S as it was before this chunk there and says so (s_full); waits
/// for its product, and gives k and v back (empty).
template <class Config>
class LinearState : public LinearStateElements<Config> {
 public:
  using LinearStateElements<Config>::LinearStateElements;

  /// kSums: only adds `count` chunks to S. Otherwise it also rounds S before each chunk and hands it to the output
  /// warps.
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
      arrive_by_warp(shared.empty[at.stage], kSums ? 2 : 1);  // during sums also in the place of an output warp
    }
  }

 private:
  using LinearStateElements<Config>::rS, LinearStateElements<Config>::kHalves;
  RingPosition<Config::kStages> at;
  decltype(make_tensor<typename Config::Element>(Layout<Shape<_32, Int<kHalves>>>{})) rounded;
};

/// The causal mask of P (C, C) as bits, in the layout of a warpgroup's accumulators: 16 bits for each of two
/// neighbouring columns, all 1 where the row's token sees the column's. It sees itself and those before it in the order
/// of the sweep.
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

/// A warpgroup that makes the outputs of every kOutputs-th chunk. It waits for q, k and v (full) and starts P = Q K^T;
/// waits for S (s_full) and starts O = Q S; waits for P, masks it and starts O += P V; waits for O and gives back the
/// stage (empty) and S (s_empty); waits for a free tile (o_empty), puts O there and says so (o_full).
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
    const auto advance = [&] {
      at.advance();
      slot.advance();
      tile.advance();
    };
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
  __device__ __forceinline__ void mask_p() {  // rounds P; 0 where a token would see a later one of the sweep
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
  decltype(make_tensor<Element>(Layout<_32>{})) rounded;                           // P as operand A, then O
};

}  // namespace falchion::sm90
