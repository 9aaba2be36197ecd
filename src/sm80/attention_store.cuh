// src/sm80/attention_store.cuh: the end of a tile: O / l, LSE, row max; or one part of them, when the keys are split.
#pragma once

#include "blocks/sm80_fragments.cuh"
#include "blocks/sm80_softmax.cuh"
#include "sm80/attention_tile.cuh"

namespace falchion::sm80 {

/// O (rows, columns) *= factor, row by row.
template <class Output, int kRows>
__device__ __forceinline__ void scale_rows(Output&& O, const float (&factor)[kRows]) {
  CUTE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CUTE_UNROLL
    for (int c = 0; c < size<1>(O); ++c) O(r, c) *= factor[r];
  }
}
/// The same, and a factor of 0 gives 0 whatever O holds (an empty row, dropout of all).
template <class Output, int kRows>
__device__ __forceinline__ void normalise_rows(Output&& O, const float (&factor)[kRows]) {
  scale_rows(O, factor);
  bool none = false;
  CUTE_UNROLL
  for (int r = 0; r < kRows; ++r) none |= factor[r] == 0;
  // A loop that runs once at most: of an if ptxas would make a select for each element, 128 a thread at d 256.
  const int runs = __any_sync(~0u, none);
  CUTE_NO_UNROLL
  for (int i = 0; i < runs; ++i) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CUTE_UNROLL
      for (int c = 0; c < size<1>(O); ++c) O(r, c) = factor[r] == 0 ? 0.f : O(r, c);
    }
  }
}

/// An index into (b, h, s_q, 1), packed (1, h, total_q, 1).
__device__ __forceinline__ std::int64_t statistic(const View& x, const AttentionArgs& a, const AttentionTile& t,
                                                  int row) {
  return t.q.batch * x.stride[0] + t.head(row) * x.stride[1] + (t.q.begin + t.query(row)) * x.stride[2];
}
/// A row of partial results: (splits, b, s_q, h_q).
__device__ __forceinline__ std::int64_t partial_row(const AttentionArgs& a, const AttentionTile& t, int row) {
  return ((t.split * a.b + t.b) * a.s_q + t.query(row)) * a.h_q + t.head(row);
}
/// Its softmax: l was summed relative to e^m in f32, else to 2^m. Not their LSE: rounded to f32 that would cost the
/// weight of a part 2e-7, which f32 outputs feel.
__device__ __forceinline__ void store_part(const AttentionArgs& a, const AttentionTile& t, int row, float m, float l) {
  reinterpret_cast<float2*>(a.partial_m_l)[partial_row(a, t, row)] = {m, l};
}

/// Registers -> shared memory -> 16 bytes a thread. Each warp handles its own rows, so no barrier of the CTA is needed.
template <class Config, bool kAligned, class Output>
__device__ __forceinline__ void store_o(const AttentionArgs& a, const AttentionTile& t, typename Config::TiledMma mma,
                                        const Output& rO, typename Config::Element* shared) {
  using Element = typename Config::Element;
  const auto sO = make_tensor(make_smem_ptr(shared), typename Config::LayoutO{});  // (M, D)
  const auto out = make_tiled_copy_C(typename Config::CopyAtomO{}, mma).get_thread_slice(threadIdx.x);
  auto rounded = make_tensor<Element>(rO.layout());
  convert(rO, rounded);
  copy(typename Config::CopyAtomO{}, out.retile_S(rounded), out.partition_D(sO));
  __syncwarp();

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  Element* o = static_cast<Element*>(a.o.data) + t.q.batch * a.o.stride[0] + t.q.begin * a.o.stride[1];
  CUTE_UNROLL
  for (int i = 0; i < Config::kSizeQ / Config::kThreads / 8; ++i) {
    const auto chunk = Config::chunk_of_o(warp, i * 32 + lane);
    const int in_tile = get<0>(chunk), column = get<1>(chunk), row = t.row0 + in_tile;
    const int left = static_cast<int>(a.d_v) - column;
    if (row >= t.rows || left <= 0) continue;
    Element* to = o + t.query(row) * a.o.stride[1] + t.head(row) * a.o.stride[2] + column;
    const Element* from = &sO(in_tile, column);
    if (kAligned || (a.aligned && left >= 8)) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int c = 0; c < 8 && c < left; ++c) to[c] = from[c];
    }
  }
}

/// One part of the keys: f32, straight from the registers, two neighbours at once where d_v is even.
template <class Output, class Coordinates>
__device__ __forceinline__ void store_partial(const AttentionArgs& a, const AttentionTile& t, const Output& O,
                                              const Coordinates& cO) {
  const int d_v = static_cast<int>(a.d_v);
  CUTE_UNROLL
  for (int r = 0; r < size<0>(O); ++r) {
    const int row = t.row0 + static_cast<int>(get<0>(cO(r, 0)));
    if (row >= t.rows) continue;
    float* to = a.partial_o + partial_row(a, t, row) * a.d_v;
    CUTE_UNROLL
    for (int c = 0; c < size<1>(O); c += 2) {
      const int column = static_cast<int>(get<1>(cO(r, c)));
      if (d_v % 2 == 0 && column < d_v) {
        *reinterpret_cast<float2*>(to + column) = {O(r, c), O(r, c + 1)};
      } else {
        if (column < d_v) to[column] = O(r, c);
        if (column + 1 < d_v) to[column + 1] = O(r, c + 1);
      }
    }
  }
}

template <class Config, class Softmax, class Scores, class Output>
__device__ __forceinline__ void store_tile(const AttentionArgs& a, const AttentionTile& t,
                                           typename Config::TiledMma mma, const Softmax& softmax, Scores& scores,
                                           Output& rO, typename Config::Element* shared) {
  auto O = rows_columns(rO);  // (rows, columns) of this thread
  const auto cO = rows_columns(mma.get_thread_slice(threadIdx.x)
                                   .partition_C(make_identity_tensor(Shape<Int<Config::kRows>, Int<Config::kD>>{})));
  float normal[Softmax::kSize];
  CUTE_UNROLL
  for (int r = 0; r < Softmax::kSize; ++r) {
    normal[r] = softmax.l[r] == 0 ? 0.f : scores.kept_scale() * reciprocal(softmax.l[r]);
    if (a.splits == 1 && a.lse.data == nullptr) continue;
    const int row = t.row0 + get<0>(cO(r, 0));
    if (threadIdx.x % 4 != 0 || row >= t.rows) continue;
    if (a.splits > 1)
      store_part(a, t, row, softmax.reference(r, scores.unit), softmax.l[r]);
    else
      static_cast<float*>(a.lse.data)[statistic(a.lse, a, t, row)] = softmax.lse(r, scores.nats);
  }
  scores.store_row_max(softmax, cO);
  normalise_rows(O, normal);
  if (a.splits > 1) return store_partial(a, t, O, cO);
  store_o<Config, Scores::kAligned>(a, t, mma, rO, shared);
}

}  // namespace falchion::sm80
