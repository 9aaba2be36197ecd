// src/ladder/linear/sizes.hpp: head dims as constants, because loops and registers need them at compile time. The rest
// of a size is filled with zeros, which add nothing to S and nothing to O.
#pragma once

#include <algorithm>
#include <type_traits>

#include "ladder/linear/step.hpp"

namespace falchion::ladder::linear {

/// Calls f(integral_constant<int, D>) with the first of the sizes that is at least d. The sizes are in ascending order.
template <int D, int... larger, class F>
Status with_size(int d, const F& f) {
  if constexpr (sizeof...(larger) > 0)
    if (d > D) return with_size<larger...>(d, f);
  return f(std::integral_constant<int, D>{});
}

}  // namespace falchion::ladder::linear
