// src/sm90/attention_forward/decode/scales.cuh: the scales of 8-bit caches. K's multiplies the score, V's multiplies P.
// One scale for all keys of a head is read once for each segment, and V's multiplies O at the end. Scales of single
// keys come into the stage with the keys.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"
#include "gpu/blocks/softmax.cuh"
#include "sm90/attention_forward/decode/walk.cuh"

namespace falchion::sm90 {

/// Does a key of k or v have a scale of its own? A page may have one, too.
template <class Config>
FALCHION_DEVICE bool has_scale_of_key(const View& x) {
  return x.data != nullptr && (x.stride[1] != 0 || (Config::kPages && x.stride[0] != 0));
}
/// The scale of a place of k or v.
FALCHION_DEVICE const float* scale_at(const View& x, const KeyPlace& place, int head) {
  return static_cast<const float*>(x.data) + place.batch * x.stride[0] + place.row * x.stride[1] + head * x.stride[2];
}
/// The scale that all keys of a segment have.
template <class Config>
FALCHION_DEVICE float scale_of_segment(const AttentionArgs& a, const View& x, const DecodeWalk<Config>& walk) {
  return x.data == nullptr ? 1.f : *scale_at(x, {Config::kPages || has_packed_keys(a) ? 0 : walk.b, 0}, walk.head_k);
}

/// What a lane's two keys of a tile are multiplied by.
struct DecodeKeyScales {
  float k[2], v[2];
  float lift[2];  // log2 |v|, in units of S
};

/// The scales of a segment's keys, in a consumer.
template <class Config>
class DecodeScales {
 public:
  FALCHION_DEVICE DecodeScales(const AttentionArgs& a, const DecodeWalk<Config>& walk, float c)
      : k_has_keys(has_scale_of_key<Config>(a.k_scale)),
        v_has_keys(has_scale_of_key<Config>(a.v_scale)),
        unit(1 / c),
        of_k(k_has_keys ? 1.f : scale_of_segment(a, a.k_scale, walk)) {}

  /// Those of keys `line` and line + 8 of a stage.
  FALCHION_DEVICE DecodeKeyScales of(const typename Config::Shared& shared, int stage, int line) const {
    DecodeKeyScales x{{of_k, of_k}, {1, 1}, {0, 0}};
    if (k_has_keys) {
      CUTE_UNROLL
      for (int i = 0; i < 2; ++i) x.k[i] = shared.scales.of[stage][0][line + 8 * i];
    }
    if (v_has_keys) {
      CUTE_UNROLL
      for (int i = 0; i < 2; ++i) {
        x.v[i] = shared.scales.of[stage][1][line + 8 * i];
        x.lift[i] = log2(fminf(fmaxf(fabsf(x.v[i]), kLeast), kMost)) * unit;
      }
    }
    return x;
  }

 private:
  // P v is rounded to f16, so m is the largest score + lift: then P v is at most 1 whatever the scales are, and P
  // itself may be as large as 1 / v. These bounds keep its sum finite.
  static constexpr float kLeast = 0x1p-100f, kMost = 0x1p100f;
  bool k_has_keys, v_has_keys;
  float unit;  // of S, for one in the exponent of 2
  float of_k;
};

/// Without scales.
struct NoDecodeScales {
  template <class... Any>
  explicit FALCHION_DEVICE NoDecodeScales(const Any&...) {}
};

}  // namespace falchion::sm90
