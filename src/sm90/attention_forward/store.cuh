// src/sm90/attention_forward/store.cuh: the end of a tile for a consumer warpgroup: it stores O / l and the LSE, or one
// part of them where the keys are split. docs/design/sm90_forward.md has the measurements of other ways to store.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/sinks.cuh"
#include "gpu/attention_forward/store.cuh"
#include "gpu/blocks/fragments.cuh"
#include "gpu/blocks/sm90_wgmma.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// Rounds two numbers of O to Element.
template <class Element>
struct PairOfO {
  FALCHION_DEVICE explicit PairOfO(const AttentionArgs&) {}
  FALCHION_DEVICE std::uint32_t operator()(float x, float y) const { return round(x, y); }
  static FALCHION_DEVICE std::uint32_t round(float x, float y) {
    const auto pair = cutlass::NumericArrayConverter<Element, float, 2>::convert({x, y});
    return reinterpret_cast<const std::uint32_t&>(pair);
  }
};
/// An O of bf16 or f16, as the run says. Kind fp8 has no registers for code of both.
struct Of16Bits {
  std::uint16_t bits;
};
template <>
struct PairOfO<Of16Bits> {
  bool f16_;
  FALCHION_DEVICE explicit PairOfO(const AttentionArgs& a) : f16_(a.type_o == Number::f16) {}
  FALCHION_DEVICE std::uint32_t operator()(float x, float y) const {
    const std::uint32_t of_f16 = PairOfO<f16>::round(x, y), of_bf16 = PairOfO<bf16>::round(x, y);
    return f16_ ? of_f16 : of_bf16;
  }
};

/// Stores O straight from the registers, without a trip through shared memory. In an atom of the accumulator a quad of
/// lanes has 8 columns of a row, two in each lane. The lanes exchange the columns of 4 such atoms, so that each lane
/// has all 8 columns of one atom and writes them as 16 bytes.
template <class Element, class Output, class Coordinates>
FALCHION_DEVICE void store_o(const AttentionArgs& a, const AttentionTile& t, const Output& O, const Coordinates& cO) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  Element* o = static_cast<Element*>(a.o.data) + t.q.batch * a.o.stride[0] + t.q.begin * a.o.stride[1];
  const PairOfO<Element> round(a);
  CUTE_UNROLL
  for (int r = 0; r < size<0>(O); ++r) {
    const int row = t.row0 + static_cast<int>(get<0>(cO(r, 0)));
    Element* to = o + t.query(row) * a.o.stride[1] + t.head(row) * a.o.stride[2] + lane * 8;
    CUTE_UNROLL
    for (int c = 0; c < size<1>(O); c += 8) {  // 4 atoms
      std::uint32_t x[4];
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) x[i] = round(O(r, c + 2 * i), O(r, c + 2 * i + 1));
      transpose_quad(x);
      if (row < t.rows && c * 4 + lane * 8 < a.d_v) *reinterpret_cast<uint4*>(to + c * 4) = {x[0], x[1], x[2], x[3]};
    }
  }
}

struct SameFactor {
  FALCHION_DEVICE float operator()(float factor) const { return factor; }
};

/// Divides O by l and stores O and, if requested, the LSE. Where the keys are split it stores this part of them for the
/// kernel that combines the parts. nats: one unit of S in the exponent of e. factor_of_o: what makes the factor of a
/// row of O from 1 / l.
template <class Config, class Softmax, class Output, class FactorOfO = SameFactor>
FALCHION_DEVICE void store_tile(const AttentionArgs& a, const AttentionTile& t, const Softmax& softmax, float nats,
                                Output& rO, FactorOfO factor_of_o = {}) {
  auto O = rows_columns(as_mma_accumulator(rO));  // (rows, columns) of this thread
  const auto cO = rows_columns(typename Config::MmaOfRows{}
                                   .get_thread_slice(threadIdx.x)
                                   .partition_C(make_identity_tensor(Shape<Int<Config::kRows>, Int<Config::kDv>>{})));
  float normal[Softmax::kSize];
  CUTE_UNROLL
  for (int r = 0; r < Softmax::kSize; ++r) {
    normal[r] = softmax.l[r] == 0 ? 0.f : reciprocal(softmax.l[r]);
    if (a.splits == 1 && a.lse.data == nullptr && !has_sinks(a)) continue;
    const int row = t.row0 + static_cast<int>(get<0>(cO(r, 0)));
    float lse = softmax.lse(r, nats);
    if (has_sinks(a) && a.splits == 1) {
      const RowEnd end = end_with_sink(softmax.reference(r, nats * kLog2e), softmax.l[r], sink_of_row(a, t, row));
      normal[r] = end.factor;
      lse = end.lse;
    }
    if (threadIdx.x % 4 != 0 || row >= t.rows) continue;
    if (a.splits > 1)
      store_part<Config::kCutsPacked>(a, t, row, softmax.reference(r, nats * kLog2e), softmax.l[r]);
    else if (a.lse.data != nullptr)
      static_cast<float*>(a.lse.data)[statistic(a.lse, a, t, row)] = lse;
  }
  CUTE_UNROLL
  for (float& x : normal) x = factor_of_o(x);
  normalise_rows(O, normal);
  if (a.splits > 1)
    store_partial<Config::kCutsPacked>(a, t, O, cO);
  else
    store_o<typename Config::Element>(a, t, O, cO);
}

/// Stores the result of rows that see no key: O = 0 and LSE = -inf, or the sink.
template <class Config>
FALCHION_DEVICE void store_nothing(const AttentionArgs& a, const AttentionTile& t) {
  auto rO = make_tensor<float>(Layout<Int<Config::kDv / 2>>{});
  clear(rO);
  SoftmaxRows<2> softmax;
  softmax.reset();
  store_tile<Config>(a, t, softmax, 1.f, rO);
}

}  // namespace falchion::sm90
