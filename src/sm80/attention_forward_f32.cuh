// src/sm80/attention_forward_f32.cuh: softmax attention, forward, for f32: the same steps with FFMA in place of mma, so
// that every product and sum is exact f32. K and V come in chunks of equal size through a ring that cp.async fills one
// chunk ahead. A thread owns 8 rows: of S with 4 neighbouring keys, of O with D / 16 columns.
#pragma once

#include "blocks/gpu_softmax.cuh"
#include "gpu/attention_after.hpp"
#include "gpu/attention_kernel.hpp"
#include "gpu/attention_score.cuh"
#include "gpu/attention_tile.cuh"
#include "policy/dropout.hpp"
#include "sm80/attention_forward.cuh"
#include "sm80/attention_forward_config.hpp"
#include "sm80/attention_forward_f32_ring.cuh"
#include "sm80/attention_launch.cuh"
#include "sm80/attention_store.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// A warp owns 16 rows, 16 of its lanes a row. Lanes i and i ^ 1 share keys (columns), i and i ^ 2 share rows: what
/// either pair reads with 16 bytes a lane comes in one go.
template <int kD_>
struct AttentionForwardF32Config {
  using Element = float;
  static constexpr Tile kTile = attention_forward_tile(Level::f32, kD_);
  static constexpr int kD = kD_, kRows = kTile.rows, kKeys = kTile.keys, kThreads = 32 * kTile.warps;
  static constexpr int kStages = kTile.stages, kCtas = kTile.ctas;
  static constexpr int kOwnRows = 8, kOwnKeys = kKeys / 16, kOwnColumns = kD / 16;
  static_assert(kRows == 16 * kTile.warps && kKeys % 64 == 0 && kD % 64 == 0 && kStages >= 2);

  // S is summed so many terms at a time, for the exponential multiplies its errors: with 8 the largest error of O is 40
  // % of its limit, with one after another 100 % (verify's case "everything at once"). 8 would spill at D = 256.
  static constexpr int kTerms = kD < 256 ? 8 : 4;

  // A chunk of the ring: kDepth head dims of a K tile, or kSlice keys of a V tile.
  static constexpr int kDepth = f32_depth(kD), kChunk = kKeys * kDepth, kSlice = kChunk / kD;
  static constexpr int kSlices = kKeys / kSlice;
  // Rows of Q and P are 16 bytes longer than their data: the two rows that a warp reads at once are in different banks.
  static constexpr int kStrideQ = kD + 4, kStrideP = kKeys + 4;
  static constexpr int kSizeQ = kRows * kStrideQ, kSizeP = kRows * kStrideP;  // floats
  static constexpr int kSharedBytes = 4 * (kSizeQ + kSizeP + kStages * kChunk);
  static_assert(kSharedBytes <= 99 * 1024, "what a CTA of sm_86 may have");

  // K (keys, kDepth): 16-byte chunk c of row r lies at c ^ (r / 4 % 8), so that lanes whose keys are 4 apart read from
  // different banks. V (kSlice, D) lies as it came.
  static __device__ __forceinline__ int at_k(int row, int column) {
    return row * kDepth + (column ^ (row / 4 % 8 * 4));
  }
};

/// This thread's first row of the tile, and its first key of a tile, which is its first column of O too.
struct OwnPlace {
  int row, key;
  __device__ __forceinline__ OwnPlace() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    row = warp * 16 + lane % 2, key = lane / 2 * 4;
  }
  /// (row, column) of element (r, c) of S or O.
  __device__ __forceinline__ auto operator()(int r, int c) const {
    return make_coord(row + 2 * r, key + c % 4 + c / 4 * 64);
  }
};

/// Terms k .. k + 3 of C (rows, columns) += A B, one after another.
template <int kStride, class C, class LoadB>
__device__ __forceinline__ void multiply_4(C& c, const float* a, int k, LoadB load_b) {
  constexpr int kRows = decltype(size<0>(c))::value, kColumns = decltype(size<1>(c))::value;
  float x[kRows][4], b[4][kColumns];
  CUTE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    *reinterpret_cast<float4*>(x[r]) = *reinterpret_cast<const float4*>(a + r * 2 * kStride + k);
  }
  load_b(k, b);
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CUTE_UNROLL
      for (int j = 0; j < kColumns; ++j) c(r, j) = __fmaf_rn(x[r][i], b[i][j], c(r, j));
    }
  }
}

/// C (rows, columns) += A B over kDepth terms. a: this thread's first row of A, the next one is 2 kStride further.
/// load_b(k, b) brings b[i][column] = B[k + i][column]. kTerms 1: the terms are added one after another. 4, 8: so many
/// first, then their sum: the roundings of a long sum are of its own size.
template <int kTerms, int kDepth, int kStride, class C, class LoadB>
__device__ __forceinline__ void multiply_exact(C& c, const float* a, LoadB load_b) {
#pragma unroll 1
  for (int k = 0; k < kDepth; k += std::max(kTerms, 4)) {
    if constexpr (kTerms == 1) {
      multiply_4<kStride>(c, a, k, load_b);
    } else {
      auto sum = make_fragment_like(c);
      clear(sum);
      CUTE_UNROLL
      for (int i = 0; i < kTerms; i += 4) multiply_4<kStride>(sum, a, k + i, load_b);
      CUTE_UNROLL
      for (int i = 0; i < size(c); ++i) c(i) += sum(i);
    }
  }
}

template <class Op>
__device__ __forceinline__ float over_row(float x, Op op) {
  CUTE_UNROLL
  for (int step = 2; step < 32; step *= 2) x = op(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

/// As OnlineSoftmax, but exact to the last bits: m is the true maximum so far, and s - m is taken before anything is
/// multiplied.
template <int kRows>
struct ExactSoftmax {
  float m[kRows];  // the same in all lanes of a row
  float l[kRows];  // sum of exp(s - m) over this lane's keys

  __device__ __forceinline__ void reset() {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) m[r] = -FALCHION_INF, l[r] = 0;
  }
  /// m = the maximum so far. l is multiplied by shrink, and so must O be if the answer, which is the warp's, is true.
  template <class Scores>
  __device__ __forceinline__ bool raise(const Scores& S, float (&shrink)[kRows]) {
    bool raised = false;
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float top = m[r];
      CUTE_UNROLL
      for (int j = 0; j < size<1>(S); ++j) top = fmaxf(top, S(r, j));  // drops NaN, which reaches l instead
      top = over_row(top, [](float x, float y) { return fmaxf(x, y); });
      raised |= top > m[r];
      // While nothing has been seen O and l are 0, and -inf - -inf must not make a NaN of them.
      shrink[r] = top == -FALCHION_INF ? 1.f : exp2((m[r] - top) * kLog2e);
      m[r] = top, l[r] *= shrink[r];
    }
    return __any_sync(~0u, raised);
  }
  /// S -> P = exp(S - m), in place; l follows.
  template <class Scores>
  __device__ __forceinline__ void update(Scores& S) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float base = m[r] == -FALCHION_INF ? 0.f : m[r];
      CUTE_UNROLL
      for (int j = 0; j < size<1>(S); ++j) {
        S(r, j) = exp2(__fmul_rn(S(r, j) - base, kLog2e));
        l[r] += S(r, j);
      }
    }
  }
  /// The row's whole sum, in all of its lanes.
  __device__ __forceinline__ void finish() {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) l[r] = over_row(l[r], [](float x, float y) { return x + y; });
  }
};

/// Registers (rows, columns) -> this thread's own cells of P, 16 bytes at a time, and back.
template <class Config, bool kBack, class S>
__device__ __forceinline__ void exchange(S& s, float* own) {
  CUTE_UNROLL
  for (int r = 0; r < Config::kOwnRows; ++r) {
    CUTE_UNROLL
    for (int c = 0; c < Config::kOwnKeys; c += 4) {
      float4& cells = *reinterpret_cast<float4*>(own + r * 2 * Config::kStrideP + c / 4 * 64);
      if constexpr (kBack) {
        s(r, c) = cells.x, s(r, c + 1) = cells.y, s(r, c + 2) = cells.z, s(r, c + 3) = cells.w;
      } else {
        cells = make_float4(s(r, c), s(r, c + 1), s(r, c + 2), s(r, c + 3));
      }
    }
  }
}

/// Calls edit(row, key, cells) for 4 neighbouring keys of a row, from this thread's own cells and back to them. One
/// copy of the code, not 8: tanh in double and Philox are long, and their registers would come on top of those of O.
template <class Config, class Edit>
__device__ __forceinline__ void for_each_own_cell(const AttentionTile& t, OwnPlace at, int key0, float* own,
                                                  Edit edit) {
  CUTE_NO_UNROLL
  for (int r = 0; r < Config::kOwnRows; ++r) {
    const int row = t.row0 + at.row + 2 * r;
    if (row >= t.rows) return;
    CUTE_UNROLL
    for (int c = 0; c < Config::kOwnKeys; c += 4) {
      float4& cells = *reinterpret_cast<float4*>(own + r * 2 * Config::kStrideP + c / 4 * 64);
      float x[4] = {cells.x, cells.y, cells.z, cells.w};
      edit(row, key0 + at.key + c / 4 * 64, x);
      cells = make_float4(x[0], x[1], x[2], x[3]);
    }
  }
}

/// score.apply and all that masks but the band.
template <class Config, class S>
__device__ __forceinline__ void apply_scores(const AttentionArgs& a, const AttentionTile& t, OwnPlace at, int key0,
                                             S& s, float* own) {
  if (a.softcap > 0 || a.alibi.data != nullptr || a.bias.data != nullptr || a.mask.data != nullptr) {
    exchange<Config, false>(s, own);
    for_each_own_cell<Config>(t, at, key0, own, [&](int row, int key, float(&x)[4]) {
      const ScoreRow<float> line(a, t, row);
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        x[i] = line.apply(x[i], key + i);
        if (key + i < t.k.length) x[i] = line.add_bias_and_mask(x[i], key + i);
      }
    });
    exchange<Config, true>(s, own);
  } else {
    CUTE_UNROLL
    for (int i = 0; i < size(s); ++i) s(i) *= a.scale;
  }
}

/// O / l, LSE, row max; or one part of them, when the keys are split.
template <class Config, class Softmax, class Output>
__device__ __forceinline__ void store_exact(const AttentionArgs& a, const AttentionTile& t, OwnPlace at,
                                            const Softmax& softmax, float kept_scale, Output& O) {
  float normal[Config::kOwnRows], m = 0, l = 0;
  const int mine = at.key / 4;  // the row whose LSE this lane computes: a logarithm in double is long
  CUTE_UNROLL
  for (int r = 0; r < Config::kOwnRows; ++r) {
    normal[r] = softmax.l[r] == 0 ? 0.f : __fdiv_rn(kept_scale, softmax.l[r]);
    if (r == mine) m = softmax.m[r], l = softmax.l[r];
  }
  const int own = t.row0 + at.row + 2 * mine;
  if (mine < Config::kOwnRows && own < t.rows) {
    if (a.splits > 1)
      store_part(a, t, own, m, l);
    else if (a.lse.data != nullptr)
      static_cast<float*>(a.lse.data)[statistic(a.lse, a, t, own)] =
          l == 0 ? -FALCHION_INF : static_cast<float>(m + ::log(static_cast<double>(l)));
    if (a.row_max.data != nullptr)  // NaN where the LSE is NaN
      static_cast<float*>(a.row_max.data)[statistic(a.row_max, a, t, own)] = l == l ? m : l;
  }
  normalise_rows(O, normal);
  float* const o = static_cast<float*>(a.o.data) + t.q.batch * a.o.stride[0] + t.q.begin * a.o.stride[1];
  CUTE_UNROLL
  for (int r = 0; r < Config::kOwnRows; ++r) {
    const int row = t.row0 + at.row + 2 * r;
    if (row >= t.rows) continue;
    float* line = a.splits > 1 ? a.partial_o + partial_row(a, t, row) * a.d_v
                               : o + t.query(row) * a.o.stride[1] + t.head(row) * a.o.stride[2];
    CUTE_UNROLL
    for (int c = 0; c < Config::kOwnColumns; c += 4) {
      const int column = static_cast<int>(get<1>(at(r, c))), left = static_cast<int>(a.d_v) - column;
      float* to = line + column;
      if (left >= 4 && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
        *reinterpret_cast<float4*>(to) = make_float4(O(r, c), O(r, c + 1), O(r, c + 2), O(r, c + 3));
      } else {
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (i < left) to[i] = O(r, c + i);
        }
      }
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    attention_forward_exact(const __grid_constant__ AttentionArgs a, const __grid_constant__ Divisors by) {
  constexpr int kKeys = Config::kKeys;
  extern __shared__ __align__(128) unsigned char memory[];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const AttentionTile t = AttentionTile::of<Config::kRows, kKeys>(a, by, static_cast<int>(blockIdx.x));
  if (t.row0 >= t.rows) return;

  float* const sQ = reinterpret_cast<float*>(memory);  // (M, D + 4)
  float* const sP = sQ + Config::kSizeQ;               // (M, N + 4), then the ring
  const OwnPlace at;
  const float* const own_q = sQ + at.row * Config::kStrideQ;
  float* const own_p = sP + at.row * Config::kStrideP;  // this thread's rows; its own cells begin at at.key
  const DropoutMask dropout = dropout_of(a);

  auto rS = make_tensor<float>(Shape<Int<Config::kOwnRows>, Int<Config::kOwnKeys>>{});
  auto rO = make_tensor<float>(Shape<Int<Config::kOwnRows>, Int<Config::kOwnColumns>>{});
  clear(rO);
  ExactSoftmax<Config::kOwnRows> softmax;
  softmax.reset();

  Ring<Config> ring(a, t, sP + Config::kSizeP);
  ring.load_q(sQ);
  for (int i = 0; i < Config::kStages - 1; ++i) ring.load();  // Q is of the first group

  for (int n = t.end - 1; n >= t.begin; --n) {
    clear(rS);
    for (int i = 0; i < ring.k_chunks(); ++i) {  // S = Q K^T
      const float* sK = ring.next();
      multiply_exact<Config::kTerms, Config::kDepth, Config::kStrideQ>(
          rS, own_q + i * Config::kDepth, [&](int k, float(&b)[4][Config::kOwnKeys]) {
            const float* from = sK + Config::at_k(at.key, k);
            CUTE_UNROLL
            for (int j = 0; j < Config::kOwnKeys; ++j) {
              const float4 x = *reinterpret_cast<const float4*>(from + (j % 4 + j / 4 * 64) * Config::kDepth);
              b[0][j] = x.x, b[1][j] = x.y, b[2][j] = x.z, b[3][j] = x.w;
            }
          });
    }
    apply_scores<Config>(a, t, at, n * kKeys, rS, own_p + at.key);
    if (n * kKeys < t.unmasked_begin || (n + 1) * kKeys > t.unmasked_end)
      keep_band(a, t, rS, at, n * kKeys);  // mask.keep
    float shrink[Config::kOwnRows];
    if (softmax.raise(rS, shrink)) scale_rows(rO, shrink);
    softmax.update(rS);
    exchange<Config, false>(rS, own_p + at.key);
    if (a.dropout > 0) {  // l has summed what is dropped
      for_each_own_cell<Config>(t, at, n * kKeys, own_p + at.key, [&](int row, int key, float(&x)[4]) {
        const Philox::Block block = dropout.words(t.b * a.h_q + t.head(row), t.query(row), key);
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) x[i] = block.word[i] < dropout.threshold ? 0.f : x[i];
      });
    }
    __syncwarp();  // a warp's rows of P are its own
    // O += P V, by eights as S: one key after another, O of 4000 keys has twice the error (at d 256 it would spill).
    for (int i = 0; i < Config::kSlices; ++i) {
      const float* sV = ring.next() + at.key;
      multiply_exact<(Config::kD <= 128 ? Config::kTerms : 1), Config::kSlice, Config::kStrideP>(
          rO, own_p + i * Config::kSlice, [&](int k, float(&b)[4][Config::kOwnColumns]) {
            CUTE_UNROLL
            for (int c = 0; c < Config::kOwnColumns * 4; c += 4) {
              *reinterpret_cast<float4*>(&b[c / Config::kOwnColumns][c % Config::kOwnColumns]) =
                  *reinterpret_cast<const float4*>(sV + (k + c / Config::kOwnColumns) * Config::kD +
                                                   c % Config::kOwnColumns / 4 * 64);
            }
          });
    }
  }
  cp_async_wait<0>();
  softmax.finish();
  store_exact<Config>(a, t, at, softmax, a.dropout > 0 ? dropout.keep_scale : 1.f, rO);
}

template <int kD>
constexpr gpu::AttentionKernel attention_forward_f32() {
  using Config = AttentionForwardF32Config<kD>;
  return table_row<Config>(
      [](const AttentionArgs& a, void* stream) {
        return launch_attention<attention_forward_exact<Config>, Config>(a, stream);
      },
      launch_attention_probabilities<float, Config::kTerms>);
}

}  // namespace falchion::sm80
