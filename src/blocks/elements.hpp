// src/blocks/elements.hpp: rows of elements of any type to f32 and back.
#pragma once

#include "blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// n elements as f32. Adds NaN to a lane of *spoiled for each that is NaN or infinite, 0 for the others.
template <class T>
FALCHION_INLINE void convert(const typename T::Bits* in, std::int64_t n, float* out, Floats* spoiled) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats x = T::load(in + i);
    *spoiled = hn::Add(*spoiled, hn::Sub(x, x));
    store(x, out + i);
  }
  for (; i < n; ++i) {
    out[i] = T::to_float(in[i]);
    *spoiled = hn::Add(*spoiled, splat(out[i] - out[i]));
  }
}
/// The same for one row. Returns 0, or NaN when an element is NaN or infinite.
template <class T>
FALCHION_INLINE float convert(const typename T::Bits* in, std::int64_t n, float* out) {
  Floats spoiled = splat(0.f);
  convert<T>(in, n, out, &spoiled);
  return sum_of_lanes(spoiled);
}

/// n numbers times factor, rounded to T.
template <class T>
FALCHION_INLINE void store_row(typename T::Bits* out, const float* in, float factor, std::int64_t n) {
  std::int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) T::store(hn::Mul(load(in + c), splat(factor)), out + c);
  for (; c < n; ++c) out[c] = T::from_float(in[c] * factor);
}

}  // namespace falchion::cpu::FALCHION_LEVEL
