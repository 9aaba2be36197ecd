// src/sm90/attention_forward/decode/parts.cuh: the parts of a problem with split_keys. Each part of a row has a place
// in the workspace, and whoever has the last part of a segment adds all of them up, from the first to the last. A CTA
// waits for CTAs of lower index alone, as in exchange.cuh. It says that a part is in its place by the number of the
// launch, so the workspace may hold anything. Its own parts need no number: barriers lie between them.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_messages.cuh"
#include "sm90/attention_forward/decode/sums.cuh"

namespace falchion::sm90 {

/// The places of the parts of a segment.
template <class Config>
class DecodePlaces {
 public:
  explicit FALCHION_DEVICE DecodePlaces(const DecodeWalk<Config>& walk) : walk(walk) {
    const std::int64_t heads = walk.a.h_q / walk.a.group,
                       row_tile = walk.b * row_tiles(walk.a) + walk.row0 / Config::kRows;
    first = (row_tile * heads + walk.head_k) * walk.a.splits;
  }
  static FALCHION_HD std::int64_t row_tiles(const AttentionArgs& a) {
    return (a.s_q * a.group + Config::kRows - 1) / Config::kRows;
  }
  /// The places of all parts.
  static std::int64_t of_problem(const AttentionArgs& a) { return a.b * row_tiles(a) * (a.h_q / a.group) * a.splits; }

  /// The number that says that a part is in its place.
  FALCHION_DEVICE std::uint64_t* number(int part) const { return walk.grid.numbers + first + part; }
  /// Stores the walk's part of a row.
  FALCHION_DEVICE void keep(const DecodePart& x, int row, int four) const {
    float4* const to = place(walk.part);
    tell(to + row * Config::kFours + four, x.o);
    if (four == 0) tell(to + kOfRows + row, make_float4(x.m, x.l, 0, 0));
  }
  /// All parts of a row. own: the walk's part, the first that this CTA has.
  FALCHION_DEVICE DecodePart add_parts(const DecodePart& own, int row, int four, float c) const {
    const int begin = walk.parts().begin_part(), end = walk.parts().last_part() + 1;
    DecodePart sum = DecodePart::of_no_keys();
    for (int first_of_some = begin; first_of_some < end; first_of_some += kAtOnce) {
      DecodePart some[kAtOnce];
      CUTE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int part = first_of_some + i;
        some[i] = own;
        if (part == walk.part || part >= end) continue;
        const float4* const from = place(part);
        some[i].o = hear(from + row * Config::kFours + four);
        const float4 m_l = hear(from + kOfRows + row);
        some[i].m = m_l.x;
        some[i].l = m_l.y;
      }
      CUTE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first_of_some + i < end) sum.add(some[i].o, some[i].m, some[i].l, c);
      }
    }
    return sum;
  }

 private:
  static constexpr int kAtOnce = 8;
  static constexpr int kOfRows = Config::kRows * Config::kFours;  // where m and l lie in a place

  FALCHION_DEVICE float4* place(int part) const { return walk.grid.places + (first + part) * Config::kPlace; }

  const DecodeWalk<Config>& walk;
  std::int64_t first;  // place of the segment's sequence, row tile and head
};

}  // namespace falchion::sm90
