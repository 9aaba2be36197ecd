// src/sm80/attention_forward/f32/kernel.cuh: the kernel for softmax attention forward in f32. It has the steps of
// attention_forward/kernel.cuh with FFMA instead of mma, so that every product and every sum is computed in f32. K and
// V arrive in chunks of equal size through a ring in shared memory, which cp.async fills one chunk ahead. A thread owns
// 8 rows: 4 neighbouring keys of each row of S, and D / 16 columns of each row of O.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/after.hpp"
#include "gpu/attention_forward/entry.hpp"
#include "gpu/attention_forward/score.cuh"
#include "gpu/attention_forward/tile.cuh"
#include "policy/dropout.hpp"
#include "sm80/attention_forward/f32/config.cuh"
#include "sm80/attention_forward/f32/load.cuh"
#include "sm80/attention_forward/f32/products.cuh"
#include "sm80/attention_forward/f32/segments.cuh"
#include "sm80/attention_forward/f32/softmax.cuh"
#include "sm80/attention_forward/f32/store.cuh"
#include "sm80/attention_forward/kernel.cuh"
#include "sm80/attention_forward/launch.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Copies S from registers (rows, columns) to this thread's own cells of P in shared memory, or back if kBack, 16 bytes
/// at a time.
template <class Config, bool kBack, class S>
FALCHION_DEVICE void exchange(S& s, float* own) {
  CUTE_UNROLL
  for (int r = 0; r < Config::kOwnRows; ++r) {
    CUTE_UNROLL
    for (int c = 0; c < Config::kOwnKeys; c += 4) {
      float4& cells = *reinterpret_cast<float4*>(own + r * 2 * Config::kStrideP + c / 4 * 64);
      if constexpr (kBack) {
        s(r, c) = cells.x;
        s(r, c + 1) = cells.y;
        s(r, c + 2) = cells.z;
        s(r, c + 3) = cells.w;
      } else {
        cells = make_float4(s(r, c), s(r, c + 1), s(r, c + 2), s(r, c + 3));
      }
    }
  }
}

/// Calls edit(row, key, cells) for each group of 4 neighbouring keys in this thread's rows. It reads the thread's own
/// cells of P and writes them back. The loop over rows is not unrolled, so that there is one copy of the code instead
/// of 8: tanh in double and Philox are long, and need registers beside those of O.
template <class Config, class Edit>
FALCHION_DEVICE void for_each_own_cell(const AttentionTile& t, OwnPlace at, int key0, float* own, Edit edit) {
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

/// Does score.apply, and adds the bias and the boolean mask. keep_band does the rest.
template <class Config, class S>
FALCHION_DEVICE void apply_scores(const AttentionArgs& a, const AttentionTile& t, OwnPlace at, int key0, S& s,
                                  float* own) {
  if (is_more_than_scaled(a)) {
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

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    attention_forward_exact(const __grid_constant__ AttentionArgs a, const __grid_constant__ Divisors by) {
  constexpr int kKeys = Config::kKeys;
  extern __shared__ __align__(128) unsigned char memory[];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const AttentionTile t = AttentionTile::of<Config::kRows, kKeys, Config::kPages>(a, by, static_cast<int>(blockIdx.x));
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

  const SegmentSums<Config> segments(a, t, at, own_q);
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
              b[0][j] = x.x;
              b[1][j] = x.y;
              b[2][j] = x.z;
              b[3][j] = x.w;
            }
          });
    }
    apply_scores<Config>(a, t, at, n * kKeys, rS, own_p + at.key);
    if (n * kKeys < t.unmasked_begin || (n + 1) * kKeys > t.unmasked_end)
      keep_band(a, t, rS, at, n * kKeys);  // mask.keep
    if constexpr (Config::kPages) ring.hide_holes(n, rS, at);
    float shrink[Config::kOwnRows];
    if (softmax.raise(rS, shrink)) scale_rows(rO, shrink);
    softmax.update(rS);  // P = e^(S - m)
    exchange<Config, false>(rS, own_p + at.key);
    if (a.dropout > 0) {  // l includes the dropped elements
      for_each_own_cell<Config>(t, at, n * kKeys, own_p + at.key, [&](int row, int key, float(&x)[4]) {
        const Philox::Block block = dropout.words(t.b, t.head(row), t.query(row), key);
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) x[i] = block.word[i] < dropout.threshold ? 0.f : x[i];
      });
    }
    __syncwarp();  // a warp reads only its own rows of P
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
    if (segments.ends_at(n)) segments.put_aside(n, softmax, rO);
  }
  cp_async_wait<0>();
  segments.take_back(softmax, rO);
  softmax.finish();
  store_exact<Config>(a, t, at, softmax, a.dropout > 0 ? dropout.keep_scale : 1.f, rO);
}

template <class Config>
constexpr gpu::AttentionKernel attention_forward_f32_entry(int (*probabilities)(const AttentionArgs&,
                                                                                void* stream) = nullptr) {
  return attention_kernel_of<Config>(
      [](const AttentionArgs& a, void* stream) {
        return launch_attention<attention_forward_exact<Config>, Config>(a, stream);
      },
      probabilities);
}

template <int kD>
constexpr gpu::AttentionKernel attention_forward_f32() {
  using Config = AttentionForwardF32Config<kD>;
  return attention_forward_f32_entry<Config>(launch_attention_probabilities<float, Config::kTerms>);
}

}  // namespace falchion::sm80
