// src/cpu/blocks/sum_lanes.hpp: sums across the lanes of four vectors at once.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

#if HWY_TARGET != HWY_SCALAR
/// Adds up the blocks of 4 lanes of x and writes the sum to out[0..3].
template <class D>
FALCHION_INLINE void sum_blocks(D d, hn::Vec<D> x, float* out) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    sum_blocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)), out);
  } else {
    hn::StoreU(x, d, out);
  }
}
#endif

/// out[r] is the sum of the lanes of x[r].
FALCHION_INLINE void sum_lanes_of_4(const Floats (&x)[4], float* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int r = 0; r < 4; ++r) out[r] = hn::GetLane(x[r]);
#else
  const hn::Repartition<double, FloatTag> pairs;
  const Floats ab = hn::Add(hn::InterleaveLower(kFloats, x[0], x[1]), hn::InterleaveUpper(kFloats, x[0], x[1]));
  const Floats cd = hn::Add(hn::InterleaveLower(kFloats, x[2], x[3]), hn::InterleaveUpper(kFloats, x[2], x[3]));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  sum_blocks(kFloats, hn::Add(hn::BitCast(kFloats, low), hn::BitCast(kFloats, high)), out);
#endif
}

}  // namespace falchion::cpu::FALCHION_LEVEL
