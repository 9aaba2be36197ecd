// src/tiles/linear_attention/sm90_workspace.hpp: the workspace of Hopper's variants of linear attention (segments.cuh;
// docs/design/linear_attention.md, "Few heads on Hopper"). It is plain C++, because the plan counts the bytes even if
// the code of the variants is not built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.hpp"
#include "tiles/linear_attention/columns.hpp"
#include "tiles/linear_attention/sm90.hpp"

namespace falchion::sm90 {

using namespace gpu;

using gpu::LinearAttentionArgs;

/// The tiles of the workspace. A column of the grid is the CTAs with the same sweep, head and 64 columns, one for each
/// segment. The workspace has tiles of S for each column, and after all tiles, for each tile, the number of the launch
/// that has emptied it. The tiles of a column are, in this order, the sums of the parts, the totals of `group` parts
/// each, and the start state of segment 0. There are totals if there are many parts: `group` is about the square root
/// of their number, so that a CTA reads about twice that root of tiles instead of all parts before it.
struct SegmentTiles {
  int parts, group, totals;
  FALCHION_HD explicit SegmentTiles(const LinearAttentionArgs& a)
      : parts((a.segments - 1) * a.parts), group(group_of(parts)), totals(parts / group) {}
  FALCHION_HD int total(int i) const { return parts + i; }
  FALCHION_HD int start() const { return parts + totals; }
  FALCHION_HD int count() const { return start() + 1; }

 private:
  /// Up to 8 parts are read one by one, without totals, because a CTA would have to wait for a total, too.
  static FALCHION_HD int group_of(int parts) {
    int root = 3;
    while (root * root < parts) ++root;
    return parts <= 8 ? parts + 1 : root;
  }
};

/// The bytes of workspace that a variant for head dims up to kD needs, by the sizes and segments in the arguments.
template <int kD, bool kBackward>
std::size_t linear_workspace(const LinearAttentionArgs& a) {
  if (a.segments == 1) return 0;
  const std::int64_t columns = std::int64_t{linear_column_tiles(a, kBackward)} * (kBackward ? 3 : 1) * a.h_v * a.b;
  const auto tiles = static_cast<std::size_t>(SegmentTiles(a).count() * columns);
  return tiles * (kD * kLinearColumns * sizeof(float) + sizeof(std::uint64_t));
}

}  // namespace falchion::sm90
