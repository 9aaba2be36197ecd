// src/policy/dtype.hpp: converts f16, bf16 and e4m3 to f32 and back, one number at a time. Numbers are rounded to
// nearest even, and a NaN stays a quiet NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.hpp"

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

/// e4m3 has 4 bits of exponent with a bias of 7, and 3 bits of mantissa. The codes 0x7F and 0xFF are NaN, all others
/// are finite. The largest number is 448, the smallest above 0 is 2^-9.
FALCHION_HD float f32_from_e4m3(std::uint8_t x) {
  const std::uint32_t sign = std::uint32_t{x & 0x80u} << 24, magnitude = x & 0x7Fu;
  if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (magnitude < 8)
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  return std::bit_cast<float>(sign | (magnitude + (120u << 3)) << 20);
}

/// Numbers over 448 become 448, but Inf becomes NaN.
FALCHION_HD std::uint8_t e4m3_from_f32(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu, sign = bits >> 24 & 0x80u;
  if (magnitude >= 0x7F800000u) return static_cast<std::uint8_t>(sign | 0x7Fu);
  if (magnitude > 0x43E00000u) return static_cast<std::uint8_t>(sign | 0x7Eu);  // 448
  if (magnitude < 0x3C800000u) {  // below 2^-6: with 2^14 added, the low bits count 2^-9, rounded
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x46800000u));
  }
  const std::uint32_t rounded = magnitude - (120u << 23) + 0x7FFFFu + (magnitude >> 20 & 1);
  return static_cast<std::uint8_t>(sign | rounded >> 20);
}

/// Rounds to nearest even, clamped to -128 and 127; NaN becomes 0.
FALCHION_HD std::int8_t i8_from_f32(float x) {
  if (!(x >= -128.f)) return x < -128.f ? -128 : 0;
  if (x >= 127.f) return 127;
  const float shifted = x + 0x1.8p23f;  // the integer is in the low mantissa bits
  return static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(shifted) & 0xFFu);
}

}  // namespace falchion
