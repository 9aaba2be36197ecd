// src/sm90/linear_attention_halves.cuh: the chunks of linear_attention_chunks.cuh in f32: every operand of a product is
// taken apart into two f16, x 2^n = high + low, low what rounding has left, which keeps 23 bits of x. Of the four
// products low low is left out. n brings the largest of its kind below 2^15: of a chunk's k, of its v, of 16 rows of q;
// so what is 2^-16 of that keeps all its bits, and anything 2^-39 of it. What is small is summed first.
#pragma once

#include "blocks/sm90_halves.cuh"
#include "sm90/linear_attention_chunks.cuh"
#include "sm90/linear_attention_halves_config.hpp"

namespace falchion::sm90 {

/// A producer, one thread: 64 x 64 floats at a time into a ring of boxes, 2 x 32 columns each.
template <int kRing>
struct BoxLoader {
  float (*box)[64 * 64];
  BarrierOfBytes (&full)[kRing];
  Barrier (&empty)[kRing];
  RingPosition<kRing> at{};

  __device__ __forceinline__ void load(const CUtensorMap& map, int column, int head, int row, int batch) {
    empty[at.stage].wait(at.parity ^ 1);
    full[at.stage].arrive_and_expect_tx(sizeof(box[0]));
    CUTE_UNROLL
    for (int half = 0; half < 2; ++half)
      cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full[at.stage]), kReadByOthers,
                                   box[at.stage] + half * 64 * 32, column + 32 * half, head, row, batch);
    at.advance();
  }
};
/// First those that are summed alone.
template <class Config>
__device__ __forceinline__ void load_k_and_v(const LinearCta& cta, typename Config::Shared& shared) {
  const int b = cta.block.b, head_k = cta.block.h / cta.sweep.k.shared, head_v = cta.block.h / cta.sweep.v.shared;
  BoxLoader<Config::kBoxes> ring{shared.box, shared.box_full, shared.box_empty};
  const auto load = [&](const ChunkRange& chunks, int count) {
    CUTE_NO_UNROLL  // few registers
        for (int i = 0; i < count; ++i) {
      for (int column = 0; column < Config::kD; column += 64) ring.load(cta.maps.k, column, head_k, chunks.row(i), b);
      ring.load(cta.maps.v, cta.column0, head_v, chunks.row(i), b);
    }
  };
  load(cta.summed, cta.to_sum()), load(cta.chunks, cta.chunks.count);
}
/// By a thread of its own: behind a box of q that is still in use, one of v would wait too.
template <class Config>
__device__ __forceinline__ void load_q(const LinearCta& cta, typename Config::Shared& shared) {
  const int head_q = cta.block.h / cta.sweep.q.shared;
  BoxLoader<Config::kBoxesOfQ> ring{shared.q_box, shared.q_full, shared.q_empty};
  CUTE_NO_UNROLL
  for (int i = 0; i < cta.chunks.count; ++i)
    for (int column = 0; column < Config::kD; column += 64)
      ring.load(cta.maps.q, column, head_q, cta.chunks.row(i), cta.block.b);
}

/// The warpgroups that take k and v apart. One alone needs 1450 clocks for 64 x 64: it is loads, a maximum and stores,
/// all of which are waited for.
template <class Config>
class LinearSplitter {
  using Half = typename Config::Half;
  using At = RingPosition<Config::kStages>;
  static constexpr int kThreads = 128 * Config::kSplitters;

 public:
  /// thread: of theirs.
  __device__ __forceinline__ explicit LinearSplitter(int thread)
      : thread(thread), row(thread / 16), half(thread / 8 % 2), chunk(thread % 8) {}

  __device__ __forceinline__ void run(int count, typename Config::Shared& shared) {
    At at;
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, at.advance()) {
      split<Config::kK, Config::kD>(shared, at, shared.k[0][at.stage], shared.k[1][at.stage]);
      split<Config::kV, Config::kColumns>(shared, at, shared.v[0][at.stage], shared.v[1][at.stage]);
    }
  }

 private:
  /// 64 rows of kColumns.
  template <int kOperand, int kColumns>
  __device__ __forceinline__ void split(typename Config::Shared& shared, const At& at, Half* high, Half* low) {
    constexpr int kRows = kThreads / 16, kEach = 64 / kRows, kBoxes = kColumns / 64;
    float x[kBoxes * kEach][4];  // of each box, four columns of every kRows-th row
    int read[kBoxes];
    CUTE_UNROLL
    for (int i = 0; i < kBoxes; ++i, box.advance()) {
      read[i] = box.stage;
      shared.box_full[box.stage].wait(box.parity);
      const float* const from = shared.box[box.stage] + half * (Config::kBox / 2) + row * 32 + (chunk ^ row % 8) * 4;
      CUTE_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const float4 four = *reinterpret_cast<const float4*>(from + j * kRows * 32);
        float(&to)[4] = x[kEach * i + j];
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
      }
    }
    const unsigned largest =
        largest_of_warps<kOfSplitters, 4 * kBoxes * kEach, 4 * Config::kSplitters>(x[0], shared.largest[parity ^= 1]);
    const int exponent = exponent_for(largest);
    CUTE_UNROLL
    for (const int stage : read) arrive_by_warp_having(largest, shared.box_empty[stage]);
    shared.empty[kOperand][at.stage].wait(at.parity ^ 1);
    if (thread == 0) shared.exponent[kOperand][at.stage] = exponent;
    const float scale = power_of_two(exponent);
    Half* const terms[] = {high, low};
    // Swizzled as wgmma reads: 16 bytes, 8 columns.
    const int to = row * 64 + ((4 * half + chunk / 2) ^ row % 8) * 8 + chunk % 2 * 4;
    CUTE_UNROLL
    for (int i = 0; i < kBoxes * kEach; ++i) {
      float(&four)[4] = x[i];
      CUTE_UNROLL
      for (int j = 0; j < 4; ++j) four[j] *= scale;
      CUTE_UNROLL
      for (Half* const term : terms)
        *reinterpret_cast<uint2*>(term + to + i * kRows * 64) = {round_half(four[0], four[1]),
                                                                 round_half(four[2], four[3])};
    }
    publish_to_async();
    __syncwarp();
    arrive_by_warp(shared.full[kOperand][at.stage]);
  }

  // 16 threads a row: of each half of a box's row, 32 columns, 8 chunks of 16 bytes.
  const int thread, row, half, chunk;
  RingPosition<Config::kBoxes> box;
  int parity = 0;
};

/// 64 x 64 accumulators of a warpgroup times `scale`, taken apart, to rows of 128 bytes in shared memory. As many at
/// once as one stmatrix takes: they need registers beside those of products that run.
template <class Rows, class Half>
__device__ __forceinline__ void stage_halves(const Rows& rows, float scale, Half* high, Half* low) {
  asm volatile("" : "+l"(high), "+l"(low));  // else all addresses wait in registers
  Half* const terms[] = {high, low};
  CUTE_UNROLL
  for (int j = 0; j < 4; ++j) {
    float rest[8];
    CUTE_UNROLL
    for (int i = 0; i < 8; ++i) rest[i] = rows(8 * j + i) * scale;
    CUTE_UNROLL
    for (Half* const to : terms) {
      std::uint32_t pairs[4];
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) pairs[i] = round_half(rest[2 * i], rest[2 * i + 1]);
      store_matrices(pairs, to, j);
    }
  }
}

/// The warpgroup that carries S in f32. What a chunk adds is summed by itself: the tensor core would cut off what does
/// not fit under the sum so far.
template <class Config>
class LinearHalvesState : public LinearStateElements<Config> {
 public:
  using LinearStateElements<Config>::LinearStateElements;

  template <bool kSums, class Shared>
  __device__ __forceinline__ void run(int count, Shared& shared) {
    RingPosition<Config::kSlots> slot;
    double bound = 0;  // no |S| is larger; f32 could not hold it
    if constexpr (!kSums)
      bound = wide_power_of_two(15 -
                                exponent_for(largest_of_warps<kOfState, 32 * kHalves, 4>(rS.data(), shared.s_largest)));
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, at.advance()) {
      shared.full[Config::kK][at.stage].wait(at.parity);
      shared.full[Config::kV][at.stage].wait(at.parity);
      const int e_k = read_by_warp(shared.exponent[Config::kK][at.stage]),
                e_v = read_by_warp(shared.exponent[Config::kV][at.stage]);
      start_product(shared, at.stage, 0);
      if constexpr (!kSums) {
        bound += wide_power_of_two(6 + 15 - e_k + 15 - e_v);  // 64 tokens
        const int e_s = min(14 + 1023 - (__double2hiint(bound) >> 20), 126);
        shared.s_empty[slot.stage].wait(slot.parity ^ 1);
        if (threadIdx.x % 128 == 0) shared.s_exponent[slot.stage] = e_s;
        const float scale = TwoFactors(e_s).of(1);
        CUTE_UNROLL
        for (int half = 0; half < kHalves; ++half)
          stage_halves(rS(_, half, 0), scale, shared.s[0][slot.stage] + half * 64 * Config::kColumns,
                       shared.s[1][slot.stage] + half * 64 * Config::kColumns);
        publish_to_async();
        __syncwarp();
        arrive_by_warp(shared.s_full[slot.stage]);
        slot.advance();
      }
      const TwoFactors back(-e_k - e_v);
      CUTE_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        if (half > 0) start_product(shared, at.stage, half);
        wait_multiply<0>(added);
        auto rows = rS(_, half, 0);
        CUTE_UNROLL
        for (int j = 0; j < size(added); ++j) rows(j) += back.of(added(j));
      }
      __syncwarp();
      for (auto& empty : shared.empty) arrive_by_warp(empty[at.stage], kSums ? 2 : 1);  // sums: for the outputs' too
    }
  }

 private:
  template <class Shared>
  __device__ __forceinline__ void start_product(Shared& shared, int stage, int half) {  // 64 rows of K^T V
    asm volatile("" : "+r"(stage));  // else the addresses of all stages wait in registers
    const auto slice = typename Config::MmaState{}.get_slice(0);
    const auto k = [&](int term) {
      auto* const tile = shared.k[term][stage] + half * 64 * Config::kChunk;
      return slice.partition_fragment_A(in_shared(tile, typename Config::LayoutKt{}))(_, _, _, 0);
    };
    const auto v = [&](int term) {
      return slice.partition_fragment_B(in_shared(shared.v[term][stage], typename Config::LayoutVt{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(typename Config::MmaState{}, k, v, added);
  }

  using LinearStateElements<Config>::rS, LinearStateElements<Config>::kHalves;
  RingPosition<Config::kStages> at;
  decltype(partition_fragment_C(typename Config::MmaState{}, Shape<_64, _64>{})) added;
};

/// The warpgroup that makes the outputs.
template <class Config>
class LinearHalvesOutputs {
 public:
  using Shared = typename Config::Shared;

  __device__ __forceinline__ LinearHalvesOutputs(const LinearCta& cta, Shared& shared)
      : sweep(cta.sweep), count(cta.chunks.count), shared(shared), kept(causal_bits(cta.chunks)), at(cta.to_sum()) {}

  /// P of the next chunk is made while O of this one goes out.
  __device__ __forceinline__ void run() {
    RingPosition<Config::kSlots> slot;
    RingPosition<Config::kTiles> tile;
    if (count > 0) load_q(true), split_q();
    wait_for_sums<256>();
    if (count > 0) start_p(true), wait_multiply<0>(rP);
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, slot.advance(), tile.advance()) {
      const bool more = i + 1 < count;
      const int e_q = exponent, stage = at.stage;
      shared.full[Config::kV][stage].wait(at.parity);
      at.advance();
      shared.s_full[slot.stage].wait(slot.parity);
      start_qs(slot.stage);
      // P V is to have the exponent of Q S. P is at most 2^15 then: what S is bounded by counts this chunk's 64 tokens
      // too.
      const int e_s = read_by_warp(shared.s_exponent[slot.stage]);
      const int e_p =
          e_s - read_by_warp(shared.exponent[Config::kK][stage]) - read_by_warp(shared.exponent[Config::kV][stage]);
      const float scale = power_of_two(max(e_p, -126));
      arrive_by_warp_having(__float_as_uint(scale), shared.empty[Config::kK][stage]);
      split_p(scale);
      start_pv(stage);
      if constexpr (kAhead) load_q(more);
      warpgroup_wait<kBatchesOfHalves>();  // Q S
      keep(Q);
      arrive_by_warp(shared.s_empty[slot.stage]);
      if constexpr (kAhead) {
        split_q();
        start_p(more);
        wait_multiply<kBatchesOfHalves>(rO);
        keep(P);
      } else {
        load_q(more);
        split_q();
        wait_multiply<0>(rO);
        keep(P);
        start_p(more);
      }
      arrive_by_warp(shared.empty[Config::kV][stage]);
      shared.o_empty[tile.stage].wait(tile.parity ^ 1);
      stage_o(shared.o[tile.stage], TwoFactors(-e_q - e_s, sweep.scale));
      publish_to_async();
      __syncwarp();
      arrive_by_warp(shared.o_full[tile.stage]);
      wait_multiply<0>(rP);
    }
  }

 private:
  /// Until here: a product that runs still reads operand A, of which the compiler knows nothing, from its registers.
  template <class Terms>
  static __device__ __forceinline__ void keep(Terms& terms) {
    for (auto& term : terms) warpgroup_fence_operand(term);
  }
  static constexpr bool kAhead = Config::kD <= 64;  // there are registers for the next q and P beside this P and O
  static constexpr int kPairs = Config::kD / 4;

  /// Each warp's 16 rows of q, which have an exponent of their own. there: are there any? If not, it does not wait.
  __device__ __forceinline__ void load_q(bool there) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    int read[Config::kD / 64];
    CUTE_UNROLL
    for (int i = 0; i < Config::kD / 64; ++i, box.advance()) {
      read[i] = box.stage;
      shared.q_full[box.stage].wait(box.parity ^ (there ? 0 : 1));  // the phase before is over
      const float* const from = shared.q_box[box.stage] + row * 32 + lane % 2 * 2;
      CUTE_UNROLL
      for (int j = 0; j < 8; ++j) {  // eight columns each
        const int at = j / 4 * (Config::kBox / 2) + ((j % 4 * 2 + lane % 4 / 2) ^ row % 8) * 4;
        CUTE_UNROLL
        for (int r = 0; r < 2; ++r) {
          const float2 two = *reinterpret_cast<const float2*>(from + at + r * 8 * 32);
          x[16 * i + 2 * j + r][0] = two.x, x[16 * i + 2 * j + r][1] = two.y;
        }
      }
    }
    const unsigned largest = largest_of_warp<2 * kPairs>(x[0]);
    exponent = exponent_for(largest);
    CUTE_UNROLL
    for (const int stage : read) arrive_by_warp_having(largest, shared.q_empty[stage]);
  }
  /// As operand A lies.
  __device__ __forceinline__ void split_q() {
    const float scale = power_of_two(exponent);
    auto high = recast<std::uint32_t>(Q[0]), low = recast<std::uint32_t>(Q[1]);
    CUTE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      x[i][0] *= scale, x[i][1] *= scale;
      high(i) = round_half(x[i][0], x[i][1]), low(i) = round_half(x[i][0], x[i][1]);
    }
  }
  __device__ __forceinline__ void start_p(bool there) {  // P = Q K^T (C, C), of the chunk that k stands at
    shared.full[Config::kK][at.stage].wait(at.parity ^ (there ? 0 : 1));
    const int stage = at.stage;
    const auto k = [&](int term) {
      return typename Config::MmaQk{}.get_slice(0).partition_fragment_B(
          in_shared(shared.k[term][stage], typename Config::LayoutK{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(
        typename Config::MmaQk{}, [&](int term) { return as_wgmma_operand_a(Q[term]); }, k, rP);
  }
  __device__ __forceinline__ void start_qs(int slot) {  // O = Q S (C, M)
    const auto s = [&](int term) {
      return typename Config::MmaQs{}.get_slice(0).partition_fragment_B(
          in_shared(shared.s[term][slot], typename Config::LayoutSt{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(
        typename Config::MmaQs{}, [&](int term) { return as_wgmma_operand_a(Q[term]); }, s, rO);
  }
  __device__ __forceinline__ void split_p(float scale) {  // and 0 where a token would see a later one
    auto high = recast<std::uint32_t>(P[0]), low = recast<std::uint32_t>(P[1]);
    CUTE_UNROLL
    for (int i = 0; i < size(high); ++i) {
      float x = rP(2 * i) * scale, y = rP(2 * i + 1) * scale;
      high(i) = round_half(x, y) & kept(i);
      low(i) = round_half(x, y) & kept(i);
    }
  }
  __device__ __forceinline__ void start_pv(int stage) {  // O += P V (C, M)
    const auto v = [&](int term) {
      return typename Config::MmaPv{}.get_slice(0).partition_fragment_B(
          in_shared(shared.v[term][stage], typename Config::LayoutVt{}))(_, _, _, 0);
    };
    start_multiply_halves<false>(
        typename Config::MmaPv{}, [&](int term) { return as_wgmma_operand_a(P[term]); }, v, rO);
  }
  /// Two boxes of 32 columns, swizzled as TMA does.
  __device__ __forceinline__ void stage_o(float* to, TwoFactors back) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    CUTE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const int at = j / 4 * 64 * 32 + row * 32 + ((j % 4 * 2 + lane % 4 / 2) ^ row % 8) * 4 + lane % 2 * 2;
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        *reinterpret_cast<float2*>(to + at + r * 8 * 32) =
            make_float2(back.of(rO(4 * j + 2 * r)), back.of(rO(4 * j + 2 * r + 1)));
    }
  }

  const LinearSweep& sweep;
  const int count;
  Shared& shared;
  const CausalBits kept;
  RingPosition<Config::kStages> at;  // of k
  RingPosition<Config::kBoxesOfQ> box;
  float x[kPairs][2];  // of q: (2 columns, row / 8, column / 8)
  int exponent;        // of q
  using Half = typename Config::Half;
  decltype(make_tensor<Half>(Layout<Int<Config::kD / 2>>{})) Q[Config::kTerms];    // operand A as it lies
  decltype(make_tensor<Half>(Layout<_32>{})) P[Config::kTerms];                    // likewise
  decltype(partition_fragment_C(typename Config::MmaQk{}, Shape<_64, _64>{})) rP;  // (C, C)
  decltype(partition_fragment_C(typename Config::MmaQs{}, Shape<_64, _64>{})) rO;  // (C, M)
};

}  // namespace falchion::sm90
