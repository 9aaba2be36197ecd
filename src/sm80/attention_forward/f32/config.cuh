// src/sm80/attention_forward/f32/config.cuh: the compile-time constants of a variant of the f32 kernel, and the
// elements of a tile that a thread owns.
#pragma once

#include <cute/tensor.hpp>

#include "base/host_device.hpp"
#include "tiles/attention_forward/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

using namespace cute;

/// A warp owns 16 rows, and 16 of its lanes share each row. Lanes i and i ^ 1 have the same keys (columns), and lanes i
/// and i ^ 2 have the same rows. So shared memory serves both lanes of such a pair with one read of 16 bytes.
template <int kD_>
struct AttentionForwardF32Config {
  using Element = float;
  static constexpr Tile kTile = attention_forward_tile(Kind::f32, kD_);
  static constexpr int kD = kD_, kRows = kTile.rows, kKeys = kTile.keys, kThreads = 32 * kTile.warps;
  static constexpr int kStages = kTile.stages, kCtas = kTile.ctas;
  static constexpr bool kPages = false, kBytesOfV = false;
  static constexpr int kOwnRows = 8, kOwnKeys = kKeys / 16, kOwnColumns = kD / 16;
  static_assert(kRows == 16 * kTile.warps && kKeys % 64 == 0 && kD % 64 == 0 && kStages >= 2);

  // S is summed in groups of this many terms, because the exponential amplifies the errors of S. With groups of 8 the
  // largest error of O is 40 % of its limit; with one term added after another it is 100 % (verify's case "everything
  // at once"). At D = 256 groups of 8 would spill.
  static constexpr int kTerms = kD < 256 ? 8 : 4;

  // Tiles of keys in a segment (segments.cuh): 2048 keys. At D = 256, where keys are added to O one after another,
  // 1024.
  static constexpr int kSegmentTiles = (kD < 256 ? 2048 : 1024) / kKeys;

  // A chunk of the ring holds kDepth head dims of a K tile, or kSlice keys of a V tile.
  static constexpr int kDepth = f32_depth(kD);
  static constexpr int kChunk = kKeys * kDepth;
  static constexpr int kSlice = kChunk / kD;
  static constexpr int kSlices = kKeys / kSlice;
  // Rows of Q and P are 16 bytes longer than their data, so that the two rows that a warp reads at the same time lie in
  // different banks. SegmentSums uses those of Q.
  static constexpr int kStrideQ = kD + 4, kStrideP = kKeys + 4;
  static constexpr int kSizeQ = kRows * kStrideQ, kSizeP = kRows * kStrideP;  // in floats
  static constexpr int kSharedBytes = 4 * (kSizeQ + kSizeP + kStages * kChunk);
  static_assert(kSharedBytes <= 99 * 1024, "what a CTA of sm_86 may have");

  // In a chunk of K (keys, kDepth) the 16-byte piece c of row r lies at c ^ (r / 4 % 8), so that lanes whose keys are 4
  // apart read from different banks. A chunk of V (kSlice, D) is not swizzled.
  static FALCHION_DEVICE int at_k(int row, int column) { return row * kDepth + (column ^ (row / 4 % 8 * 4)); }
};

/// This thread's first row of the query tile, and its first key of a key tile, which is also its first column of O.
/// Lanes i and i ^ 1 have the same keys; the lanes whose number has the same last bit have the same rows.
struct OwnPlace {
  int row, key;
  FALCHION_DEVICE OwnPlace() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    row = warp * 16 + lane % 2;
    key = lane / 2 * 4;
  }
  /// Returns (row, column) in the tile of this thread's element (r, c) of S or O.
  FALCHION_DEVICE auto operator()(int r, int c) const { return make_coord(row + 2 * r, key + c % 4 + c / 4 * 64); }
};

}  // namespace falchion::sm80
