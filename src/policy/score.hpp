// src/policy/score.hpp: how a raw dot product becomes a score (apply), and the gradient of that (grad).
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.hpp"

namespace falchion {

/// s = softcap(scale * dot) - slope * |distance|, where distance = i + shift - j. The caller adds the bias. The mask
/// comes after this, because softcap would turn -inf into -softcap.
template <class T>
struct ScoreMod {
  T scale, softcap;  // a softcap of 0 is off
  T slope;           // the ALiBi slope of this head; 0 is off

  FALCHION_HD bool only_scales() const { return softcap == 0 && slope == 0; }
  FALCHION_HD T apply(T dot, T distance) const {
    T s = scale * dot;
    if (softcap > 0) s = softcap * std::tanh(s / softcap);
    return slope == 0 ? s : s - slope * std::abs(distance);
  }
  /// The derivative of apply with respect to dot.
  FALCHION_HD T grad(T dot) const {
    if (!(softcap > 0)) return scale;
    const T t = std::tanh(scale * dot / softcap);
    return scale * (1 - t * t);
  }
};

}  // namespace falchion
