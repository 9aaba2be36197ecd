// src/ladder/linear/sizes.hpp: head dims as constants. Loops and registers need them at compile time; what is left over
// is filled with zeros, which add nothing to S and nothing to O.
#pragma once

#include <algorithm>
#include <type_traits>

#include "ladder/linear/step.hpp"

namespace falchion::ladder::linear {

/// Calls f(integral_constant<int, D>) with the first of the sizes, which ascend, that is at least d.
template <int D, int... larger, class F>
Status with_size(int d, const F& f) {
  if constexpr (sizeof...(larger) > 0)
    if (d > D) return with_size<larger...>(d, f);
  return f(std::integral_constant<int, D>{});
}

}  // namespace falchion::ladder::linear
