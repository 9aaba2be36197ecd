// src/sm80/attention_forward/store.cuh: the end of a tile. It stores O / l, the LSE and the row maximum, or one part of
// them where the keys are split.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/sinks.cuh"
#include "gpu/attention_forward/store.cuh"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/mma_fragments.cuh"
#include "gpu/blocks/softmax.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Stores O from registers through shared memory to global memory, 16 bytes per thread. Each warp handles its own rows,
/// so no barrier of the CTA is needed.
template <class Config, class Element, bool kAligned, class Output>
FALCHION_DEVICE void store_o(const AttentionArgs& a, const AttentionTile& t, typename Config::TiledMma mma,
                             const Output& rO, void* shared) {
  const auto sO = make_tensor(make_smem_ptr(static_cast<Element*>(shared)), typename Config::LayoutO{});  // (M, D)
  using CopyAtom = Copy_Atom<UniversalCopy<std::uint32_t>, Element>;
  const auto out = make_tiled_copy_C(CopyAtom{}, mma).get_thread_slice(threadIdx.x);
  auto rounded = make_tensor<Element>(rO.layout());
  convert(rO, rounded);
  copy(CopyAtom{}, out.retile_S(rounded), out.partition_D(sO));
  __syncwarp();

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  Element* o = static_cast<Element*>(a.o.data) + t.q.batch * a.o.stride[0] + t.q.begin * a.o.stride[1];
  CUTE_UNROLL
  for (int i = 0; i < Config::kSizeQ / Config::kThreads / 8; ++i) {
    const auto chunk = Config::chunk_of_o(warp, i * 32 + lane);
    const int in_tile = get<0>(chunk);
    const int column = get<1>(chunk);
    const int row = t.row0 + in_tile;
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

template <class Config, class Softmax, class Scores, class Output>
FALCHION_DEVICE void store_tile(const AttentionArgs& a, const AttentionTile& t, typename Config::TiledMma mma,
                                const Softmax& softmax, Scores& scores, Output& rO, typename Config::Element* shared) {
  auto O = rows_columns(rO);  // (rows, columns) of this thread
  const auto cO = rows_columns(mma.get_thread_slice(threadIdx.x)
                                   .partition_C(make_identity_tensor(Shape<Int<Config::kRows>, Int<Config::kD>>{})));
  float normal[Softmax::kSize];
  CUTE_UNROLL
  for (int r = 0; r < Softmax::kSize; ++r) {
    normal[r] = softmax.l[r] == 0 ? 0.f : scores.kept_scale() * reciprocal(softmax.l[r]);
    if (a.splits == 1 && a.lse.data == nullptr && !has_sinks(a)) continue;
    const int row = t.row0 + get<0>(cO(r, 0));
    float lse = softmax.lse(r, scores.nats);
    if (has_sinks(a) && a.splits == 1) {
      const RowEnd end = end_with_sink(softmax.reference(r, scores.unit), softmax.l[r], sink_of_row(a, t, row));
      normal[r] = end.kept(scores.kept_scale());
      lse = end.lse;
    }
    if (threadIdx.x % 4 != 0 || row >= t.rows) continue;
    if (a.splits > 1)
      store_part(a, t, row, softmax.reference(r, scores.unit), softmax.l[r]);
    else if (a.lse.data != nullptr)
      static_cast<float*>(a.lse.data)[statistic(a.lse, a, t, row)] = lse;
  }
  scores.store_row_max(softmax, cO);
  if constexpr (Config::kBytesOfV) {
    CUTE_UNROLL
    for (int r = 0; r < Softmax::kSize; ++r) normal[r] = scores.factor_of_o(normal[r], softmax.l[r], r);
  }
  normalise_rows(O, normal);
  if (a.splits > 1) return store_partial(a, t, O, cO);
  if constexpr (Config::kBytesOfV) {
    if (a.type_o == Number::bf16) return store_o<Config, cutlass::bfloat16_t, Scores::kAligned>(a, t, mma, rO, shared);
  }
  store_o<Config, typename Config::Element, Scores::kAligned>(a, t, mma, rO, shared);
}

}  // namespace falchion::sm80
