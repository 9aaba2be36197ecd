// src/gpu/blocks/widen.cuh: the four 8-bit numbers of a word as f16, which holds every e4m3 and i8 number.
#pragma once

#include <cutlass/float8.h>

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"

namespace falchion::gpu {

/// e4m3 on GPUs without an instruction for it, of which byte 1 and byte 3 of a word count. Its exponent in the place of
/// f16's means 2^-8 of the number. A NaN's code would be a number there, so it gets all bits of f16's exponent.
FALCHION_DEVICE std::uint32_t f16_of_e4m3_by_bits(std::uint32_t x) {
  const std::uint32_t magnitude = x & 0x7F007F00U, nan = __vcmpeq2(magnitude, 0x7F007F00U) & 0x7C007C00U;
  std::uint32_t number;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(number) : "r"(magnitude >> 1 | nan), "r"(0x5C005C00U));
  return number | (x & 0x80008000U);
}

/// e4m3: bytes 0 and 1 of a word, and bytes 2 and 3. A NaN stays one.
FALCHION_DEVICE void f16_of_e4m3(std::uint32_t x, std::uint32_t& low, std::uint32_t& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  low = f16_of_e4m3_by_bits(__byte_perm(x, 0, 0x1404));
  high = f16_of_e4m3_by_bits(__byte_perm(x, 0, 0x3424));
#else
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n"
      "}\n"
      : "=r"(low), "=r"(high)
      : "r"(x));
#endif
}
/// i8: two numbers x as 1024 + 128 + x in f16, less 1152. x ^ 128 is 128 + x, and the bits 0x6400 before a byte add
/// 1024 to it.
FALCHION_DEVICE std::uint32_t f16_of_i8(std::uint32_t more) {
  std::uint32_t x;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(x) : "r"(more), "r"(0x64806480U));
  return x;
}

/// Bytes 0 and 1 of a word, and bytes 2 and 3.
template <class Byte>
FALCHION_DEVICE void widen_neighbours(std::uint32_t x, std::uint32_t& low, std::uint32_t& high) {
  if constexpr (std::is_same_v<Byte, std::int8_t>) {
    x ^= 0x80808080U;
    low = f16_of_i8(__byte_perm(x, 0x64646464U, 0x4140));
    high = f16_of_i8(__byte_perm(x, 0x64646464U, 0x4342));
  } else {
    f16_of_e4m3(x, low, high);
  }
}
/// Bytes 0 and 2 of a word, and bytes 1 and 3.
template <class Byte>
FALCHION_DEVICE void widen_alternating(std::uint32_t x, std::uint32_t& even, std::uint32_t& odd) {
  if constexpr (std::is_same_v<Byte, std::int8_t>) {
    x ^= 0x80808080U;
    even = f16_of_i8(__byte_perm(x, 0x64646464U, 0x4240));
    odd = f16_of_i8(__byte_perm(x, 0x64646464U, 0x4341));
  } else {
    f16_of_e4m3(__byte_perm(x, 0, 0x3120), even, odd);
  }
}

}  // namespace falchion::gpu
