// src/sm80/attention_backward/once/config.hpp: tiles, shared memory and the shares of the warps in the backward kernel
// that computes each pair of tiles once. docs/design/sm80_backward.md gives the reasons.
#pragma once

#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include "base/host_device.hpp"
#include "gpu/attention_backward/tile.cuh"
#include "gpu/blocks/barrier.cuh"
#include "gpu/blocks/mma.cuh"
#include "tiles/attention_backward/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;

/// The rows of the first head that a CTA visits, and the workspace for them.
template <class Element>
struct alignas(16) HeadOfRows {
  const Element *q, *grad_o;  // row 0 of the sequence
  const float *lse, *delta;
  float* sums;         // of grad_q
  unsigned* turns;     // two for each 64 rows, of which only the first is used
  int blocks;          // of 64 rows, from one head to the next
  int keys;            // of the sequence, that have an owner
  std::int64_t reach;  // a row sees no key after row + reach
};

/// A tile of rows that a CTA visits.
struct alignas(16) RowTile {
  int head, tile;  // the head counts from the CTA's first one
  int block;       // number of its first 64 rows in the workspace, counted from row 0 of the sequence and first head
  int wanted;      // CTAs that add to its sums of grad_q before this one; any_order: 1
};

/// Rows in [begin, end) see all keys of a strip.
struct alignas(16) RowsThatSeeAll {
  int begin, end;
};

/// A CTA owns N = 128 keys x D head dims and visits tiles of M query rows. Of S^T = K Q^T and dP^T = V dO^T each of its
/// eight warps has 32 keys and half of the rows. So P^T and dS^T of these rows are operands of dV += P^T dO and dK +=
/// dS^T Q in the same registers; those of the other rows come from a neighbour with the same keys. Of dK and dV a warp
/// has 32 keys and half of the columns, and of dQ = dS K 32 rows and 32 columns.
template <class Element_, int kD_>
struct BackwardOnce {
  using Element = Element_;
  static constexpr BackwardTiles kTiles = attention_backward_tiles(BackwardKind::once, kD_);
  static constexpr int kD = kD_, kKeys = kTiles.own, kRows = kTiles.visited, kStages = kTiles.stages;
  static constexpr int kThreads = kTiles.threads, kCtas = kTiles.ctas, kWarps = kThreads / 32;
  static constexpr int kSharedBytes = backward_shared_bytes(kTiles);
  static constexpr int kChunk = 8;  // elements that are copied at a time
  static constexpr int kHalf = kRows / 2;
  static constexpr int kStrips = kKeys / 32;    // of keys: warp w has strip w % kStrips and half w / kStrips
  static constexpr int kStripsDq = kRows / 32;  // of rows: of dQ warp w has strip w % kStripsDq
  static_assert(kStages == 2 && kWarps == 2 * kStrips && kWarps * 32 * 32 == kRows * kD && kTiles.columns == kD);

  template <int kLines>
  static FALCHION_DEVICE int at(int row, int column) {
    return swizzled<kLines>(row, column);
  }

  struct Shared {
    alignas(128) Element k[kKeys * kD];                // (N, D)
    alignas(128) Element v[kKeys * kD];                // (N, D)
    alignas(128) Element q[kStages][kRows * kD];       // (M, D)
    alignas(128) Element grad_o[kStages][kRows * kD];  // (M, D)
    alignas(128) Element p[kKeys * kRows];             // P^T: (N, M)
    alignas(128) Element ds[kKeys * kRows];            // dS^T: (N, M)
    alignas(16) float lse[kStages][kRows], delta[kStages][kRows];
    // there: both warps of a strip have written their P; all warps have written their dS, and the next tile of rows has
    // arrived. done: no warp still reads the tile of rows or dS.
    SplitBarrier p_there[kStrips], ds_there, done;
    gpu::BackwardTile tile;  // in shared memory, since there are no registers for it and the following
    HeadOfRows<Element> head;
    RowTile rows[4];  // of the last step, this one and the next two
    RowsThatSeeAll whole[kStrips];
    unsigned turns_seen[kWarps];  // the turns that each warp has read last
  };
  static_assert(sizeof(Shared) == kSharedBytes && kSharedBytes <= 163 * 1024, "an SM of sm_80 gives a CTA 163 KB");
};

}  // namespace falchion::sm80
