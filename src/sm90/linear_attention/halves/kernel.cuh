// src/sm90/linear_attention/halves/kernel.cuh: linear attention on Hopper in f32, in the chunks of
// linear_attention/kernel.cuh. Each operand of a product is split into two f16 numbers: x 2^n = high + low, where low
// is the rounding error of high. Together they keep 23 bits of x. Of the four products of such parts, low times low is
// left out.
//
// One n serves a group of numbers: k of a chunk, or v of a chunk, or a few rows of q. It brings the largest number of
// the group below 2^15. A number that is at least 2^-16 of the largest then keeps all its bits, and a smaller one has
// an error of 2^-39 of the largest. The two small products are summed before the large one (for S^T Q^T in
// linear_attention/wide/kernel.cuh: for 16 columns at a time). docs/design/linear_attention.md, "f32 on Hopper", has
// the reasons and the measurements.
#pragma once

#include "base/host_device.hpp"
#include "sm90/linear_attention/halves/query.cuh"
#include "sm90/linear_attention/state.cuh"

namespace falchion::sm90 {

/// Multiplies 64 x 64 accumulators of a warpgroup by `scale`, splits them, and stores both parts to shared memory in
/// rows of 128 bytes. kept(i) is a bit mask of pair i; bits outside of it become 0. The loop splits only as many
/// numbers at a time as one stmatrix stores, since registers are scarce while products are running.
template <class Rows, class Half, class Kept>
FALCHION_DEVICE void stage_halves(const Rows& rows, float scale, Half* high, Half* low, const Kept& kept) {
  // Hides the origin of the pointers. Otherwise the compiler computes all addresses ahead and keeps them in registers.
  asm volatile("" : "+l"(high), "+l"(low));
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
      for (int i = 0; i < 4; ++i) pairs[i] = round_half(rest[2 * i], rest[2 * i + 1]) & kept(4 * j + i);
      store_matrices(pairs, to, j);
    }
  }
}
template <class Rows, class Half>
FALCHION_DEVICE void stage_halves(const Rows& rows, float scale, Half* high, Half* low) {
  stage_halves(rows, scale, high, low, [](int) { return ~0u; });
}

/// Stores 64 x 64 f32 accumulators to shared memory as two boxes of 32 columns, in TMA's swizzle. They are multiplied
/// by `first` in the first of a thread's two rows and by `second` in the other.
template <class Rows>
FALCHION_DEVICE void stage_floats(const Rows& rows, float* to, TwoFactors first, TwoFactors second) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
  int at0 = row * 32 + (lane % 4 / 2 ^ row % 8) * 4 + lane % 2 * 2;
  asm volatile("" : "+r"(at0));  // as in stage_halves, so that not all addresses are kept in registers
  CUTE_UNROLL
  for (int j = 0; j < 8; ++j) {
    float* const at = to + j / 4 * 64 * 32 + (at0 ^ j % 4 * 8);
    *reinterpret_cast<float2*>(at) = make_float2(first.of(rows(4 * j)), first.of(rows(4 * j + 1)));
    *reinterpret_cast<float2*>(at + 8 * 32) = make_float2(second.of(rows(4 * j + 2)), second.of(rows(4 * j + 3)));
  }
}

/// Multiplies P by `scale` and splits it, in the layout of operand A. Masked elements of P become 0: kept(i) has 1 bits
/// for the numbers of pair i that stay.
template <class Accumulators, class Halves, class Kept>
FALCHION_DEVICE void split_causal(const Accumulators& rP, float scale, Halves (&P)[2], const Kept& kept) {
  auto high = recast<std::uint32_t>(P[0]), low = recast<std::uint32_t>(P[1]);
  CUTE_UNROLL
  for (int i = 0; i < size(high); ++i) {
    float x = rP(2 * i) * scale, y = rP(2 * i + 1) * scale;
    const std::uint32_t bits = kept(i);
    high(i) = round_half(x, y) & bits;
    low(i) = round_half(x, y) & bits;
  }
}

/// An upper bound of |S|. It is a double because it may exceed the range of f32.
struct StateBound {
  double most;
  /// Raises the bound by 64 max|k| max|v|, the most that a chunk of 64 tokens can add if its k and v have the exponents
  /// e_k and e_v: then |k| < 2^(15 - e_k) and |v| < 2^(15 - e_v). Returns the exponent of the new S.
  FALCHION_DEVICE int exponent_with(int e_k, int e_v) {
    most += wide_power_of_two(6 + 15 - e_k + 15 - e_v);
    return exponent();
  }
  /// The exponent of S: the largest n for which 2^n times the bound is below 2^15.
  FALCHION_DEVICE int exponent() const { return min(14 + 1023 - (__double2hiint(most) >> 20), 126); }
};

/// The warpgroup that carries S in f32. It sums the product of a chunk in separate accumulators and adds these to S in
/// f32, because the tensor core would cut off the bits below the precision of the running sum.
///
/// For each chunk it waits for k and v (full) and starts K^T V for the first 64 rows of S. Then it works out the
/// exponent of S, waits for a free slot (s_empty), splits S as it was before this chunk into that slot and signals
/// s_full. Then it waits for the product, adds it to S, does the same for the other rows, and releases k and v (empty).
template <class Config>
class LinearHalvesState : public LinearStateElements<Config> {
 public:
  using LinearStateElements<Config>::LinearStateElements;

  /// kSums: only adds `count` chunks to S. Otherwise it also passes S to the output warps before each chunk.
  template <bool kSums, class Shared>
  FALCHION_DEVICE void run(int count, Shared& shared) {
    RingPosition<Config::kSlots> slot;
    StateBound bound{0};
    if constexpr (!kSums)
      bound.most = wide_power_of_two(
          15 - exponent_for(largest_of_warps<32 * kHalves, 4>(rS.data(), shared.s_largest, kOfState)));
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, at.advance()) {
      shared.full[Config::kK][at.stage].wait(at.parity);
      shared.full[Config::kV][at.stage].wait(at.parity);
      const int e_k = read_by_warp(shared.exponent[Config::kK][at.stage]),
                e_v = read_by_warp(shared.exponent[Config::kV][at.stage]);
      start_product(shared, at.stage, 0);  // K^T V, the first 64 rows
      if constexpr (!kSums) {
        const int e_s = bound.exponent_with(e_k, e_v);
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
        for (int j = 0; j < size(added); ++j) rows(j) += back.of(added(j));  // S += K^T V
      }
      __syncwarp();
      for (const int operand : {Config::kK, Config::kV})  // during sums also in place of the output warps
        arrive_by_warp(shared.empty[operand][at.stage], kSums ? 2 : 1);
    }
  }

 private:
  template <class Shared>
  FALCHION_DEVICE void start_product(Shared& shared, int stage, int half) {  // 64 rows (E) of K^T V
    asm volatile("" : "+r"(stage));  // otherwise the compiler keeps the addresses of all stages in registers
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

/// The warpgroup that makes the outputs. P of the next chunk is computed while O of this one goes to shared memory.
///
/// Before the first chunk it loads q (LinearQuery), waits for the sums of the segment, then for k, and makes P. For
/// each chunk it then waits for v (full) and S (s_full) and starts O = Q S; reads the exponents and releases k (empty);
/// splits P and starts O += P V; waits for Q S, releases S (s_empty) and loads q of the next chunk; waits for O, then
/// for k of the next chunk, and starts P of it; releases v (empty); waits for a free place (o_empty), writes O there
/// and signals o_full.
template <class Config>
class LinearHalvesOutputs {
 public:
  using Shared = typename Config::Shared;

  FALCHION_DEVICE LinearHalvesOutputs(const LinearCta& cta, Shared& shared)
      : sweep(cta.sweep), count(cta.chunks.count), shared(shared), kept(causal_bits(cta.chunks)), at(cta.to_sum()) {}

  FALCHION_DEVICE void run() {
    RingPosition<Config::kSlots> slot;
    RingPosition<Config::kTiles> tile;
    if (count > 0) q.load(true, shared);
    wait_for_sums<Config>();
    if (count > 0) {
      start_p(true);  // P = Q K^T
      wait_multiply<0>(rP);
    }
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, slot.advance(), tile.advance()) {
      const bool more = i + 1 < count;
      const int stage = at.stage, e_q[] = {q.exponent[0], q.exponent[1]};
      shared.full[Config::kV][stage].wait(at.parity);
      at.advance();
      shared.s_full[slot.stage].wait(slot.parity);
      start_qs(slot.stage);  // O = Q S
      // P V must have the same exponent as Q S, because both are summed in O. So P is multiplied by 2^e_p. The result
      // is at most 2^15, since the bound that gives e_s includes the 64 tokens of this chunk.
      const int e_s = read_by_warp(shared.s_exponent[slot.stage]);
      const int e_p =
          e_s - read_by_warp(shared.exponent[Config::kK][stage]) - read_by_warp(shared.exponent[Config::kV][stage]);
      const float scale = power_of_two(max(e_p, -126));
      arrive_by_warp_having(__float_as_uint(scale), shared.empty[Config::kK][stage]);
      split_causal(rP, scale, P, kept);    // P = 0 for later tokens
      start_pv(stage);                     // O += P V
      warpgroup_wait<kBatchesOfHalves>();  // Q S is done; the batches of P V may still run
      keep_terms(q.terms);
      arrive_by_warp(shared.s_empty[slot.stage]);
      q.load(more, shared);
      wait_multiply<0>(rO);
      keep_terms(P);
      start_p(more);  // P = Q K^T of the next chunk
      arrive_by_warp(shared.empty[Config::kV][stage]);
      shared.o_empty[tile.stage].wait(tile.parity ^ 1);
      stage_floats(rO, shared.o[tile.stage], TwoFactors(-e_q[0] - e_s, sweep.scale),
                   TwoFactors(-e_q[1] - e_s, sweep.scale));
      publish_to_async();
      __syncwarp();
      arrive_by_warp(shared.o_full[tile.stage]);
      wait_multiply<0>(rP);
    }
  }

 private:
  /// Starts P = Q K^T (C, C) of the chunk at `at`, if there is one (there). Otherwise it waits for the previous phase,
  /// which is over, and multiplies stale data: ptxas serialises all products if a product is started in one branch
  /// only.
  FALCHION_DEVICE void start_p(bool there) {
    shared.full[Config::kK][at.stage].wait(at.parity ^ (there ? 0 : 1));
    const int stage = at.stage;
    const auto k = [&](int term) {
      return typename Config::MmaQk{}.get_slice(0).partition_fragment_B(
          in_shared(shared.k[term][stage], typename Config::LayoutK{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(
        typename Config::MmaQk{}, [&](int term) { return as_wgmma_operand_a(q.terms[term]); }, k, rP);
    q.release(shared);
  }
  FALCHION_DEVICE void start_qs(int slot) {  // O = Q S (C, M)
    const auto s = [&](int term) {
      return typename Config::MmaQs{}.get_slice(0).partition_fragment_B(
          in_shared(shared.s[term][slot], typename Config::LayoutSt{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(
        typename Config::MmaQs{}, [&](int term) { return as_wgmma_operand_a(q.terms[term]); }, s, rO);
  }
  FALCHION_DEVICE void start_pv(int stage) {  // O += P V (C, M)
    const auto v = [&](int term) {
      return typename Config::MmaPv{}.get_slice(0).partition_fragment_B(
          in_shared(shared.v[term][stage], typename Config::LayoutVt{}))(_, _, _, 0);
    };
    start_multiply_halves<false>(
        typename Config::MmaPv{}, [&](int term) { return as_wgmma_operand_a(P[term]); }, v, rO);
  }

  const LinearSweep& sweep;
  const int count;
  Shared& shared;
  const CausalBits kept;
  RingPosition<Config::kStages> at;  // the stage from which start_p takes k
  LinearQuery<Config> q;
  using Half = typename Config::Half;
  decltype(make_tensor<Half>(Layout<_32>{})) P[Config::kTerms];                    // (C, C), as operand A
  decltype(partition_fragment_C(typename Config::MmaQk{}, Shape<_64, _64>{})) rP;  // (C, C)
  decltype(partition_fragment_C(typename Config::MmaQs{}, Shape<_64, _64>{})) rO;  // (C, M)
};

}  // namespace falchion::sm90
