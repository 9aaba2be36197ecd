// src/sm80/attention_forward.cuh: softmax attention, forward, with mma.sync.   What: ref/.   Here: when.
// FlashAttention-2 (arXiv:2307.08691): a CTA owns M query rows and walks over the keys they see; cp.async brings the
// next K and V tile while this one is multiplied. Letters: docs/notation.md. What was measured:
// docs/design/sm80_forward.md
#pragma once

#include "blocks/sm80_copy.cuh"
#include "blocks/sm80_fragments.cuh"
#include "blocks/sm80_softmax.cuh"
#include "sm80/attention_combine.cuh"
#include "sm80/attention_forward_config.hpp"
#include "sm80/attention_store.cuh"
#include "sm80/attention_tile.cuh"

namespace falchion::sm80 {

/// Loads of one CTA: Q once, K and V a tile at a time. Keys past the sequence become 0. Addresses are kept for this
/// thread's own chunk: it has every (M / kPass)-th row, and each costs one 64-bit addition.
template <class Config, class Scores>
class Loader {
 public:
  using Element = typename Config::Element;

  __device__ __forceinline__ Loader(const AttentionArgs& a, const AttentionTile& t) : a(a), t(t) {
    row = static_cast<int>(threadIdx.x) / Config::kThreadsARow;
    column = static_cast<int>(threadIdx.x) % Config::kThreadsARow * 8;
    k = own_chunk(a.k), v = own_chunk(a.v);
  }
  template <class Shared>
  __device__ __forceinline__ void load_q(Shared&& sQ) const {
    const View& x = a.q;
    const Element* q = static_cast<const Element*>(x.data) + t.q.batch * x.stride[0] + t.q.begin * x.stride[1] + column;
    const int rows = t.rows - t.row0, columns = static_cast<int>(a.d_qk);
    if (a.group == 1) {
      q += t.h * x.stride[2] + (t.row0 + row) * x.stride[1];
      load(sQ, rows, columns, [&](int m, int) { return q + m * (kPass * x.stride[1]); });
    } else {
      load(sQ, rows, columns,
           [&](int, int row) { return q + t.query(t.row0 + row) * x.stride[1] + t.head(t.row0 + row) * x.stride[2]; });
    }
  }
  /// keys: how many of tile n there are; only the last tile may have fewer than N.
  template <class Shared>
  __device__ __forceinline__ void load_k(int n, Shared&& sK, int keys = Config::kKeys) const {
    const Element* tile = k + n * (Config::kKeys * a.k.stride[1]);
    load(sK, keys, static_cast<int>(a.d_qk), [&](int m, int) { return tile + m * (kPass * a.k.stride[1]); });
  }
  template <class Shared>
  __device__ __forceinline__ void load_v(int n, Shared&& sV, int keys = Config::kKeys) const {
    const Element* tile = v + n * (Config::kKeys * a.v.stride[1]);
    load(sV, keys, static_cast<int>(a.d_v), [&](int m, int) { return tile + m * (kPass * a.v.stride[1]); });
  }
  __device__ __forceinline__ int keys_from(int n) const { return t.k.length - n * Config::kKeys; }

 private:
  static constexpr int kPass = Config::kThreads / Config::kThreadsARow;  // rows that all threads together copy at once

  __device__ __forceinline__ const Element* own_chunk(const View& x) const {
    return static_cast<const Element*>(x.data) + t.k.batch * x.stride[0] + (t.k.begin + row) * x.stride[1] +
           t.h_kv * x.stride[2] + column;
  }
  template <class Shared, class At>
  __device__ __forceinline__ void load(Shared&& sX, int rows, int columns, At at) const {
    typename Config::GlobalCopy copy;
    if (Scores::kAligned || a.aligned) {
      load_rows<true>(copy, sX, rows, columns, at);
    } else {
      load_rows<false>(copy, sX, rows, columns, at);
    }
  }

  const AttentionArgs& a;
  const AttentionTile& t;
  int row, column;
  const Element *k, *v;
};

template <class Config, class Scores>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    attention_forward(const __grid_constant__ AttentionArgs a, const __grid_constant__ Divisors by) {
  using Element = typename Config::Element;
  constexpr int kStages = Config::kStages, kKeys = Config::kKeys;
  extern __shared__ __align__(128) unsigned char memory[];
  const AttentionTile t = AttentionTile::of<Config::kRows, kKeys>(a, by, static_cast<int>(blockIdx.x));
  if (t.row0 >= t.rows) return;

  Element* shared = reinterpret_cast<Element*>(memory);
  const auto sQ = make_tensor(make_smem_ptr(shared), typename Config::LayoutQ{});  // (M, D)
  const auto stage = [&](int i, auto layout) {
    return make_tensor(make_smem_ptr(shared + Config::kSizeQ + i * Config::kSizeK), layout);
  };
  const auto sK = [&](int n) { return stage(n % kStages, typename Config::LayoutK{}); };              // (N, D)
  const auto sV = [&](int n) { return stage(kStages + n % kStages, typename Config::LayoutV{}); };    // (N, D)
  const auto sVt = [&](int n) { return stage(kStages + n % kStages, typename Config::LayoutVt{}); };  // (D, N)

  // Fragments of this thread.
  typename Config::TiledMma mma;
  const auto thread = mma.get_thread_slice(threadIdx.x);
  auto rO = partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<Config::kD>>{});  // (4, M, D) f32
  auto rQ = thread.partition_fragment_A(sQ);                                          // (8, M, D / 16)
  auto rK = thread.partition_fragment_B(sK(0));                                       // (4, N, D / 16)
  auto rV = thread.partition_fragment_B(sVt(0));                                      // (4, D, N / 16)
  const auto copy_q = make_tiled_copy_A(typename Config::CopyAtomQ{}, mma).get_thread_slice(threadIdx.x);
  const auto copy_k = make_tiled_copy_B(typename Config::CopyAtomK{}, mma).get_thread_slice(threadIdx.x);
  const auto copy_v = make_tiled_copy_B(typename Config::CopyAtomV{}, mma).get_thread_slice(threadIdx.x);
  auto rQ_view = copy_q.retile_D(rQ);
  auto rK_view = copy_k.retile_D(rK);
  auto rV_view = copy_v.retile_D(rV);
  const auto tQsQ = copy_q.partition_S(sQ);
  const auto read_q = [&](auto k) {
    if constexpr (!Config::kQInRegisters) copy(typename Config::CopyAtomQ{}, tQsQ(_, _, k), rQ_view(_, _, k));
  };
  clear(rO);
  OnlineSoftmax<2 * decltype(size<1>(rO))::value> softmax;
  softmax.reset();
  Scores scores(a, t);

  // The last tile comes first: it alone may be ragged.
  const Loader<Config, Scores> loader(a, t);
  int n = t.end - 1;
  loader.load_q(sQ);
  if (n >= t.begin) loader.load_k(n, sK(n), loader.keys_from(n));
  if (kStages == 2 && n >= t.begin) loader.load_v(n, sV(n), loader.keys_from(n));
  cp_async_fence();
  if constexpr (Config::kQInRegisters) {
    cp_async_wait<0>();
    __syncthreads();
    copy(typename Config::CopyAtomQ{}, tQsQ, rQ_view);
  }

  for (; n >= t.begin; --n) {
    cp_async_wait<0>();
    __syncthreads();  // K (and V) of tile n have come, and nobody reads tile n + 1 any more
    if constexpr (kStages == 1) {
      loader.load_v(n, sV(n), loader.keys_from(n));
      cp_async_fence();
    }

    auto rS = partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<kKeys>>{});  // (4, M, N) f32
    clear(rS);
    const auto tKsK = copy_k.partition_S(sK(n));
    multiply(mma, rS, rQ, rK, read_q,  // S = Q K^T
             [&](auto k) { copy(typename Config::CopyAtomK{}, tKsK(_, _, k), rK_view(_, _, k)); });
    if constexpr (kStages == 1) {
      cp_async_wait<0>();
      __syncthreads();  // V has come, and nobody reads K any more
    }
    if (n > t.begin) {
      loader.load_k(n - 1, sK(n - 1));
      if constexpr (kStages == 2) loader.load_v(n - 1, sV(n - 1));
      cp_async_fence();
    }

    auto S = rows_columns(rS);  // (rows, columns) of this thread
    const auto cS = rows_columns(thread.partition_C(make_identity_tensor(Shape<Int<Config::kRows>, Int<kKeys>>{})));
    scores.apply(S, cS, n * kKeys);
    if (n * kKeys < t.unmasked_begin || (n + 1) * kKeys > t.unmasked_end) scores.keep(S, cS, n * kKeys);  // mask.keep
    float top[softmax.kSize], shrink[softmax.kSize];
    if (softmax.outgrown(S, scores.unit, top)) {
      softmax.raise(top, scores.unit, shrink);
      scale_rows(rows_columns(rO), shrink);
    }
    scores.seen(top);
    softmax.start_update(S, scores.unit);

    // P = softmax.update(S), made 16 keys at a time under O += P V of the 16 keys before.
    auto rP = make_tensor<Element>(as_operand_a(rS.layout()));  // (8, M, N / 16)
    const auto tVsV = copy_v.partition_S(sVt(n));
    const auto prepare = [&](auto k, auto share, auto shares) {
      constexpr int kElements = softmax.kSize * 4, kEach = (kElements + shares - 1) / shares;
      CUTE_UNROLL
      for (int e = share * kEach; e < (share + 1) * kEach && e < kElements; ++e)
        softmax.update(S, e / 4, k * 4 + e % 4, scores.unit);
      if constexpr ((share + 1) * kEach >= kElements && share * kEach < kElements) {
        scores.drop(S, cS, n * kKeys, k);
        convert(make_tensor(rS.data(), as_operand_a(rS.layout()))(_, _, k), rP(_, _, k));
      }
    };
    multiply_prepared(mma, rO, rP, rV, prepare,
                      [&](auto k, auto i) { copy(typename Config::CopyAtomV{}, tVsV(_, i, k), rV_view(_, i, k)); });
  }
  cp_async_wait<0>();
  softmax.finish();
  store_tile<Config>(a, t, mma, softmax, scores, rO, shared);
}

/// mask.keep: S = -inf where a row does not see a key. A band is an interval of keys in each row, [begin, end), here as
/// seen from this thread's first column: its other columns are at constant distances.
template <class S, class Coordinates>
__device__ __forceinline__ void keep_band(const AttentionArgs& a, const AttentionTile& t, S& s, const Coordinates& at,
                                          int key0) {
  const int key = key0 + static_cast<int>(get<1>(at(0, 0)));
  const auto seen_from_key = [&](std::int64_t bound) {  // any bound beyond the tile is as good as another
    return static_cast<int>(min(max(bound - key, std::int64_t{-1}), std::int64_t{1} << 20));
  };
  CUTE_UNROLL
  for (int r = 0; r < size<0>(s); ++r) {
    const Range keys = t.mask.keys(t.query(t.row0 + static_cast<int>(get<0>(at(r, 0)))));
    const int begin = seen_from_key(keys.begin), end = seen_from_key(keys.end);
    CUTE_UNROLL
    for (int c = 0; c < size<1>(s); ++c) {
      if (key0 + static_cast<int>(get<1>(at(r, c))) - key >= end) s(r, c) = -FALCHION_INF;
    }
    if (a.left < 0) continue;
    CUTE_UNROLL
    for (int c = 0; c < size<1>(s); ++c) {
      if (key0 + static_cast<int>(get<1>(at(r, c))) - key < begin) s(r, c) = -FALCHION_INF;
    }
  }
}

template <class Config, class Scores>
int launch_attention_forward(const AttentionArgs& a, void* stream) {
  const auto kernel = attention_forward<Config, Scores>;
  const std::int64_t blocks = a.tiles * (a.h_q / a.group) * (a.packed ? 1 : a.b) * a.splits;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Config::kSharedBytes);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), Config::kThreads, Config::kSharedBytes, static_cast<cudaStream_t>(stream)>>>(
      a, Divisors(a));
  return cudaGetLastError();
}

/// The row of the table.
template <class Config, class Scores>
constexpr gpu::AttentionKernel attention_forward_entry() {
  return {[](const AttentionArgs& a, void* stream) {
            const int error = launch_attention_forward<Config, Scores>(a, stream);
            return error == 0 && a.splits > 1 ? launch_attention_combine<typename Config::Element>(a, stream) : error;
          },
          nullptr,
          Config::kD,
          Config::kRows,
          Config::kKeys,
          Config::kThreads,
          Config::kStages,
          Config::kCtas,
          Config::kSharedBytes};
}

}  // namespace falchion::sm80
