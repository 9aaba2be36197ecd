// src/policy/quantise.hpp: the arithmetic of Quantise for single numbers. Each step is one operation of f32 whose
// rounding IEEE 754 fixes, so every back end writes the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.hpp"
#include "policy/dtype.hpp"

namespace falchion {

FALCHION_HD constexpr float quantise_bound(bool e4m3) { return e4m3 ? 448.f : 127.f; }

/// The scale of a block from its largest magnitude, NaN if that is NaN. It is at least the smallest normal number, so
/// that its inverse is finite.
FALCHION_HD float quantise_scale(float most, float bound, bool powers_of_two) {
  if (most == 0) return 1;
  float scale = most / bound;
  if (scale < 0x1p-126f) scale = 0x1p-126f;
  if (!powers_of_two || !(scale < 0x1p127f)) return scale;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(scale) + 0x7FFFFFu) & 0xFF800000u);
}

/// A code from a number that has been multiplied by the inverse of the scale.
FALCHION_HD std::uint8_t quantised_e4m3(float x) { return x - x == 0 ? e4m3_from_f32(x) : std::uint8_t{0x7F}; }
FALCHION_HD std::int8_t quantised_i8(float x) { return i8_from_f32(x < -127.f ? -127.f : x); }

/// The side of a block of the rotation: the largest power of two that divides d.
FALCHION_HD constexpr int rotation_size(std::int64_t d) { return static_cast<int>(d & -d); }
/// 1 / sqrt(size), for a size from 1 to 256.
FALCHION_HD constexpr float rotation_factor(int size) {
  float factor = 1;
  for (; size >= 4; size /= 4) factor *= 0.5f;
  return size == 2 ? factor * 0x1.6A09E6p-1f : factor;
}

}  // namespace falchion
