// src/cpu/blocks/elements.hpp: converts rows of elements of any type to f32 and back.
#pragma once

#include <type_traits>

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Converts n elements to f32. For each one it adds to a lane of *spoiled: NaN if it is NaN or infinite, 0 otherwise.
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
/// The same for one row alone. Returns 0, or NaN if an element is NaN or infinite.
template <class T>
FALCHION_INLINE float convert(const typename T::Bits* in, std::int64_t n, float* out) {
  Floats spoiled = splat(0.f);
  convert<T>(in, n, out, &spoiled);
  return sum_of_lanes(spoiled);
}
/// The same for elements that lie `stride` apart.
template <class T>
FALCHION_INLINE float convert_row(const typename T::Bits* in, std::int64_t stride, std::int64_t n, float* out) {
  if (stride == 1) return convert<T>(in, n, out);
  float spoiled = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = T::to_float(in[i * stride]);
    spoiled += out[i] - out[i];
  }
  return spoiled;
}

/// Multiplies n numbers by their scale. Returns 0, or NaN if one of them is then NaN or infinite.
FALCHION_INLINE float scale_row(float* row, std::int64_t n, float scale) {
  Floats spoiled = splat(0.f);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats x = hn::Mul(load(row + i), splat(scale));
    spoiled = hn::Add(spoiled, hn::Sub(x, x));
    store(x, row + i);
  }
  for (; i < n; ++i) {
    row[i] *= scale;
    spoiled = hn::Add(spoiled, splat(row[i] - row[i]));
  }
  return sum_of_lanes(spoiled);
}

/// Stores n numbers times factor, rounded to T.
template <class T>
FALCHION_INLINE void store_row(typename T::Bits* out, const float* in, float factor, std::int64_t n) {
  std::int64_t c = 0;
#if FALCHION_TILES
  if constexpr (std::is_same_v<T, bf16>) {
    for (; c + 2 * kLanes <= n; c += 2 * kLanes)
      T::store(hn::Mul(load(in + c), splat(factor)), hn::Mul(load(in + c + kLanes), splat(factor)), out + c);
  }
#endif
  for (; c + kLanes <= n; c += kLanes) T::store(hn::Mul(load(in + c), splat(factor)), out + c);
  for (; c < n; ++c) out[c] = T::from_float(in[c] * factor);
}

/// Stores n zeros.
template <class T>
FALCHION_INLINE void clear_row(typename T::Bits* out, std::int64_t n) {
  for (std::int64_t c = 0; c < n; ++c) out[c] = T::from_float(0);
}

/// Whether kernels store rows of T past the caches.
template <class T>
inline constexpr bool kStreams = FALCHION_TILES != 0 && std::is_same_v<T, bf16>;

/// store_row() past the caches, so that no line is read before it is written. Only whole lines are written: `out` is
/// aligned to 64 bytes and n is a multiple of 32. Other threads see the lines after streams_end().
template <class T>
FALCHION_INLINE void stream_row(typename T::Bits* out, const float* in, float factor, std::int64_t n) {
#if FALCHION_TILES
  if constexpr (kStreams<T>) {
    for (std::int64_t c = 0; c < n; c += 2 * kLanes) {
      const Floats x0 = hn::Mul(load(in + c), splat(factor)), x1 = hn::Mul(load(in + c + kLanes), splat(factor));
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out + c), (__m512i)_mm512_cvtne2ps_pbh(x1.raw, x0.raw));
    }
    return;
  }
#endif
  store_row<T>(out, in, factor, n);
}
FALCHION_INLINE void streams_end() {
#if FALCHION_TILES
  _mm_sfence();
#endif
}

}  // namespace falchion::cpu::FALCHION_LEVEL
