// src/sm90/attention_forward/plain.cuh: the forward variants of kind plain on Hopper. Between the two products they
// apply only the band, and the scale is folded into the exponent. They accept full and causal masks, windows, GQA,
// lengths, splits and LSE. docs/design/sm90_forward.md describes the kernel.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/band.cuh"
#include "sm90/attention_forward/launch.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// The kernel's interface to scores, for scores that are S times a scale: S stays as it is.
struct PlainScores {
  using Softmax = sm90::Softmax;
  static constexpr bool kLate = false;
  const AttentionArgs& a;
  const float unit;  // one unit of S in the exponent of 2: scale * log2(e)

  template <class Coordinates>
  FALCHION_DEVICE PlainScores(const AttentionArgs& a, const TileRecord&, const Divisors&, const Coordinates&)
      : a(a), unit(a.scale * kLog2e) {}
  FALCHION_DEVICE float unit_of(int) const { return unit; }
  /// One unit of S in the exponent of e.
  static FALCHION_DEVICE float nats(const AttentionArgs& a) { return a.scale; }

  template <class S, class Coordinates>
  FALCHION_DEVICE void apply(S&, const Coordinates&, int) const {}
  template <class S, class Coordinates>
  FALCHION_DEVICE void keep(const AttentionTile& t, S& s, const Coordinates& at, int key0) const {
    keep_band(a, t, s, at, key0);
  }
};

/// Tile brief is shorter, two CTAs on an SM, for grids whose long tiles would leave SMs idle. Tile mla is for d_qk up
/// to 192 with d_v up to 128, the shape of prefill in multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).
template <class Element, int kD, VariantTile kTile = VariantTile::usual>
constexpr gpu::AttentionKernel attention_forward_plain() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Kind::plain, kTile>, PlainScores>();
}

}  // namespace falchion::sm90
