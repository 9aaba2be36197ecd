// src/sm90/attention_forward_plain.cuh: the row for what needs nothing between the two products but the band: the scale
// is folded into the exponent. Full, causal, window, GQA, lengths, splits, LSE.
#pragma once

#include "gpu/attention_band.cuh"
#include "sm90/attention_launch.cuh"

namespace falchion::sm90 {

using namespace gpu;

struct PlainScores {
  const AttentionArgs& a;
  const float unit;  // one unit of S in bits

  template <class Coordinates>
  __device__ __forceinline__ PlainScores(const AttentionArgs& a, const TileRecord&, const Divisors&, const Coordinates&)
      : a(a), unit(a.scale * kLog2e) {}
  static __device__ __forceinline__ float nats(const AttentionArgs& a) { return a.scale; }  // a unit in natural ones

  template <class S, class Coordinates>
  __device__ __forceinline__ void apply(S&, const Coordinates&, int) const {}
  template <class S, class Coordinates>
  __device__ __forceinline__ void keep(const AttentionTile& t, S& s, const Coordinates& at, int key0) const {
    keep_band(a, t, s, at, key0);
  }
};

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_plain() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Level::plain>, PlainScores>();
}

}  // namespace falchion::sm90
