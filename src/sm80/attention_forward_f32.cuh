// src/sm80/attention_forward_f32.cuh: the kernel for softmax attention forward in f32. It takes the same steps as
// attention_forward.cuh with FFMA instead of mma, so that every product and every sum is computed in f32. K and V
// arrive in chunks of equal size through a ring in shared memory, which cp.async fills one chunk ahead. A thread owns 8
// rows: 4 neighbouring keys of each row of S, and D / 16 columns of each row of O.
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

/// A warp owns 16 rows, and 16 of its lanes share each row. Lanes i and i ^ 1 have the same keys (columns), and lanes i
/// and i ^ 2 have the same rows. So shared memory serves both lanes of such a pair with one read of 16 bytes.
template <int kD_>
struct AttentionForwardF32Config {
  using Element = float;
  static constexpr Tile kTile = attention_forward_tile(Level::f32, kD_);
  static constexpr int kD = kD_, kRows = kTile.rows, kKeys = kTile.keys, kThreads = 32 * kTile.warps;
  static constexpr int kStages = kTile.stages, kCtas = kTile.ctas;
  static constexpr int kOwnRows = 8, kOwnKeys = kKeys / 16, kOwnColumns = kD / 16;
  static_assert(kRows == 16 * kTile.warps && kKeys % 64 == 0 && kD % 64 == 0 && kStages >= 2);

  // S is summed in groups of this many terms, because the exponential multiplies the errors of S. With groups of 8 the
  // largest error of O is 40 % of its limit; with one term added after another it is 100 % (verify's case "everything
  // at once"). At D = 256 groups of 8 would spill.
  static constexpr int kTerms = kD < 256 ? 8 : 4;

  // A chunk of the ring holds kDepth head dims of a K tile, or kSlice keys of a V tile.
  static constexpr int kDepth = f32_depth(kD), kChunk = kKeys * kDepth, kSlice = kChunk / kD;
  static constexpr int kSlices = kKeys / kSlice;
  // Rows of Q and P are 16 bytes longer than their data, so that the two rows that a warp reads at the same time lie in
  // different banks.
  static constexpr int kStrideQ = kD + 4, kStrideP = kKeys + 4;
  static constexpr int kSizeQ = kRows * kStrideQ, kSizeP = kRows * kStrideP;  // in floats
  static constexpr int kSharedBytes = 4 * (kSizeQ + kSizeP + kStages * kChunk);
  static_assert(kSharedBytes <= 99 * 1024, "what a CTA of sm_86 may have");

  // In a chunk of K (keys, kDepth) the 16-byte piece c of row r lies at c ^ (r / 4 % 8), so that lanes whose keys are 4
  // apart read from different banks. A chunk of V (kSlice, D) is not swizzled.
  static __device__ __forceinline__ int at_k(int row, int column) {
    return row * kDepth + (column ^ (row / 4 % 8 * 4));
  }
};

/// This thread's first row of the query tile, and its first key of a key tile, which is also its first column of O.
struct OwnPlace {
  int row, key;
  __device__ __forceinline__ OwnPlace() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    row = warp * 16 + lane % 2, key = lane / 2 * 4;
  }
  /// Returns (row, column) in the tile of this thread's element (r, c) of S or O.
  __device__ __forceinline__ auto operator()(int r, int c) const {
    return make_coord(row + 2 * r, key + c % 4 + c / 4 * 64);
  }
};

/// Adds the terms k to k + 3 of A B to C (rows, columns), one after another.
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

/// Computes C (rows, columns) += A B over kDepth terms. `a` points to this thread's first row of A, and its next row
/// lies 2 kStride floats further. load_b(k, b) loads b[i][column] = B[k + i][column]. With kTerms 1 the terms are added
/// to C one after another. With kTerms 4 or 8 that many terms are summed first and their sum is added to C, because
/// each addition to a long sum rounds at the size of that sum.
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

/// The same as OnlineSoftmax, but accurate to the last bits: m is always the true maximum so far, and it is subtracted
/// from s before anything is multiplied.
template <int kRows>
struct ExactSoftmax {
  float m[kRows];  // the maximum so far; the same in all lanes of a row
  float l[kRows];  // sum of exp(s - m) over this lane's keys

  __device__ __forceinline__ void reset() {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) m[r] = -FALCHION_INF, l[r] = 0;
  }
  /// Sets m to the maximum so far and multiplies l by shrink. If the result is true, O must be multiplied by shrink
  /// too. All lanes of the warp get the same result.
  template <class Scores>
  __device__ __forceinline__ bool raise(const Scores& S, float (&shrink)[kRows]) {
    bool raised = false;
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float top = m[r];
      CUTE_UNROLL
      for (int j = 0; j < size<1>(S); ++j) top = fmaxf(top, S(r, j));  // fmaxf ignores a NaN, which reaches l instead
      top = over_row(top, [](float x, float y) { return fmaxf(x, y); });
      raised |= top > m[r];
      // As long as a row has seen no key, O and l are 0, and -inf - -inf must not turn them into NaN.
      shrink[r] = top == -FALCHION_INF ? 1.f : exp2((m[r] - top) * kLog2e);
      m[r] = top, l[r] *= shrink[r];
    }
    return __any_sync(~0u, raised);
  }
  /// Replaces S by P = exp(S - m) and adds P to l.
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
  /// Sums l over the lanes of a row, so that all of them have the whole sum.
  __device__ __forceinline__ void finish() {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) l[r] = over_row(l[r], [](float x, float y) { return x + y; });
  }
};

/// Copies S from registers (rows, columns) to this thread's own cells of P in shared memory, or back if kBack, 16 bytes
/// at a time.
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

/// Calls edit(row, key, cells) for each group of 4 neighbouring keys in this thread's rows. It reads the thread's own
/// cells of P and writes them back. The loop over rows is not unrolled, so that there is one copy of the code instead
/// of 8: tanh in double and Philox are long, and their registers would be needed in addition to those of O.
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

/// Does score.apply, and adds the bias and the boolean mask. Only the band is left to keep_band.
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

/// Stores O / l, the LSE and the row maximum, or one part of them where the keys are split.
template <class Config, class Softmax, class Output>
__device__ __forceinline__ void store_exact(const AttentionArgs& a, const AttentionTile& t, OwnPlace at,
                                            const Softmax& softmax, float kept_scale, Output& O) {
  float normal[Config::kOwnRows], m = 0, l = 0;
  // This lane computes the LSE of this one of its rows: a logarithm in double takes long, so no lane computes more than
  // one.
  const int mine = at.key / 4;
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
  float* const sP = sQ + Config::kSizeQ;               // (M, N + 4); the ring follows it
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
  for (int i = 0; i < Config::kStages - 1; ++i) ring.load();  // Q belongs to the first cp.async group

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
    if (a.dropout > 0) {  // dropped elements have been added to l, and stay there
      for_each_own_cell<Config>(t, at, n * kKeys, own_p + at.key, [&](int row, int key, float(&x)[4]) {
        const Philox::Block block = dropout.words(t.b * a.h_q + t.head(row), t.query(row), key);
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) x[i] = block.word[i] < dropout.threshold ? 0.f : x[i];
      });
    }
    __syncwarp();  // a warp reads only rows of P that it has written itself
    // O += P V is summed in groups of 8 like S. With one key added after another, O of 4000 keys has twice the error.
    // At d 256 groups would spill, so there keys are added one after another.
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
  return attention_kernel_of<Config>(
      [](const AttentionArgs& a, void* stream) {
        return launch_attention<attention_forward_exact<Config>, Config>(a, stream);
      },
      launch_attention_probabilities<float, Config::kTerms>);
}

}  // namespace falchion::sm80
