// src/sm90/attention_forward/decode/store.cuh: the end of a segment: O / l and the LSE of its rows.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/sinks.cuh"
#include "sm90/attention_forward/decode/sums.cuh"

namespace falchion::sm90 {

/// The query head of row `row` of the tile.
template <class Config>
FALCHION_DEVICE int head_of(const AttentionArgs& a, const Divisors& by, const DecodeWalk<Config>& walk, int row) {
  const int query = by.group.div(walk.row0 + row);
  return walk.row0 + row - query * a.group + walk.head_k * a.group;
}

/// part: four columns of row `row` of the tile. sink: that of its head.
template <class Config>
FALCHION_DEVICE void store_part(const AttentionArgs& a, const Divisors& by, const DecodeWalk<Config>& walk,
                                const DecodePart& part, int row, int four, float sink) {
  using Element = typename Config::Element;
  const Rows of_q = rows_of_q(a, walk.b);
  const int query = by.group.div(walk.row0 + row);
  const int head = head_of(a, by, walk, row);
  const std::int64_t place = of_q.begin + query;
  const bool nothing = part.l == 0;  // then o may be 0 times a NaN of V
  RowEnd end{reciprocal(part.l), nothing ? -FALCHION_INF : fmaf(part.m, a.scale, log2(part.l) * kLn2)};
  if (has_sinks(a)) end = end_with_sink(part.m * a.scale * kLog2e, part.l, sink);
  if constexpr (Config::kScaled) {
    if (!has_scale_of_key<Config>(a.v_scale)) end.factor *= scale_of_segment(a, a.v_scale, walk);
  }
  if (four == 0 && a.lse.data != nullptr)
    static_cast<float*>(a.lse.data)[of_q.batch * a.lse.stride[0] + head * a.lse.stride[1] + place * a.lse.stride[2]] =
        end.lse;
  if (4 * four >= a.d_v) return;
  const uint2 o = {round_pair<Element>(nothing ? 0.f : part.o.x * end.factor, nothing ? 0.f : part.o.y * end.factor),
                   round_pair<Element>(nothing ? 0.f : part.o.z * end.factor, nothing ? 0.f : part.o.w * end.factor)};
  Element* const to = static_cast<Element*>(a.o.data) + of_q.batch * a.o.stride[0] + place * a.o.stride[1] +
                      head * a.o.stride[2] + 4 * four;
  *reinterpret_cast<uint2*>(to) = o;
}

}  // namespace falchion::sm90
