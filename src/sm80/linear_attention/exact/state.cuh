// src/sm80/linear_attention/exact/state.cuh: the state of linear attention with f32 between all products, in the
// registers of a CTA's threads: its product with a chunk, the addition of a chunk to it, and visits of its elements.
// S^T (M, E) is not rounded. Its accumulators are operand A of S^T Q^T, if their columns 2t and 2t + 1 are taken as
// columns t and t + 4.
#pragma once

#include "base/host_device.hpp"
#include "sm80/linear_attention/exact/load.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// S^T and z of one CTA. Each of two warps that share rows has half of the columns (E) of S^T. So a scheduler has two
/// warps, and at d 256 the state fits into registers.
template <class Config>
class LinearExactState : public LinearExactOperands<Config> {
  using Operands = LinearExactOperands<Config>;

 public:
  using Operands::kC, Operands::kE, Operands::kM, Operands::kStages, Operands::kBlocks, Operands::kHalf;
  using Operands::kParts, Operands::kStrideQ;
  using Operands::Operands;
  using typename Operands::Weights;

  /// Calls f(m, e, element) for the elements of S^T, before or after a sweep; m and e count within the whole state. S
  /// goes through shared memory, because f would otherwise be unrolled over all registers of S.
  template <class F>
  FALCHION_DEVICE void for_each_of_state(F f) {
    float* all = shared.q[0];  // (M, E)
    const auto move = [&](auto between) {
      CUTE_UNROLL
      for (int j = 0; j < kE / 16; ++j) {
        CUTE_UNROLL
        for (int i = 0; i < 4; i += 2) between(all + own_row(i) * kStrideQ + own_column(j), s[j][i], s[j][i + 1]);
      }
    };
    __syncthreads();
    move([](float* at, float& x, float& y) { *reinterpret_cast<float2*>(at) = {x, y}; });
    __syncthreads();
    CUTE_NO_UNROLL
    for (int i = static_cast<int>(threadIdx.x); i < kM * kE; i += Config::kThreads) {
      const int m = i % kM, e = i / kM;
      if (m < columns && e < sweep.d_qk) f(piece.column0 + m, e, all[m * kStrideQ + e]);
    }
    __syncthreads();
    move([](float* at, float& x, float& y) {
      x = pair(at).x;
      y = pair(at).y;
    });
    __syncthreads();  // q is loaded here next
  }
  /// Calls f(m, element, speaks) for z (M). All lanes of a row have its element; `speaks` is true in one of them.
  template <class F>
  FALCHION_DEVICE void for_each_of_z(F f) {
    if (!weights.with_z()) return;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (own_row(2 * r) < columns) f(piece.column0 + own_row(2 * r), z[r], t == 0 && half == 0);
    }
  }
  FALCHION_DEVICE float behind_last() const { return weights.behind_last(); }

  /// Called after run(): multiplies the state, without the last token's own part, by sweep.tail_with and stores the
  /// sum.
  FALCHION_DEVICE void tail(int b, int h) {
    if (!Config::kGeneral || sweep.tails == nullptr) return;
    const auto at = [&](const View& x) {
      return x.data == nullptr ? nullptr : static_cast<const float*>(x.data) + b * x.stride[0] + h * x.stride[1];
    };
    const float *with = at(sweep.tail_with), *with_z = at(sweep.tail_with_z);
    const std::int64_t step_e = sweep.tail_with.stride[2], step_m = sweep.tail_with.stride[3];
    float sum = 0;
    for_each_of_state([&](int m, int e, float s) { sum = fmaf(s, with[e * step_e + m * step_m], sum); });
    for_each_of_z([&](int m, float z, bool speaks) {
      if (speaks && with_z != nullptr) sum = fmaf(z, with_z[m * sweep.tail_with_z.stride[2]], sum);
    });
    sum = sum_of_cta<Config::kWarps>(sum, shared.p);
    if (threadIdx.x != 0) return;
    sweep.tails[(std::int64_t{b} * piece.heads + h) * ((sweep.d_v + kM - 1) / kM) + piece.column0 / kM] = sum;
  }

 protected:
  using Operands::half, Operands::g, Operands::t, Operands::own_row, Operands::own_column;
  using Operands::sweep, Operands::piece, Operands::shared, Operands::columns, Operands::weights, Operands::weight;

  // ---- S^T Q^T (M, C) -----------------------------------------------------------------------------------------------
  /// Computes S^T Q^T over this warp's half of E.
  FALCHION_DEVICE void multiply_state(int c, float (&o)[kBlocks][4]) const {
    const float* own_q = shared.q[c % kStages] + g * kStrideQ + own_column(0);
    clear(o);
    constexpr int kTogether = 8;  // as in multiply_q_k
    CUTE_UNROLL
    for (int j0 = 0; j0 < kE / 16; j0 += kTogether) {
      float more[kBlocks][4];
      clear(more);
      CUTE_UNROLL
      for (int j = j0; j < j0 + kTogether && j < kE / 16; ++j) {
        Tf32<2> b[kBlocks];
        CUTE_UNROLL
        for (int n = 0; n < kBlocks; ++n) {
          const float2 x = pair(own_q + 8 * n * kStrideQ + 8 * j);
          b[n] = split_tf32(x.x, x.y);
        }
        multiply_tf32<2, kParts>(more, split_tf32(s[j][0], s[j][2], s[j][1], s[j][3]), b);
      }
      add(more, o);
    }
    if (!weights.any()) return;
    const float *grown = weight(c, Weights::kGrownA), *grown_z = weight(c, Weights::kGrownAlpha);
    const bool with_z = weights.with_z() && half == 0;
    CUTE_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int token = 8 * n + 2 * t + i % 2;
        o[n][i] *= grown[token];
        if (with_z) o[n][i] = fmaf(grown_z[token], z[i / 2], o[n][i]);
      }
    }
  }

  // ---- S^T = grown S^T + (V left)^T K (M, E) ------------------------------------------------------------------------
  /// Multiplies S, z and V of the chunk (rV, V^T as operand A) by their weights, and adds the chunk to z.
  FALCHION_DEVICE void fade(int c, float (&rV)[kBlocks][4]) {
    if (!weights.any()) return;
    const float grown = exp2(weight(c, Weights::kSum)[kC - 1]);
    const float *left = weight(c, Weights::kLeftB), *left_z = weight(c, Weights::kLeftBeta);
    CUTE_UNROLL
    for (int j = 0; j < kE / 16; ++j) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) s[j][i] *= grown;
    }
    float more[2] = {};
    CUTE_UNROLL
    for (int i = 0; i < kBlocks; ++i) {
      CUTE_UNROLL
      for (int x = 0; x < 4; ++x) {
        const int token = 8 * i + t + x / 2 * 4;
        if (weights.with_z()) more[x % 2] = fmaf(rV[i][x], left_z[token], more[x % 2]);
        rV[i][x] *= left[token];
      }
    }
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      more[r] += __shfl_xor_sync(~0u, more[r], 1);
      more[r] += __shfl_xor_sync(~0u, more[r], 2);
      z[r] = fmaf(z[r], grown, more[r]);
    }
  }
  /// Sums 32 columns (of this warp's half of E) at a time in accumulators that start from 0, and then adds them to S. S
  /// is a sum over all tokens, and a tensor core that added to S itself would truncate numbers that are small beside S,
  /// always towards 0.
  FALCHION_DEVICE void update_state(int c, const float (&rV)[kBlocks][4]) {
    constexpr int kTogether = 4;
    const float* own_k = shared.k[c % kStages] + t * kStrideQ + kE / 2 * half + g;
    CUTE_UNROLL
    for (int j = 0; j < kE / 16; j += kTogether) {
      float more[kTogether][4];
      clear(more);
      CUTE_UNROLL
      for (int i = 0; i < kBlocks; ++i) {
        Tf32<2> b[kTogether];
        CUTE_UNROLL
        for (int n = 0; n < kTogether; ++n) {
          const float* x = own_k + 8 * i * kStrideQ + 8 * (j + n);
          b[n] = split_tf32(x[0], x[4 * kStrideQ]);
        }
        const auto a = split_tf32(rV[i][0], rV[i][1], rV[i][2], rV[i][3]);
        multiply_tf32<Config::kGeneral ? 2 : kParts, kParts>(more, a, b);
      }
      CUTE_UNROLL
      for (int n = 0; n < kTogether; ++n) {
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) s[j + n][i] += more[n][i];
      }
    }
  }

  float s[kE / 16][4] = {};  // S^T as accumulators of 8 columns each
  float z[2] = {};           // z of rows g and g + 8
};

}  // namespace falchion::sm80
