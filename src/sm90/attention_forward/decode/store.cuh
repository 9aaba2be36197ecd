// src/sm90/attention_forward/decode/store.cuh: the end of a segment: O / l and the LSE of its rows.
#pragma once

#include "base/host_device.hpp"
#include "sm90/attention_forward/decode/sums.cuh"

namespace falchion::sm90 {

/// part: four columns of row `row` of the tile.
template <class Config>
FALCHION_DEVICE void store_part(const AttentionArgs& a, const Divisors& by, const DecodeWalk<Config>& walk,
                                const DecodePart& part, int row, int four) {
  using Element = typename Config::Element;
  const Rows of_q = rows_of_q(a, walk.b);
  const int query = by.group.div(walk.row0 + row);
  const int head = walk.row0 + row - query * a.group + walk.head_k * a.group;
  const std::int64_t place = of_q.begin + query;
  if (four == 0 && a.lse.data != nullptr) {
    const bool nothing = part.m == -FALCHION_INF && part.l == 0;
    static_cast<float*>(a.lse.data)[of_q.batch * a.lse.stride[0] + head * a.lse.stride[1] + place * a.lse.stride[2]] =
        nothing ? -FALCHION_INF : fmaf(part.m, a.scale, log2(part.l) * kLn2);
  }
  if (4 * four >= a.d_v) return;
  const float factor = reciprocal(part.l);
  const bool nothing = part.l == 0;  // then o may be 0 times a NaN of V
  const uint2 o = {round_pair<Element>(nothing ? 0.f : part.o.x * factor, nothing ? 0.f : part.o.y * factor),
                   round_pair<Element>(nothing ? 0.f : part.o.z * factor, nothing ? 0.f : part.o.w * factor)};
  Element* const to = static_cast<Element*>(a.o.data) + of_q.batch * a.o.stride[0] + place * a.o.stride[1] +
                      head * a.o.stride[2] + 4 * four;
  *reinterpret_cast<uint2*>(to) = o;
}

}  // namespace falchion::sm90
