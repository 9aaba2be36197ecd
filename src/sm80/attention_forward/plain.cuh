// src/sm80/attention_forward/plain.cuh: the variants of kind `plain`, for problems with no feature but the band between
// the two products: full attention, causal or window masks, GQA, lengths, splits and LSE. The scale is folded into the
// exponent.
#pragma once

#include "base/host_device.hpp"
#include "sm80/attention_forward/kernel.cuh"

namespace falchion::sm80 {

struct PlainScores {
  static constexpr bool kAligned = true;  // the plan chooses kind general for rows that are not 16-byte aligned
  const AttentionArgs& a;
  const AttentionTile& t;
  const float unit, nats;  // one unit of S in bits (powers of 2) and in nats (powers of e)

  FALCHION_DEVICE PlainScores(const AttentionArgs& a, const AttentionTile& t)
      : a(a), t(t), unit(a.scale * kLog2e), nats(a.scale) {}

  template <class S, class Coordinates>
  FALCHION_DEVICE void apply(S&, const Coordinates&, int) const {}
  template <class S, class Coordinates>
  FALCHION_DEVICE void keep(S& s, const Coordinates& at, int key0) const {
    keep_band(a, t, s, at, key0);
  }
  template <class Top>
  FALCHION_DEVICE void seen(const Top&) const {}
  template <class S, class Coordinates>
  FALCHION_DEVICE void drop(S&, const Coordinates&, int, int) const {}
  static FALCHION_DEVICE float kept_scale() { return 1; }
  template <class Softmax, class Coordinates>
  FALCHION_DEVICE void store_row_max(const Softmax&, const Coordinates&) const {}
};

/// Tile few is for at most 16 query rows per K/V head (decode, where the heads of a GQA group are rows). A CTA has one
/// warp, and an SM holds as many CTAs as its shared memory allows, so that memory is the only limit.
template <class Element, int kD, VariantTile kTile = VariantTile::usual>
constexpr gpu::AttentionKernel attention_forward_plain() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Kind::plain, kTile>, PlainScores>();
}

}  // namespace falchion::sm80
