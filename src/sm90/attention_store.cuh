// src/sm90/attention_store.cuh: the end of a tile: O / l and LSE; or one part of them, when the keys are split.
#pragma once

#include "blocks/gpu_fragments.cuh"
#include "blocks/sm90_wgmma.cuh"
#include "gpu/attention_store.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// Straight from the registers, so that nobody waits for shared memory: a quad has 8 columns of a row in an atom, two a
/// lane; of 4 atoms each lane gets one whole, and writes its 16 bytes.
template <class Element, class Output, class Coordinates>
__device__ __forceinline__ void store_o(const AttentionArgs& a, const AttentionTile& t, const Output& O,
                                        const Coordinates& cO) {
  using Pair = cutlass::Array<Element, 2>;
  const int lane = static_cast<int>(threadIdx.x) % 4;
  Element* o = static_cast<Element*>(a.o.data) + t.q.batch * a.o.stride[0] + t.q.begin * a.o.stride[1];
  cutlass::NumericArrayConverter<Element, float, 2> converter;
  CUTE_UNROLL
  for (int r = 0; r < size<0>(O); ++r) {
    const int row = t.row0 + static_cast<int>(get<0>(cO(r, 0)));
    Element* to = o + t.query(row) * a.o.stride[1] + t.head(row) * a.o.stride[2] + lane * 8;
    CUTE_UNROLL
    for (int c = 0; c < size<1>(O); c += 8) {  // 4 atoms
      std::uint32_t x[4];
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const Pair pair = converter(cutlass::Array<float, 2>{O(r, c + 2 * i), O(r, c + 2 * i + 1)});
        x[i] = reinterpret_cast<const std::uint32_t&>(pair);
      }
      transpose_quad(x);
      if (row < t.rows && c * 4 + lane * 8 < a.d_v) *reinterpret_cast<uint4*>(to + c * 4) = {x[0], x[1], x[2], x[3]};
    }
  }
}

template <class Config, class Softmax, class Output>
__device__ __forceinline__ void store_tile(const AttentionArgs& a, const AttentionTile& t, const Softmax& softmax,
                                           float nats, Output& rO) {
  auto O = rows_columns(as_mma_accumulator(rO));  // (rows, columns) of this thread
  const auto cO = rows_columns(typename Config::MmaOfRows{}
                                   .get_thread_slice(threadIdx.x)
                                   .partition_C(make_identity_tensor(Shape<Int<Config::kRows>, Int<Config::kDv>>{})));
  float normal[Softmax::kSize];
  CUTE_UNROLL
  for (int r = 0; r < Softmax::kSize; ++r) {
    normal[r] = softmax.l[r] == 0 ? 0.f : reciprocal(softmax.l[r]);
    if (a.splits == 1 && a.lse.data == nullptr) continue;
    const int row = t.row0 + static_cast<int>(get<0>(cO(r, 0)));
    if (threadIdx.x % 4 != 0 || row >= t.rows) continue;
    if (a.splits > 1)
      store_part(a, t, row, softmax.reference(r, nats * kLog2e), softmax.l[r]);
    else
      static_cast<float*>(a.lse.data)[statistic(a.lse, a, t, row)] = softmax.lse(r, nats);
  }
  normalise_rows(O, normal);
  if (a.splits > 1)
    store_partial(a, t, O, cO);
  else
    store_o<typename Config::Element>(a, t, O, cO);
}

/// Rows that see no key: O = 0, LSE = -inf.
template <class Config>
__device__ __forceinline__ void store_nothing(const AttentionArgs& a, const AttentionTile& t) {
  auto rO = make_tensor<float>(Layout<Int<Config::kDv / 2>>{});
  clear(rO);
  OnlineSoftmax<2> softmax;
  softmax.reset();
  store_tile<Config>(a, t, softmax, 1.f, rO);
}

}  // namespace falchion::sm90
