// src/sm80/linear_attention/state.cuh: the state of linear attention in 16 bits, in the registers of a CTA's threads:
// its conversion to an operand, the addition of a chunk to it, and visits of its elements.
#pragma once

#include "base/host_device.hpp"
#include "sm80/linear_attention/load.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// S^T (M, E) and, with kZ, z of one CTA. z is computed as if v had one more column, of ones.
template <class Config>
class LinearChunkState : public LinearChunkOperands<Config> {
  using Operands = LinearChunkOperands<Config>;

 public:
  using Operands::kC, Operands::kE, Operands::kM, Operands::kStages;
  using typename Operands::Element, typename Operands::Mma, typename Operands::Shared;
  static constexpr bool kZ = Config::kZ;

  FALCHION_DEVICE LinearChunkState(const gpu::LinearAttentionArgs& a, const LinearSweep& sweep,
                                   const LinearPiece& piece, Shared& shared)
      : Operands(a, sweep, piece, shared) {
    clear(rS);
    if constexpr (kZ) clear(rZ);
  }

  /// Calls f(m, e, element) for this thread's elements of S^T; m and e count within the whole state.
  template <class F>
  FALCHION_DEVICE void for_each_of_state(F f) {
    auto S = rows_columns(rS);
    const auto cS =
        rows_columns(Mma{}.get_thread_slice(threadIdx.x).partition_C(make_identity_tensor(Shape<Int<kM>, Int<kE>>{})));
    CUTE_UNROLL
    for (int i = 0; i < size(S); ++i) {
      const int m = static_cast<int>(get<0>(cS(i))), e = static_cast<int>(get<1>(cS(i)));
      if (m < columns && e < sweep.d_qk) f(piece.column0 + m, e, S(i));
    }
  }
  /// Calls f(e, element, speaks) for this thread's elements of z (E). Each warp has z in all of its 16 rows; `speaks`
  /// is true in one lane for each e, and only in the CTA that has column 0.
  template <class F>
  FALCHION_DEVICE void for_each_of_z(F f) {
    if constexpr (kZ) {
      auto Z = rows_columns(rZ);
      const auto cZ = rows_columns(
          Mma{}.get_thread_slice(threadIdx.x).partition_C(make_identity_tensor(Shape<Int<kM>, Int<kE>>{})));
      CUTE_UNROLL
      for (int i = 0; i < size(Z); ++i) {
        const int e = static_cast<int>(get<1>(cZ(i)));
        if (e < sweep.d_qk) f(e, Z(i), static_cast<int>(get<0>(cZ(i))) == 0 && piece.column0 == 0);
      }
    }
  }

 protected:
  using Operands::sweep, Operands::piece, Operands::shared, Operands::columns, Operands::decay, Operands::rV;
  using Operands::tile;

  /// Rounds 16 columns (E) of S^T to 16-bit numbers, which already have the layout of operand A. f16 ends at 65504, so
  /// S is scaled down by `factor` before.
  template <class State>
  FALCHION_DEVICE auto operand_of(const State& rX, int i, float factor) const {
    auto small = make_tensor<float>(Shape<_8>{});
    const auto x = make_tensor(rX.data(), as_operand_a(rX.layout()));  // (8, 1, E / 16)
    CUTE_UNROLL
    for (int j = 0; j < 8; ++j) small(j) = x(j, 0, i) * factor;
    auto rA = make_tensor<Element>(Shape<_8, _1>{});
    convert(small, rA);
    return rA;
  }

  // ---- S^T = 2^sum S^T + (V 2^left)^T K (M, E) ----------------------------------------------------------------------
  FALCHION_DEVICE void update_state(int c) {
    const auto sKt = tile(shared.k[c % kStages], typename Config::LayoutKt{});  // (E, C)
    Mma mma;
    const auto copy_k = make_tiled_copy_B(typename Config::CopyAtomT{}, mma).get_thread_slice(threadIdx.x);
    auto rK = mma.get_thread_slice(threadIdx.x).partition_fragment_B(sKt);  // (4, E / 8, C / 16)
    auto view = copy_k.retile_D(rK);
    const auto tKsK = copy_k.partition_S(sKt);
    [[maybe_unused]] auto rW = make_tensor<Element>(Shape<_8, _1, Int<kC / 16>>{});  // the column of ones
    if constexpr (kZ) fill(rW, Element(1));
    if (decay.any()) fade(c, rW);
    // 16-column reads that are issued before their products
    constexpr int kTogether = Config::kStoresLast ? kE / 16 : 2;
    CUTE_UNROLL
    for (int i = 0; i < kC / 16; ++i) {
      CUTE_UNROLL
      for (int n0 = 0; n0 < kE / 16; n0 += kTogether) {
        CUTE_UNROLL
        for (int n = n0; n < n0 + kTogether; ++n) copy(typename Config::CopyAtomT{}, tKsK(_, n, i), view(_, n, i));
        CUTE_UNROLL
        for (int n = 2 * n0; n < 2 * (n0 + kTogether); ++n) {
          auto s = rS(_, _0{}, n);
          mma.call(rV(_, _0{}, i), rK(_, n, i), s);
          if constexpr (kZ) {
            auto z = rZ(_, _0{}, n);
            mma.call(rW(_, _0{}, i), rK(_, n, i), z);
          }
        }
      }
    }
  }
  template <class Weights>
  FALCHION_DEVICE void fade(int c, [[maybe_unused]] Weights& rW) {
    const float* left = shared.left[c % 3];
    const float grown = shared.grown[c % 3][kC - 1];
    CUTE_UNROLL
    for (int i = 0; i < size(rS); ++i) rS(i) *= grown;
    if constexpr (kZ) {
      CUTE_UNROLL
      for (int i = 0; i < size(rZ); ++i) rZ(i) *= grown;
    }
    const auto cV = Mma{}
                        .get_thread_slice(threadIdx.x)
                        .partition_A(make_identity_tensor(Shape<Int<kM>, Int<kC>>{}));  // (8, 1, C / 16)
    CUTE_UNROLL
    for (int i = 0; i < size(rV); ++i) {
      const float weight = left[get<1>(cV(i))];
      rV(i) = static_cast<Element>(static_cast<float>(rV(i)) * weight);
      if constexpr (kZ) rW(i) = static_cast<Element>(weight);
    }
  }

  decltype(partition_fragment_C(Mma{}, Shape<Int<kM>, Int<kE>>{})) rS;  // (4, 1, E / 8) f32
  decltype(make_tensor<float>(Shape<Shape<_2, _2>, _1, Int<kZ ? kE / 8 : 1>>{})) rZ;
};

}  // namespace falchion::sm80
