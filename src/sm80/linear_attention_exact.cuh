// src/sm80/linear_attention_exact.cuh: linear attention in chunks like linear_attention_chunks.cuh, but with f32
// between all products, each of which consists of up to three TF32 products. It serves f32 (5e-6 away from the
// definition), and results of large cancellation, such as the gradient of a decay. Everything but P is transposed here
// too. S^T (M, E) is not rounded. As it lies in the accumulators it is operand A of S^T Q^T, if its columns 2t and 2t +
// 1 are taken as columns t and t + 4.
#pragma once

#include "blocks/sm80_tf32.cuh"
#include "sm80/linear_attention_exact_rows.cuh"
#include "sm80/linear_attention_exact_store.cuh"

namespace falchion::sm80 {

/// The work of one CTA: 64 columns of v and o, for all tokens of a piece. Lane (g, t) of warp w has rows 16 (w % 4) + g
/// and 16 (w % 4) + g + 8 of P, of S^T and of O^T. Two warps share these rows: each has half of the columns of P, half
/// of the columns (E) of S^T, and half of each sum of O^T, and in the end they exchange these sums. So a scheduler has
/// two warps, and at d 256 the state fits into registers.
template <class Config_>
class LinearExactChunks {
 public:
  using Config = Config_;
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;
  using Weights = LinearWeights<Config::kGeneral>;
  static constexpr int kC = Config::kChunk, kE = Config::kD, kM = Config::kColumns, kStages = Config::kStages;
  static constexpr int kParts = Config::kParts, kStrideQ = Config::kStrideQ, kStrideV = Config::kStrideV;
  static constexpr int kBlocks = kC / 8;  // the number of blocks of 8 tokens
  static constexpr int kHalf = kBlocks / 2;

  __device__ __forceinline__ LinearExactChunks(const gpu::LinearAttentionArgs& a, const LinearSweep& sweep,
                                               const LinearPiece& piece, Shared& shared)
      : sweep(sweep),
        piece(piece),
        shared(shared),
        columns(min(sweep.d_v - piece.column0, kM)),
        warp(static_cast<int>(threadIdx.x) / 32),
        half(warp / 4),
        g(static_cast<int>(threadIdx.x) % 32 / 4),
        t(static_cast<int>(threadIdx.x) % 4),
        q(piece, sweep.q, 0, sweep.d_qk, a.aligned),
        k(piece, sweep.k, 0, sweep.d_qk, a.aligned),
        v(piece, sweep.v, piece.column0, columns, a.aligned),
        weights(sweep, piece) {}

  /// Computes o of all tokens, and leaves the state after the last token in s.
  __device__ __forceinline__ void run() {
    weights.start(shared.weights);
    if constexpr (kStages > 1) load(0, true);
    for (int c = 0; c < piece.chunks; ++c) {
      arrive(c, true);
      float p[kHalf][4], o[kBlocks][4], own_o[kHalf][4];
      multiply_q_k(c, p);
      store_p(c, p);
      __syncthreads();  // P is there
      multiply_state(c, o);
      read_v(c);
      multiply_p(o);
      exchange_o(o, own_o);
      store_o(c, own_o);
      fade(c);
      update_state(c);
    }
  }
  /// Computes only the state after the last token. Returns the factor by which a state fades over the piece, in bits.
  __device__ __forceinline__ float run_state() {
    float faded = 0;
    weights.start(shared.weights);
    if constexpr (kStages > 1) load(0, false);
    for (int c = 0; c < piece.chunks; ++c) {
      arrive(c, false);
      if (weights.any()) faded += weight(c, Weights::kSum)[kC - 1];
      read_v(c);
      fade(c);
      update_state(c);
    }
    return faded;
  }

  /// Calls f(m, e, element) for the elements of S^T, before or after a sweep; m and e count within the whole state. S
  /// goes through shared memory, because f would otherwise be unrolled over all registers of S.
  template <class F>
  __device__ __forceinline__ void for_each_of_state(F f) {
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
  __device__ __forceinline__ void for_each_of_z(F f) {
    if (!weights.with_z()) return;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (own_row(2 * r) < columns) f(piece.column0 + own_row(2 * r), z[r], t == 0 && half == 0);
    }
  }
  __device__ __forceinline__ float behind_last() const { return weights.behind_last(); }

  /// Called after run(): multiplies the state, without the last token's own part, by sweep.tail_with and stores the
  /// sum.
  __device__ __forceinline__ void tail(int b, int h) {
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

 private:
  /// The row of the CTA's P, S^T, V^T and O^T that element i of an accumulator belongs to.
  __device__ __forceinline__ int own_row(int i) const { return 16 * (warp % 4) + g + i / 2 * 8; }
  /// The first column of P in this thread's accumulator n, and the first column of S^T in its accumulator j.
  __device__ __forceinline__ int own_token(int n) const { return 8 * (kHalf * half + n) + 2 * t; }
  __device__ __forceinline__ int own_column(int j) const { return kE / 2 * half + 8 * j + 2 * t; }

  // ---- load ---------------------------------------------------------------------------------------------------------
  __device__ __forceinline__ void load(int c, bool with_q) {
    if (c < piece.chunks) {
      if (with_q) q.load(c, shared.q[c % kStages]);
      k.load(c, shared.k[c % kStages]);
      v.load(c, shared.v[c % kStages]);
    }
    cp_async_fence();
  }
  /// Afterwards chunk c is there for all threads, and no thread reads chunk c - 1, its P or its weights.
  __device__ __forceinline__ void arrive(int c, bool with_q) {
    if constexpr (kStages == 1) {
      __syncthreads();
      load(c, with_q);
    }
    cp_async_wait<0>();
    if (with_q) q.arrived(c, shared.q[c % kStages]);
    k.arrived(c, shared.k[c % kStages]);
    v.arrived(c, shared.v[c % kStages]);
    __syncthreads();
    if constexpr (kStages > 1) load(c + 1, with_q);
    weights.next(c + 1, shared.weights);
  }

  // ---- weights: warp 0 computes them one chunk ahead ----------------------------------------------------------------
  __device__ __forceinline__ const float* weight(int c, int which) const { return shared.weights[c % 2][which]; }

  // ---- P = tril(Q K^T) (C, C) ---------------------------------------------------------------------------------------
  __device__ __forceinline__ void multiply_q_k(int c, float (&p)[kHalf][4]) const {
    const float* own_q = shared.q[c % kStages] + own_row(0) * kStrideQ + 2 * t;
    const float* own_k = shared.k[c % kStages] + (8 * kHalf * half + g) * kStrideQ + 2 * t;
    float all[kHalf][4];
    clear(p);
    clear(all);
    constexpr int kTogether = 8;  // steps that share an accumulator; update_state says why
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
  __device__ __forceinline__ void store_p(int c, float (&p)[kHalf][4]) const {
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
  __device__ __forceinline__ void weigh_p(int c, float (&p)[kHalf][4]) const {
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
  __device__ __forceinline__ void read_v(int c) {
    const float* own = shared.v[c % kStages] + t * kStrideV + own_row(0);
    CUTE_UNROLL
    for (int i = 0; i < kBlocks; ++i) {
      CUTE_UNROLL
      for (int x = 0; x < 4; ++x) rV[i][x] = own[(8 * i + x / 2 * 4) * kStrideV + x % 2 * 8];
    }
  }
  /// Computes S^T Q^T over this warp's half of E.
  __device__ __forceinline__ void multiply_state(int c, float (&o)[kBlocks][4]) const {
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
  /// Adds V^T P^T over every second block of 8 tokens: later blocks need fewer rows of P, so this divides the work
  /// evenly.
  __device__ __forceinline__ void multiply_p(float (&o)[kBlocks][4]) const {
    const float* own_p = shared.p + g * Config::kStrideP + 8 * half + t;
    for_each(make_int_sequence<kHalf>{}, [&](auto i) {
      constexpr int kFrom = 2 * decltype(i)::value;
      Tf32<2> b[kBlocks];
      CUTE_UNROLL
      for (int n = kFrom; n < kBlocks; ++n) {  // in the rows before, P is 0
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
  __device__ __forceinline__ void exchange_o(const float (&o)[kBlocks][4], float (&own)[kHalf][4]) {
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
  __device__ __forceinline__ void store_o(int c, const float (&o)[kHalf][4]) {
    if constexpr (Config::kGeneral) {
      stage_o(o);
      LinearExactOutput<Config>(sweep, piece, columns, shared.o).store(c);
    } else {
      store_straight(c, o);
    }
  }
  /// Stores O^T directly to the rows of o: 8 lanes have 8 neighbouring columns of a token.
  __device__ __forceinline__ void store_straight(int c, const float (&o)[kHalf][4]) const {
    const std::int64_t step = piece.step * sweep.o.x.stride[1];
    auto* to = piece.base<Element>(sweep.o) + piece.first * sweep.o.x.stride[1] + piece.column0;
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
  __device__ __forceinline__ void stage_o(const float (&o)[kHalf][4]) {
    CUTE_UNROLL
    for (int n = 0; n < kHalf; ++n) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) shared.o[(own_token(n) + i % 2) * Config::kStrideP + own_row(i)] = o[n][i];
    }
    __syncthreads();
  }

  // ---- S^T = grown S^T + (V left)^T K (M, E) ------------------------------------------------------------------------
  /// Multiplies S, z and V of the chunk by their weights, and adds the chunk to z.
  __device__ __forceinline__ void fade(int c) {
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
  /// is a sum over all tokens, and a tensor core that added to S itself would cut off, always towards 0, what is small
  /// beside S.
  __device__ __forceinline__ void update_state(int c) {
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

  const LinearSweep& sweep;
  const LinearPiece& piece;
  Shared& shared;
  const int columns;           // columns of v and o that this CTA has
  const int warp, half, g, t;  // lane = 4 g + t
  const LinearExactRows<Config, kE, kStrideQ> q, k;
  const LinearExactRows<Config, kM, kStrideV> v;
  Weights weights;
  float s[kE / 16][4] = {};  // S^T as accumulators of 8 columns each
  float z[2] = {};           // z of rows g and g + 8
  float rV[kBlocks][4];      // V^T as operand A, 8 tokens each
};

}  // namespace falchion::sm80
