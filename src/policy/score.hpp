// src/policy/score.hpp: how a raw dot product becomes a score. apply and grad stand side by side.
#pragma once

#include <cmath>
#include <cstdint>

#include "policy/host_device.hpp"

namespace falchion {

/// s = softcap(scale * dot) - slope * |distance|, where distance = i + shift - j. The bias is added by the caller,
/// the mask comes after: a softcap after it would lift -inf to -softcap.
template <class T>
struct ScoreMod {
  T scale, softcap;  // softcap 0: off
  T slope;           // ALiBi, of this head; 0: off

  FALCHION_HD T apply(T dot, T distance) const {
    T s = scale * dot;
    if (softcap > 0) s = softcap * std::tanh(s / softcap);
    return slope == 0 ? s : s - slope * std::abs(distance);
  }
  /// d apply / d dot.
  FALCHION_HD T grad(T dot) const {
    if (!(softcap > 0)) return scale;
    const T t = std::tanh(scale * dot / softcap);
    return scale * (1 - t * t);
  }
};

}  // namespace falchion
