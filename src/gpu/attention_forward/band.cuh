// src/gpu/attention_forward/band.cuh: applies the band to the scores of a thread, that is, masks the keys that a row
// does not see.
#pragma once

#include <cute/tensor.hpp>

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/softmax.cuh"

namespace falchion::gpu {

/// mask.keep: sets S to -inf for masked keys. In each row the visible keys are an interval [begin, end). Its bounds are
/// counted from this thread's first column, because the other columns lie at constant distances from that one.
template <class S, class Coordinates>
FALCHION_DEVICE void keep_band(const AttentionArgs& a, const AttentionTile& t, S& s, const Coordinates& at, int key0) {
  const int key = key0 + static_cast<int>(get<1>(at(0, 0)));
  const auto seen_from_key = [&](std::int64_t bound) {  // a bound beyond the tile is clamped, to fit an int
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

}  // namespace falchion::gpu
