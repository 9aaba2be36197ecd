// src/policy/dtype.hpp: converts f16 and bf16 to f32 and back, one number at a time. Numbers are rounded to nearest
// even, and a NaN stays a quiet NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "policy/host_device.hpp"

namespace falchion {

FALCHION_HD float f32_from_bf16(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

FALCHION_HD std::uint16_t bf16_from_f32(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return static_cast<std::uint16_t>(bits >> 16 | 0x40u);  // a NaN gets the quiet bit
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

FALCHION_HD float f32_from_f16(std::uint16_t x) {
  const std::uint32_t sign = std::uint32_t{x & 0x8000u} << 16;
  const std::uint32_t exponent = x >> 10 & 0x1Fu, mantissa = x & 0x3FFu;
  if (exponent == 0x1F) {  // Inf, NaN
    const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13 | quiet);
  }
  if (exponent == 0) {  // zero or subnormal: the value is mantissa * 2^-24, which is exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

FALCHION_HD std::uint16_t f16_from_f32(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65520 and up round to Inf
  if (magnitude <
      0x38800000u) {  // below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24 in the low mantissa bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

}  // namespace falchion
