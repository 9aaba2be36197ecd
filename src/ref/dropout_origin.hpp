// src/ref/dropout_origin.hpp: Rng::origin in the units of Philox's counter.
#pragma once

#include <cstdint>

#include "falchion/attention.hpp"
#include "policy/dropout.hpp"

namespace falchion {

inline DropoutOrigin origin_of(const Attention& a, const Rng& rng) {
  const Rng::Origin& at = rng.origin;
  const auto heads = static_cast<std::uint32_t>(at.h_q == 0 ? a.h_q : at.h_q);
  return {heads, static_cast<std::uint32_t>(at.b) * heads + static_cast<std::uint32_t>(at.h),
          static_cast<std::uint32_t>(at.i), static_cast<std::uint32_t>(at.j / 4)};
}

}  // namespace falchion
