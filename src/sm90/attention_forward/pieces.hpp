// src/sm90/attention_forward/pieces.hpp: the pieces in which kind pages loads a tile of keys. A piece lies in one page.
// It is plain C++, so tests/sm90_pieces_test.cpp runs it on the host.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"
#include "policy/cache.hpp"
#include "tiles/attention_forward/sm90.hpp"

namespace falchion::sm90 {

/// Where a piece lies.
struct KeyPiece {
  int page = -1, row = 0;  // its first key is row `row` of a page; page -1: nothing of it is read, TMA makes it 0
  bool hole = false;       // the sequence has its keys, but the page is not there

  /// The piece whose first key is `key`, of a sequence that has `length` keys. The table is not asked for keys past the
  /// sequence.
  static FALCHION_HD KeyPiece of(const CachePages& pages, int b, std::int64_t begin, int length, int key) {
    if (key >= length) return {};
    const KeyPlace place = KeyRows::of(pages, b, 0, begin).at(key);
    if (!place.exists()) return {.hole = true};
    return {static_cast<int>(place.batch), static_cast<int>(place.row)};
  }
  /// If it is a hole, the bits of its keys in the word of its tile, which has a bit for each kLeastPiece keys. It is
  /// the i-th piece, and each has `keys` keys.
  FALCHION_HD unsigned holes(int i, int keys) const {
    const int bits = keys / kLeastPiece;
    return hole ? ((1U << bits) - 1) << i * bits : 0;
  }
};

}  // namespace falchion::sm90
