// src/gpu/attention_backward/tile.cuh: works out which rows or keys one CTA of the backward pass owns, and which tiles
// of the other side it visits.
#pragma once

#include <cutlass/fast_math.h>

#include "args/gpu_attention_backward_args.hpp"
#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "policy/mask.hpp"
#include "tiles/attention_backward/workspace.hpp"

namespace falchion::gpu {

/// What a CTA of a sweep owns while it visits the other side: a tile of keys (grad_k and grad_v) or of query rows
/// (grad_q).
enum class Owner { keys, rows };

/// The numbers by which block indices are divided. The host prepares these divisions.
struct BackwardDivisors {
  cutlass::FastDivmod tiles, heads, parts, ratio;
  BackwardDivisors(const AttentionBackwardArgs& a, Owner owner, int parts)
      : tiles(static_cast<int>(owner == Owner::keys ? a.key_tiles : a.row_tiles)),
        heads(static_cast<int>(owner == Owner::keys ? a.h_k : a.h_q)),
        parts(parts),
        // Without query heads the ratio is not used, but FastDivmod cannot be made of 0, which it would divide by on
        // the host.
        ratio(static_cast<int>(a.h_q > 0 ? a.h_q / a.h_k : 1)) {}
};

/// The blocks of a sweep whose outputs are cut into `parts` parts of columns.
inline std::int64_t backward_blocks(const AttentionBackwardArgs& a, Owner owner, int parts) {
  const std::int64_t tiles = owner == Owner::keys ? a.key_tiles * a.h_k : a.row_tiles * a.h_q;
  return tiles * parts * (a.packed ? 1 : a.b);
}

/// The queries, of `length`, that see at least one key in [k0, k1).
FALCHION_DEVICE Range queries_of(const BandMask& mask, std::int64_t k0, std::int64_t k1, int length) {
  const std::int64_t begin = k0 - mask.shift - mask.right, end = k1 - mask.shift + mask.left;
  return {max(begin, std::int64_t{0}), min(end, std::int64_t{length})};
}

/// The statistic of a masked-out row.
FALCHION_DEVICE RowStatistic no_row() { return {__int_as_float(0x7F800000), -0.0f}; }
FALCHION_DEVICE bool counts_for_nothing(const RowStatistic& x) { return __float_as_uint(x.delta) == 0x80000000u; }

struct BackwardTile {
  int b, h, heads, h_kv;  // sequence; its query heads [h, h + heads); K/V head
  int part;               // of the output's columns
  int tile;               // number of the owned tile, of one head; packed: of all sequences together
  Rows q, k;
  int own0;        // the first row or key that is owned
  int begin, end;  // tiles of the other side to visit
  BandMask mask;

  /// Block x stands for (sequence, head, tile, part). The part changes fastest, then the tile. With a causal band the
  /// last rows and the first keys have the most tiles to visit; they come first, since the blocks that start last
  /// should be short. The caller may choose another order of the tiles.
  template <Owner owner, int kOwn, int kVisited>
  static FALCHION_DEVICE BackwardTile of(const AttentionBackwardArgs& a, const BackwardDivisors& by, int x,
                                         bool last_tile_first = owner == Owner::rows) {
    constexpr bool kKeys = owner == Owner::keys;
    BackwardTile t{};
    int head;
    by.parts(x, t.part, x);
    by.tiles(x, t.tile, x);
    by.heads(t.b, head, x);
    if (last_tile_first) t.tile = by.tiles.divisor - 1 - t.tile;
    t.heads = kKeys ? by.ratio.divisor : 1;
    t.h = head * t.heads;
    t.h_kv = kKeys ? head : by.ratio.div(head);
    int m = t.tile;
    if (a.cu_q != nullptr) {
      const auto length_of = [&](int b) { return kKeys ? rows_of_k(a, b).length : rows_of_q(a, b).length; };
      m = find_sequence<kOwn>(a.b, m, length_of, &t.b);
    }
    t.q = rows_of_q(a, t.b);
    t.k = rows_of_k(a, t.b);
    t.own0 = m * kOwn;
    t.mask = BandMask::make(t.k.length, shift_of(a, t.q.length, t.k.length), a.left, a.right);
    if (t.own0 >= t.own_length<owner>()) return t;
    const int end = min(t.own0 + kOwn, t.own_length<owner>());
    const Range seen = kKeys ? queries_of(t.mask, t.own0, end, t.q.length) : t.mask.visible(t.own0, end);
    if (seen.empty() || a.h_q == 0) return t;  // nothing to visit: begin and end are 0
    t.begin = static_cast<int>(seen.begin) / kVisited;
    t.end = (static_cast<int>(seen.end) + kVisited - 1) / kVisited;
    return t;
  }
  template <Owner owner>
  FALCHION_DEVICE int own_length() const {
    return owner == Owner::keys ? k.length : q.length;
  }
  /// Whether every query in [q0, q0 + rows) sees every key in [k0, k0 + keys).
  FALCHION_DEVICE bool all_seen(int q0, int rows, int k0, int keys) const {
    const Range all = mask.unmasked(q0, q0 + rows);
    return all.begin <= k0 && k0 + keys <= all.end;
  }
};

}  // namespace falchion::gpu
