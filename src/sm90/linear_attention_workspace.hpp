// src/sm90/linear_attention_workspace.hpp: what Hopper's rows of linear attention keep in the workspace. Plain C++: the
// plan counts its bytes where the rows' code is not built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/linear_attention_columns.hpp"
#include "policy/host_device.hpp"
#include "sm90/linear_attention_tiles.hpp"

namespace falchion::sm90 {

using namespace gpu;

using gpu::LinearAttentionArgs;

/// The workspace of a grid: for each of its columns (CTAs with the same head and 64 columns, one a segment) tiles of S,
/// then for each tile the number of the launch that has emptied it. Tiles: the sums of parts; where these are many, the
/// totals of so many parts each that a CTA reads about twice the root of their number; what segment 0 starts from.
struct SegmentTiles {
  int parts, group, totals;
  FALCHION_HD explicit SegmentTiles(const LinearAttentionArgs& a)
      : parts((a.segments - 1) * a.parts), group(group_of(parts)), totals(parts / group) {}
  FALCHION_HD int total(int i) const { return parts + i; }
  FALCHION_HD int start() const { return parts + totals; }
  FALCHION_HD int count() const { return start() + 1; }

 private:
  /// Up to 8 each is read by itself: a total would have to be waited for, too.
  static FALCHION_HD int group_of(int parts) {
    int root = 3;
    while (root * root < parts) ++root;
    return parts <= 8 ? parts + 1 : root;
  }
};

/// Bytes that a row for head dims up to kD wants, from sizes and segments.
template <int kD, bool kBackward>
std::size_t linear_workspace(const LinearAttentionArgs& a) {
  if (a.segments == 1) return 0;
  const std::int64_t columns = std::int64_t{linear_column_tiles(a, kBackward)} * (kBackward ? 3 : 1) * a.h_v * a.b;
  const auto tiles = static_cast<std::size_t>(SegmentTiles(a).count() * columns);
  return tiles * (kD * kLinearColumns * sizeof(float) + sizeof(std::uint64_t));
}

}  // namespace falchion::sm90
