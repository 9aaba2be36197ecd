// src/gpu/attention_forward/tile.cuh: works out the rows and keys of one CTA.
#pragma once

#include <cutlass/fast_math.h>

#include "args/gpu_attention_args.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/rows.cuh"
#include "policy/mask.hpp"

namespace falchion::gpu {

/// The numbers by which block indices and rows are divided. The host prepares these divisions, so that each takes some
/// 5 instructions instead of 30. A CTA of a short sequence divides as often as it loads tiles.
struct Divisors {
  cutlass::FastDivmod tiles, splits, heads, ratio, group;
  explicit Divisors(const AttentionArgs& a)
      : tiles(static_cast<int>(a.tiles)),
        splits(a.splits),
        heads(static_cast<int>(a.h_q) / a.group),
        ratio(static_cast<int>(a.h_q / a.h_k)),
        group(a.group) {}
};

FALCHION_DEVICE Rows rows_of_q(const AttentionCall& a, int b) {
  return Rows::of(b, a.cu_q, a.total_q, a.s_q, a.used_q);
}
/// kPages: in a cache with pages, where `begin` counts keys and not rows of k.
template <bool kPages = false>
FALCHION_DEVICE Rows rows_of_k(const AttentionCall& a, int b) {
  Rows rows =
      kPages ? Rows::of(b, nullptr, 0, room_of_cache(a, b), a.used_k) : Rows::of(b, a.cu_k, a.total_k, a.s_k, a.used_k);
  if (a.first_k != nullptr) {
    rows.first = min(max(a.first_k[b], 0), rows.length);
    rows.begin += rows.first;
    rows.length -= rows.first;
  }
  return rows;
}

/// For packed sequences: finds the sequence that has tile m of all sequences together, and returns the tile's number in
/// it, counted from its first rows. length_of(b) is the number of rows of sequence b. Past the last tile it returns one
/// whose rows lie beyond any sequence. A warp tests 32 sequences at a time.
template <int kRows, class LengthOf>
FALCHION_DEVICE int find_sequence(std::int64_t sequences, int m, LengthOf length_of, int* b) {
  const int lane = static_cast<int>(threadIdx.x) % 32, count = static_cast<int>(sequences);
  for (int base = 0; base < count; base += 32) {
    const int mine = base + lane;
    int sum = mine < count ? (length_of(mine) + kRows - 1) / kRows : 0;
    const int tiles = sum;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, sum, step);
      sum += lane >= step ? other : 0;
    }
    const unsigned past = __ballot_sync(~0u, sum > m);
    if (past != 0) {
      const int found = __ffs(static_cast<int>(past)) - 1;
      *b = base + found;
      return m - __shfl_sync(~0u, sum - tiles, found);
    }
    m -= __shfl_sync(~0u, sum, 31);
  }
  *b = 0;
  return (1 << 30) / kRows;
}

/// The tile of one CTA. Its rows are the query rows of a.group heads, where the head changes fastest: row r is query r
/// / group of head h + r % group.
struct AttentionTile {
  int b, h, h_kv, split;  // sequence, first query head, K/V head, part of the keys
  Rows q, k;
  int row0, rows;                    // first row of the tile; rows of the sequence in all
  int begin, end;                    // tiles of keys to visit
  int unmasked_begin, unmasked_end;  // keys that every row of the tile sees
  BandMask mask;
  const Divisors& by;

  FALCHION_DEVICE int query(int row) const { return by.group.div(row); }
  FALCHION_DEVICE int head(int row) const { return h + row - by.group.div(row) * by.group.divisor; }

  /// Block x stands for (sequence, head, split, row tile). The row tile changes fastest, and the last rows come first:
  /// with a causal band they have the most keys, and the blocks that start last should be short. Neighbouring blocks
  /// share K and V in the L2.
  template <int kRows, int kKeys, bool kPages = false>
  static FALCHION_DEVICE AttentionTile of(const AttentionArgs& a, const Divisors& by, int x) {
    AttentionTile t = rows_of<kRows>(a, by, x);
    t.look<kRows, kKeys, kPages>(a);
    return t;
  }
  /// Works out the rows of the tile, but not yet its keys.
  template <int kRows>
  static FALCHION_DEVICE AttentionTile rows_of(const AttentionArgs& a, const Divisors& by, int x) {
    AttentionTile t{.by = by};
    int m, h;
    by.tiles(x, m, x);
    by.splits(x, t.split, x);
    by.heads(t.b, h, x);
    m = by.tiles.divisor - 1 - m;
    t.h = h * by.group.divisor;
    t.h_kv = by.ratio.div(t.h);
    // m is reversed: the blocks past the last tile come first, then the last sequence from its last rows on.
    if (a.cu_q != nullptr)
      m = find_sequence<kRows>(
          a.b, m, [&](int b) { return rows_of_q(a, b).length * a.group; }, &t.b);
    t.q = rows_of_q(a, t.b);
    t.row0 = m * kRows;
    t.rows = t.q.length * a.group;
    return t;
  }
  /// Works out the keys that these rows see.
  template <int kRows, int kKeys, bool kPages = false>
  FALCHION_DEVICE void look(const AttentionArgs& a) {
    k = rows_of_k<kPages>(a, b);
    mask = BandMask::make(k.length, shift_of(a, q.length, k.length), a.left, a.right);
    const int last = min(row0 + kRows, rows) - 1;
    const int q0 = query(row0), q1 = query(last) + 1;
    const Range seen = mask.visible(q0, q1), all = mask.unmasked(q0, q1);
    unmasked_begin = all.empty() ? 0 : static_cast<int>(all.begin);  // an empty range's bounds need not fit an int
    unmasked_end = all.empty() ? 0 : static_cast<int>(all.end);
    begin = seen.empty() ? 0 : static_cast<int>(seen.begin) / kKeys;
    end = seen.empty() ? 0 : (static_cast<int>(seen.end) + kKeys - 1) / kKeys;
    if (a.splits > 1) {
      const bool fixed = a.split_keys > 0;
      const int share = fixed ? static_cast<int>(a.split_keys) / kKeys : (end - begin + a.splits - 1) / a.splits;
      const int first = fixed ? split * share : begin + split * share;
      end = max(min(first + share, end), begin);
      begin = min(max(first, begin), end);
    }
  }
};

}  // namespace falchion::gpu
