// src/sm90/attention_backward_step.cuh: the order in which a CTA of Hopper's backward kernel visits its tiles of rows.
// All its warps follow it.
#pragma once

#include "sm90/attention_backward_config.hpp"

namespace falchion::sm90 {

/// The steps of a CTA: for each query head of its K/V head, the tiles of rows that see its keys, downwards from `first`
/// and then on from the last one.
struct BackwardStep {
  const BackwardTile& t;
  int first, head, tile, left;

  __device__ __forceinline__ BackwardStep(const BackwardTile& t, int first)
      : t(t), first(first), head(t.h), tile(first), left((t.end - t.begin) * t.heads) {}
  __device__ __forceinline__ bool there() const { return left > 0; }
  __device__ __forceinline__ void advance() {
    --left;
    if (--tile < t.begin) tile = t.end - 1;
    if (tile == first) ++head;
  }
};

/// The tile of rows with which a CTA begins. Where sums have a fixed order that is the last one. So under a causal band
/// the CTAs of a head begin with the same tile, and those whose keys come first, which also add first, end last; no CTA
/// then waits long for the one before it. With any_order each CTA begins two tiles before its neighbour, since it is
/// slow when all CTAs of a head load the same tile, and add to the same sums, at the same time.
template <class Config>
__device__ __forceinline__ int first_tile(const BackwardTile& t, bool any_order) {
  if (!any_order || t.begin >= t.end) return t.end - 1;
  return t.end - 1 - 2 * (t.own0 / Config::kKeys) % (t.end - t.begin);
}

}  // namespace falchion::sm90
