// src/sm90/linear_attention/state.cuh: the state S of linear attention in the registers of a warpgroup: adding to it
// what earlier chunks or other CTAs have summed, and visiting its elements. Adding a chunk depends on the type, so that
// is in kernel.cuh (bf16) and linear_attention/halves/kernel.cuh (f32).
#pragma once

#include "base/host_device.hpp"
#include "sm90/linear_attention/cta.cuh"

namespace falchion::sm90 {

/// S (E, M) in f32, in the accumulators of one warpgroup: the 64 columns of this CTA.
template <class Config>
class LinearStateElements {
 public:
  FALCHION_DEVICE explicit LinearStateElements(const LinearCta& cta) : sweep(cta.sweep), column0(cta.column0) {
    clear(rS);
  }
  FALCHION_DEVICE void set_zero() { clear(rS); }

  /// S += scale x, where x (E, M) is in global memory. Where S fills the tile, all loads are issued before any test, so
  /// that their latencies overlap: 1200 clocks instead of 4200.
  FALCHION_DEVICE void add(const float* x, std::int64_t stride_e, std::int64_t stride_m, float scale) {
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
  FALCHION_DEVICE float& element(int i) { return rS(i); }
  /// Calls f(m, e, element) for each element of this thread, where m and e are indices in the state of the whole head.
  template <class F>
  FALCHION_DEVICE void for_each(F f) {
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

}  // namespace falchion::sm90
