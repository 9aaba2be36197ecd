// src/sm90/linear_attention_thirds.cuh: the chunks of linear_attention_chunks.cuh in f32: every operand of a product is
// taken apart into three bf16, x = high + middle + low, each what rounding has left of x. Of the nine products low low,
// low middle and middle low are left out, 2^-26 of the whole. What is small is summed first.
#pragma once

#include "sm90/linear_attention_chunks.cuh"
#include "sm90/linear_attention_thirds_config.hpp"

namespace falchion::sm90 {

/// Two floats rounded to bf16; x and y become what is left of them. From 3.396e38 on they count as infinite.
__device__ __forceinline__ std::uint32_t round_third(float& x, float& y) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
  x -= __uint_as_float(pair << 16), y -= __uint_as_float(pair & 0xffff0000u);
  return pair;
}

using Third =
    decltype(make_tensor<bf16>(Layout<_32>{}));  // of 64 x 64 accumulators of a warpgroup, operand A as it lies
/// x: what is left of it.
__device__ __forceinline__ void round_third(float (&x)[32], Third& third) {
  auto pairs = recast<std::uint32_t>(third);
  CUTE_UNROLL
  for (int i = 0; i < size(pairs); ++i) pairs(i) = round_third(x[2 * i], x[2 * i + 1]);
}

/// C = A B (kClear) or C += A B; a(i), b(i): the thirds. kBatchesOfThirds batches.
constexpr int kBatchesOfThirds = 6;
template <bool kClear, class Mma, class A, class B, class C>
__device__ __forceinline__ void start_multiply_thirds(Mma mma, A a, B b, C& c) {
  start_multiply<kClear>(mma, a(2), b(0), c);
  start_multiply<false>(mma, a(0), b(2), c);
  start_multiply<false>(mma, a(1), b(1), c);
  start_multiply<false>(mma, a(1), b(0), c);
  start_multiply<false>(mma, a(0), b(1), c);
  start_multiply<false>(mma, a(0), b(0), c);
}

/// The warpgroup that brings k, v and q, 64 x 64 floats at a time through its registers, and takes them apart.
template <class Config, bool kSums>
class LinearSplitter {
  static constexpr int kBoxesOfD = Config::kD / 64, kBoxes = (kSums ? 1 : 2) * kBoxesOfD + 1;

 public:
  __device__ __forceinline__ LinearSplitter(const LinearSweep& sweep, const ChunkRange& chunks,
                                            const sm80::LinearBlock& block, int column0, int rows)
      : chunks(chunks), thread(static_cast<int>(threadIdx.x) % 128), rows(rows) {
    const auto tensor = [&](const LinearSweep::Rows16& of, int column, int columns) {
      const View& x = of.x;
      const float* data = static_cast<const float*>(x.data) + block.b * x.stride[0] + block.h / of.shared * x.stride[2];
      return Rows{data + column + thread % 16 * 4, x.stride[1], columns - column - thread % 16 * 4};
    };
    k = tensor(sweep.k, 0, sweep.d_qk), v = tensor(sweep.v, column0, sweep.d_v), q = tensor(sweep.q, 0, sweep.d_qk);
  }

  template <class Shared>
  __device__ __forceinline__ void run(Shared& shared) {
    RingPosition<Config::kStages> at;
    Box ahead;
    load(0, 0, ahead);
    CUTE_NO_UNROLL
    for (int i = 0; i < chunks.count; ++i, at.advance()) {
      shared.empty[at.stage].wait(at.parity ^ 1);
      CUTE_UNROLL
      for (int box = 0; box < kBoxes; ++box) {
        const auto part = [&](int third) -> bf16* {
          if (box < kBoxesOfD) return shared.k[third][at.stage] + box * 64 * 64;
          if (box == kBoxesOfD) return shared.v[third][at.stage];
          if constexpr (!kSums) return shared.q[third][at.stage] + (box - kBoxesOfD - 1) * 64 * 64;
          return nullptr;
        };
        split(ahead, {part(0), part(1), part(2)});
        load(i + (box + 1) / kBoxes, (box + 1) % kBoxes, ahead);
      }
      cutlass::arch::fence_view_async_shared();
      __syncwarp();
      arrive_by_warp(shared.full[at.stage]);
    }
  }

 private:
  struct Rows {
    const float* x;
    std::int64_t stride;
    int columns;  // from x on
  };
  struct Box {  // 4 columns of every 8th row a thread
    float4 row[8];
  };
  __device__ __forceinline__ void load(int chunk, int box, Box& to) const {
    const Rows& tensor = box < kBoxesOfD ? k : box == kBoxesOfD ? v : q;
    const int column = box < kBoxesOfD ? 64 * box : box == kBoxesOfD ? 0 : 64 * (box - kBoxesOfD - 1);
    const int row = chunks.row(chunk) + thread / 16;
    const float* from = tensor.x + row * tensor.stride + column;
    const int inside = chunk < chunks.count && column < tensor.columns ? rows - row : 0;
    CUTE_UNROLL
    for (int j = 0; j < 8; ++j, from += 8 * tensor.stride)
      to.row[j] = 8 * j < inside ? __ldg(reinterpret_cast<const float4*>(from)) : float4{};
  }
  __device__ __forceinline__ void split(Box& box, bf16* const (&parts)[Config::kThirds]) const {
    const int row = thread / 16, column = thread % 16 * 4;
    const int at = row * 64 + ((column / 8) ^ row % 8) * 8 + column % 8;  // swizzled as wgmma reads
    CUTE_UNROLL
    for (int j = 0; j < 8; ++j) {
      float4& x = box.row[j];
      CUTE_UNROLL
      for (bf16* const part : parts)
        *reinterpret_cast<uint2*>(part + at + 8 * 64 * j) = {round_third(x.x, x.y), round_third(x.z, x.w)};
    }
  }

  const ChunkRange& chunks;
  const int thread, rows;
  Rows k, v, q;
};

/// The warpgroup that carries S. What a chunk adds is summed by itself: the tensor core would cut off what does not fit
/// under the sum so far.
template <class Config>
class LinearThirdsState : public LinearStateElements<Config> {
 public:
  using LinearStateElements<Config>::LinearStateElements;

  template <bool kSums, class Shared>
  __device__ __forceinline__ void run(int count, Shared& shared) {
    RingPosition<Config::kStages> at;
    RingPosition<Config::kSlots> slot;
    const auto slice = typename Config::MmaState{}.get_slice(0);
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, at.advance()) {
      if constexpr (!kSums) {
        shared.s_empty[slot.stage].wait(slot.parity ^ 1);
        CUTE_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          const auto rows = rS(_, half, 0);
          float rest[32];
          CUTE_UNROLL
          for (int j = 0; j < size(rows); ++j) rest[j] = rows(j);
          CUTE_UNROLL
          for (int n = 0; n < Config::kThirds; ++n) {
            Third third;
            round_third(rest, third);
            stage(third, shared.s[n][slot.stage] + half * 64 * Config::kColumns);
          }
        }
        cutlass::arch::fence_view_async_shared();
        __syncwarp();
        arrive_by_warp(shared.s_full[slot.stage]);
        slot.advance();
      }
      shared.full[at.stage].wait(at.parity);
      CUTE_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        const auto k = [&](int third) {
          bf16* const tile = shared.k[third][at.stage] + half * 64 * Config::kChunk;
          return slice.partition_fragment_A(in_shared(tile, typename Config::LayoutKt{}))(_, _, _, 0);
        };
        const auto v = [&](int third) {
          bf16* const tile = shared.v[third][at.stage];
          return slice.partition_fragment_B(in_shared(tile, typename Config::LayoutVt{}))(_, _, _, 0);
        };
        start_multiply_thirds<true>(typename Config::MmaState{}, k, v, added);
        wait_multiply<0>(added);
        auto rows = rS(_, half, 0);
        CUTE_UNROLL
        for (int j = 0; j < size(added); ++j) rows(j) += added(j);
      }
      arrive_by_warp(shared.empty[at.stage]);
    }
  }

 private:
  using LinearStateElements<Config>::rS, LinearStateElements<Config>::kHalves;
  decltype(partition_fragment_C(typename Config::MmaState{}, Shape<_64, _64>{})) added;
};

/// The warpgroup that makes the outputs.
template <class Config>
class LinearThirdsOutputs {
 public:
  using Shared = typename Config::Shared;

  __device__ __forceinline__ LinearThirdsOutputs(const LinearSweep& sweep, const ChunkRange& chunks, int column0,
                                                 Shared& shared)
      : sweep(sweep), chunks(chunks), column0(column0), shared(shared), kept(causal_bits(chunks)) {}

  __device__ __forceinline__ void run(float* o, std::int64_t stride, int rows) {
    RingPosition<Config::kStages> at;
    RingPosition<Config::kSlots> slot;
    CUTE_NO_UNROLL
    for (int i = 0; i < chunks.count; ++i, at.advance(), slot.advance()) {
      shared.full[at.stage].wait(at.parity);
      start_p(at.stage);
      shared.s_full[slot.stage].wait(slot.parity);
      start_qs(at.stage, slot.stage);
      wait_multiply<kBatchesOfThirds>(rP);
      split_p();
      start_pv(at.stage);
      wait_multiply<0>(rO);
      arrive_by_warp(shared.empty[at.stage]);
      arrive_by_warp(shared.s_empty[slot.stage]);
      store(o, stride, chunks.row(i), rows);
    }
  }

 private:
  __device__ __forceinline__ auto q(int third, int stage) const {
    return typename Config::MmaQk{}.get_slice(0).partition_fragment_A(
        in_shared(shared.q[third][stage], typename Config::LayoutQ{}))(_, _, _, 0);
  }
  __device__ __forceinline__ void start_p(int stage) {  // P = Q K^T (C, C)
    const auto k = [&](int third) {
      return typename Config::MmaQk{}.get_slice(0).partition_fragment_B(
          in_shared(shared.k[third][stage], typename Config::LayoutQ{}))(_, _, _, 0);
    };
    start_multiply_thirds<true>(
        typename Config::MmaQk{}, [&](int third) { return q(third, stage); }, k, rP);
  }
  __device__ __forceinline__ void start_qs(int stage, int slot) {  // O = Q S (C, M)
    const auto s = [&](int third) {
      return typename Config::MmaQs{}.get_slice(0).partition_fragment_B(
          in_shared(shared.s[third][slot], typename Config::LayoutSt{}))(_, _, _, 0);
    };
    start_multiply_thirds<true>(
        typename Config::MmaQs{}, [&](int third) { return q(third, stage); }, s, rO);
  }
  __device__ __forceinline__ void split_p() {  // and 0 where a token would see a later one
    float rest[32];
    CUTE_UNROLL
    for (int j = 0; j < size(rP); ++j) rest[j] = rP(j);
    CUTE_UNROLL
    for (Third& third : P) {
      round_third(rest, third);
      auto pairs = recast<std::uint32_t>(third);
      CUTE_UNROLL
      for (int j = 0; j < size(pairs); ++j) pairs(j) &= kept(j);
    }
  }
  __device__ __forceinline__ void start_pv(int stage) {  // O += P V (C, M)
    const auto v = [&](int third) {
      return typename Config::MmaPv{}.get_slice(0).partition_fragment_B(
          in_shared(shared.v[third][stage], typename Config::LayoutVt{}))(_, _, _, 0);
    };
    start_multiply_thirds<false>(
        typename Config::MmaPv{}, [&](int third) { return as_wgmma_operand_a(P[third]); }, v, rO);
  }
  /// Rows of 8 columns a quad: whole sectors.
  __device__ __forceinline__ void store(float* o, std::int64_t stride, int row0, int rows) const {
    const int row = row0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    const int column = column0 + static_cast<int>(threadIdx.x) % 4 * 2;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (row + 8 * r >= rows) continue;
      float* const to = o + (row + 8 * r) * stride + column;
      CUTE_UNROLL
      for (int i = 0; i < 8; ++i)
        if (column + 8 * i < sweep.d_v)
          __stcs(reinterpret_cast<float2*>(to + 8 * i),
                 make_float2(rO(4 * i + 2 * r) * sweep.scale, rO(4 * i + 2 * r + 1) * sweep.scale));
    }
  }

  const LinearSweep& sweep;
  const ChunkRange& chunks;
  const int column0;
  Shared& shared;
  const CausalBits kept;
  decltype(partition_fragment_C(typename Config::MmaQk{}, Shape<_64, _64>{})) rP;  // (C, C)
  decltype(partition_fragment_C(typename Config::MmaQs{}, Shape<_64, _64>{})) rO;  // (C, M)
  Third P[Config::kThirds];
};

}  // namespace falchion::sm90
