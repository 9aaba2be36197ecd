// src/sm80/linear_attention/exact/kernel.cuh: linear attention in chunks like linear_attention/kernel.cuh, but with f32
// between all products, each of which consists of up to three TF32 products. It is for f32 (with an error of 5e-6), and
// for results with large cancellation, such as the gradient of a decay. Everything but P is transposed here too. The
// state is in state.cuh.
#pragma once

#include "base/host_device.hpp"
#include "sm80/linear_attention/exact/state.cuh"
#include "sm80/linear_attention/exact/store.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// The work of one CTA: 64 columns of v and o, for all tokens of a piece. Two warps share rows of P, of S^T and of O^T:
/// each has half of the columns of P, half of the columns (E) of S^T, and half of each sum of O^T, and in the end they
/// exchange these sums.
template <class Config_>
class LinearExactChunks : public LinearExactState<Config_> {
  using State = LinearExactState<Config_>;

 public:
  using Config = Config_;
  using Element = typename Config::Element;
  using State::kC, State::kE, State::kM, State::kStages, State::kBlocks, State::kHalf;
  using State::kParts, State::kStrideQ, State::kStrideV;
  using State::State;
  using typename State::Weights;

  /// Computes o of all tokens, and leaves the state after the last token in s.
  FALCHION_DEVICE void run() {
    weights.start(shared.weights);
    if constexpr (kStages > 1) load(0, true);
    for (int c = 0; c < piece.chunks; ++c) {
      arrive(c, true);
      float p[kHalf][4], o[kBlocks][4], own_o[kHalf][4];
      multiply_q_k(c, p);    // P = Q K^T
      store_p(c, p);         // P = 0 for later tokens
      __syncthreads();       // P is written
      multiply_state(c, o);  // O = Q S
      read_v(c);
      multiply_p(o);  // O += P V
      exchange_o(o, own_o);
      store_o(c, own_o);
      fade(c, rV);          // S and V times their decay
      update_state(c, rV);  // S += K^T V
    }
  }
  /// Computes only the state after the last token. Returns the factor by which a state fades over the piece, in bits.
  FALCHION_DEVICE float run_state() {
    float faded = 0;
    weights.start(shared.weights);
    if constexpr (kStages > 1) load(0, false);
    for (int c = 0; c < piece.chunks; ++c) {
      arrive(c, false);
      if (weights.any()) faded += weight(c, Weights::kSum)[kC - 1];
      read_v(c);
      fade(c, rV);
      update_state(c, rV);
    }
    return faded;
  }

 private:
  // ---- P = tril(Q K^T) (C, C) ---------------------------------------------------------------------------------------
  FALCHION_DEVICE void multiply_q_k(int c, float (&p)[kHalf][4]) const {
    const float* own_q = shared.q[c % kStages] + own_row(0) * kStrideQ + 2 * t;
    const float* own_k = shared.k[c % kStages] + (8 * kHalf * half + g) * kStrideQ + 2 * t;
    float all[kHalf][4];
    clear(p);
    clear(all);
    constexpr int kTogether = 8;  // steps that share an accumulator; update_state gives the reason
#pragma unroll(kE <= 64 ? 8 : 4)
    for (int j = 0; j < kE / 8; ++j) {
      const float2 upper = pair(own_q + 8 * j), lower = pair(own_q + 8 * kStrideQ + 8 * j);
      const auto a = split_tf32(upper.x, lower.x, upper.y, lower.y);
      Tf32<2> b[kHalf];
      CUTE_UNROLL
      for (int n = 0; n < kHalf; ++n) {
        const float2 x = pair(own_k + 8 * n * kStrideQ + 8 * j);
        b[n] = split_tf32(x.x, x.y);
      }
      if (j % kTogether == 0 && j > 0) {
        add(p, all);
        clear(p);
      }
      multiply_tf32<kParts, kParts>(p, a, b);
    }
    if constexpr (kE / 8 > kTogether) add(all, p);
  }
  FALCHION_DEVICE void store_p(int c, float (&p)[kHalf][4]) const {
    if (weights.any()) weigh_p(c, p);
    const int own = Config::kGeneral && sweep.others_only ? 0 : 1;  // 1: the diagonal of P counts
    CUTE_UNROLL
    for (int n = 0; n < kHalf; ++n) {
      CUTE_UNROLL
      for (int i = 0; i < 4; i += 2) {
        const int row = own_row(i);
        const int column = own_token(n);
        const int end = row + own;
        const float2 kept = {column < end ? p[n][i] : 0.f, column + 1 < end ? p[n][i + 1] : 0.f};
        *reinterpret_cast<float2*>(shared.p + row * Config::kStrideP + column) = kept;
      }
    }
  }
  FALCHION_DEVICE void weigh_p(int c, float (&p)[kHalf][4]) const {
    const float *sum = weight(c, Weights::kSum), *low = weight(c, Weights::kLow);
    const float *a = weight(c, Weights::kA), *b = weight(c, Weights::kB);
    const float *alpha = weight(c, Weights::kAlpha), *beta = weight(c, Weights::kBeta);
    const bool with_z = weights.with_z();
    CUTE_UNROLL
    for (int n = 0; n < kHalf; ++n) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = own_row(i), column = own_token(n) + i % 2;
        p[n][i] *= a[row] * b[column];
        if (with_z) p[n][i] = fmaf(alpha[row], beta[column], p[n][i]);
        p[n][i] *= exp2(column <= row ? (sum[row] - sum[column]) + (low[row] - low[column]) : 0.f);
      }
    }
  }

  // ---- O^T = S^T Q^T + V^T P^T (M, C) -------------------------------------------------------------------------------
  FALCHION_DEVICE void read_v(int c) {
    const float* own = shared.v[c % kStages] + t * kStrideV + own_row(0);
    CUTE_UNROLL
    for (int i = 0; i < kBlocks; ++i) {
      CUTE_UNROLL
      for (int x = 0; x < 4; ++x) rV[i][x] = own[(8 * i + x / 2 * 4) * kStrideV + x % 2 * 8];
    }
  }
  /// Adds V^T P^T over every second block of 8 tokens: later blocks need fewer rows of P, so this divides the work
  /// evenly.
  FALCHION_DEVICE void multiply_p(float (&o)[kBlocks][4]) const {
    const float* own_p = shared.p + g * Config::kStrideP + 8 * half + t;
    for_each(make_int_sequence<kHalf>{}, [&](auto i) {
      constexpr int kFrom = 2 * decltype(i)::value;
      Tf32<2> b[kBlocks];
      CUTE_UNROLL
      for (int n = kFrom; n < kBlocks; ++n) {  // P is 0 in the rows before
        const float* x = own_p + 8 * n * Config::kStrideP + 8 * kFrom;
        b[n] = split_tf32(x[0], x[4]);
      }
      float a[4];
      CUTE_UNROLL
      for (int x = 0; x < 4; ++x) a[x] = half == 0 ? rV[kFrom][x] : rV[kFrom + 1][x];
      multiply_tf32<kParts, 2, kFrom>(o, split_tf32(a[0], a[1], a[2], a[3]), b);
    });
  }
  /// Adds the sums of the two warps that share rows. Each warp gets the tokens that are its columns of P.
  FALCHION_DEVICE void exchange_o(const float (&o)[kBlocks][4], float (&own)[kHalf][4]) {
    const auto at = [&](int n, int i) -> float& {
      return shared.o[(8 * n + 2 * t + i % 2) * Config::kStrideP + own_row(i)];
    };
    CUTE_UNROLL
    for (int n = 0; n < kHalf; ++n) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) at(kHalf - kHalf * half + n, i) = half == 0 ? o[kHalf + n][i] : o[n][i];
    }
    __syncthreads();
    CUTE_UNROLL
    for (int n = 0; n < kHalf; ++n) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i)
        own[n][i] = ((half == 0 ? o[n][i] : o[kHalf + n][i]) + at(kHalf * half + n, i)) * sweep.scale;
    }
  }
  FALCHION_DEVICE void store_o(int c, const float (&o)[kHalf][4]) {
    if constexpr (Config::kGeneral) {
      stage_o(o);
      LinearExactOutput<Config>(sweep, piece, columns, shared.o).store(c);
    } else {
      store_straight(c, o);
    }
  }
  /// Stores O^T directly to the rows of o: 8 lanes have 8 neighbouring columns of a token.
  FALCHION_DEVICE void store_straight(int c, const float (&o)[kHalf][4]) const {
    const std::int64_t step = piece.step * sweep.o.x.stride[1];
    auto* to = piece.template base<Element>(sweep.o) + piece.first * sweep.o.x.stride[1] + piece.column0;
    CUTE_UNROLL
    for (int n = 0; n < kHalf; ++n) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int m = own_row(i), token = c * kC + own_token(n) + i % 2;
        if (m < columns && token < piece.tokens) to[token * step + m] = static_cast<Element>(o[n][i]);
      }
    }
  }
  /// Writes O^T to shared memory by rows, from where complex outputs take it, so that their code is not unrolled.
  FALCHION_DEVICE void stage_o(const float (&o)[kHalf][4]) {
    CUTE_UNROLL
    for (int n = 0; n < kHalf; ++n) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) shared.o[(own_token(n) + i % 2) * Config::kStrideP + own_row(i)] = o[n][i];
    }
    __syncthreads();
  }

  using State::half, State::g, State::t, State::own_row, State::own_token;
  using State::load, State::arrive, State::weight, State::multiply_state, State::fade, State::update_state;
  using State::sweep, State::piece, State::shared, State::columns, State::weights;
  float rV[kBlocks][4];  // V^T as operand A, 8 tokens each
};

}  // namespace falchion::sm80
