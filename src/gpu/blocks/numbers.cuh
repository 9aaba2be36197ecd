// src/gpu/blocks/numbers.cuh: eight numbers of a type that the kernel learns when it runs, in words as in memory, and
// as f32. Held as separate 16-bit numbers they would take a register each.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cstdint>
#include <type_traits>

#include "args/number.hpp"
#include "base/host_device.hpp"

namespace falchion::gpu {

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;
using f32 = float;

inline constexpr int kNumbers = 8;  // 16 bytes in 16 bits

/// Calls f with a number of the given type.
template <class F>
FALCHION_DEVICE void with_type(Number type, F f) {
  switch (type) {
    case Number::f32: return f(float{});
    case Number::f16: return f(f16{});
    case Number::bf16: return f(bf16{});
    case Number::e4m3:
    case Number::i8: return;  // no norm has 8 bits
  }
}

/// The words of a chunk; in 16 bits only the first four count.
struct NumberWords {
  alignas(16) std::uint32_t word[kNumbers];  // 16 bytes at a time are read and written
};

/// wide: numbers of f32.
FALCHION_DEVICE NumberWords load_words(const void* from, bool wide) {
  const auto* at = static_cast<const uint4*>(from);
  NumberWords out;
  *reinterpret_cast<uint4*>(out.word) = at[0];
  *reinterpret_cast<uint4*>(out.word + 4) = wide ? at[1] : uint4{};
  return out;
}
FALCHION_DEVICE void store_words(const NumberWords& x, void* to, bool wide) {
  auto* at = static_cast<uint4*>(to);
  at[0] = *reinterpret_cast<const uint4*>(x.word);
  if (wide) at[1] = *reinterpret_cast<const uint4*>(x.word + 4);
}

/// Number e of a chunk of T.
template <class T>
FALCHION_DEVICE float number(const NumberWords& x, int e) {
  if constexpr (std::is_same_v<T, float>) return __uint_as_float(x.word[e]);
  const std::uint32_t word = x.word[e / 2];
  if constexpr (std::is_same_v<T, bf16>) return __uint_as_float(e % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(e % 2 == 0 ? word & 0xFFFFu : word >> 16)));
}
/// The words of a chunk of T, rounded.
template <class T>
FALCHION_DEVICE NumberWords words_of(const float (&x)[kNumbers]) {
  NumberWords out;
#pragma unroll
  for (int e = 0; e < kNumbers; e += 2) {
    if constexpr (std::is_same_v<T, float>) {
      out.word[e] = __float_as_uint(x[e]);
      out.word[e + 1] = __float_as_uint(x[e + 1]);
    } else if constexpr (std::is_same_v<T, bf16>) {
      const __nv_bfloat162 two = __floats2bfloat162_rn(x[e], x[e + 1]);
      out.word[e / 2] = reinterpret_cast<const std::uint32_t&>(two);
    } else {
      const __half2 two = __floats2half2_rn(x[e], x[e + 1]);
      out.word[e / 2] = reinterpret_cast<const std::uint32_t&>(two);
    }
  }
  return out;
}

}  // namespace falchion::gpu
