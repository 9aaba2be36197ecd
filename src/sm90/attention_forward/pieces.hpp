// src/sm90/attention_forward/pieces.hpp: the pieces in which kind pages loads a tile of keys. A piece lies in one page.
// It is plain C++, so tests/sm90_pieces_test.cpp runs it on the host.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"
#include "policy/cache.hpp"
#include "tiles/attention_forward/sm90.hpp"

namespace falchion::sm90 {

/// Piece i of each tile of keys of a sequence, which a lane of a producer looks up.
struct KeyPiece {
  KeyRows rows;
  int first = 0;      // its first key in tile 0
  int end = 0;        // from this key on there are none; 0 if a tile has fewer pieces
  unsigned bits = 0;  // of its keys in the word of a tile, which has a bit for each kLeastPiece keys

  /// length: the keys of the sequence.
  static FALCHION_HD KeyPiece of(const CachePages& pages, int b, std::int64_t begin, int length, int i,
                                 int keys_of_tile) {
    const int keys = keys_of_piece(pages.size, keys_of_tile), first = i * keys, count = keys / kLeastPiece;
    const bool exists = first < keys_of_tile;
    return {KeyRows::of(pages, b, 0, begin), first, exists ? length : 0, exists ? ((1U << count) - 1) << i * count : 0};
  }
  /// What the table says of the piece that begins with `key`. It is not asked for keys past the sequence.
  FALCHION_HD KeyRows::Look look(int key) const { return key < end ? rows.look(key) : KeyRows::Look{-1, 0}; }
  /// The page where it lies; -1: nothing of it is read, and TMA makes it 0.
  FALCHION_HD int page(const KeyRows::Look& x) const { return rows.exists(x) ? x.page : -1; }
  /// Its bits, if the sequence has its keys but their page is not there.
  FALCHION_HD unsigned holes(int key, const KeyRows::Look& x) const { return key < end && !rows.exists(x) ? bits : 0; }
};

}  // namespace falchion::sm90
