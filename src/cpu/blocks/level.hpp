// src/cpu/blocks/level.hpp: what defines one CPU level: its namespace, its vectors and its element types. Each
// translation unit is compiled for one level (variant.in sets FALCHION_LEVEL and the compiler flags). So everything
// here lives in falchion::cpu::<level>, and nothing is shared between levels.
#pragma once

#if defined(FALCHION_LEVEL_GENERIC)
  #define HWY_COMPILE_ONLY_SCALAR  // one lane in plain C++: any machine (Highway's four-lane emulation needs GCC 12.3)
#else
  #define HWY_COMPILE_ONLY_STATIC
#endif
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "policy/dtype.hpp"

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  #define FALCHION_AVX512 1
  #include <immintrin.h>
#else
  #define FALCHION_AVX512 0
#endif

// Products of bf16 in packed tiles: AMX's, or vdpbf16ps (tile_block.hpp).
#if defined(FALCHION_LEVEL_AMX) || defined(FALCHION_LEVEL_AMX_EMULATED) || defined(FALCHION_LEVEL_AVX512_BF16)
  #define FALCHION_TILES 1
#else
  #define FALCHION_TILES 0
#endif

// vpdpbusd: products of bytes.
#if defined(FALCHION_LEVEL_VNNI) || FALCHION_TILES
  #define FALCHION_VNNI 1
#else
  #define FALCHION_VNNI 0
#endif

#define FALCHION_INLINE inline __attribute__((always_inline))

namespace falchion::cpu::FALCHION_LEVEL {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag =
    hn::CappedTag<float, 16>;  // vectors of f32; at most 16 lanes, so that a tile of kM rows is whole vectors
using Floats = hn::Vec<FloatTag>;
using Int32Tag = hn::Rebind<std::int32_t, FloatTag>;
using Int32s = hn::Vec<Int32Tag>;
inline constexpr FloatTag kFloats{};
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(kFloats));
inline constexpr int kM = 32;              // query rows of a tile: the lanes of its vectors
inline constexpr int kVecs = kM / kLanes;  // vectors of one key's scores
inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

FALCHION_INLINE std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
FALCHION_INLINE std::int64_t max(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
FALCHION_INLINE std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
FALCHION_INLINE std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

FALCHION_INLINE Floats load(const float* p) { return hn::LoadU(kFloats, p); }
FALCHION_INLINE void store(Floats x, float* p) { hn::StoreU(x, kFloats, p); }
FALCHION_INLINE Floats splat(float x) { return hn::Set(kFloats, x); }
FALCHION_INLINE float sum_of_lanes(Floats x) { return hn::GetLane(hn::SumOfLanes(kFloats, x)); }

// Element types. load() loads kLanes elements as f32, and to_float() converts
// one. cpu/blocks/exp2.hpp explains kExp2Degree.
struct f32 {
  using Bits = float;
  static constexpr int kExp2Degree = 6;
  static FALCHION_INLINE Floats load(const Bits* p) { return hn::LoadU(kFloats, p); }
  static FALCHION_INLINE void store(Floats x, Bits* p) { hn::StoreU(x, kFloats, p); }
  static FALCHION_INLINE float to_float(Bits x) { return x; }
  static FALCHION_INLINE Bits from_float(float x) { return x; }
};

struct bf16 {
  using Bits = std::uint16_t;
  static constexpr int kExp2Degree = 3;
  static FALCHION_INLINE Floats load(const Bits* p) {
    const hn::Rebind<std::uint16_t, FloatTag> half;
    const hn::Rebind<std::uint32_t, FloatTag> word;
    return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(word, hn::LoadU(half, p))));
  }
#if FALCHION_TILES  // one instruction instead of ten; like the tile products it flushes denormals
  static FALCHION_INLINE void store(Floats x, Bits* p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x.raw));
  }
  static FALCHION_INLINE void store(Floats x0, Floats x1, Bits* p) {
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(x1.raw, x0.raw));
  }
#else
  static FALCHION_INLINE void store(Floats x, Bits* p) {
    const hn::Rebind<std::uint16_t, FloatTag> half;
    const hn::Rebind<std::uint32_t, FloatTag> word;
    const auto bits = hn::BitCast(word, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(word, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(word, 0x7FFF)), odd),
               quiet = hn::Or(bits, hn::Set(word, 0x400000));
    const auto chosen = hn::IfThenElse(hn::RebindMask(word, hn::Eq(x, x)), rounded, quiet);
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(Int32Tag(), hn::ShiftRight<16>(chosen))), half, p);
  }
#endif
  static FALCHION_INLINE float to_float(Bits x) { return f32_from_bf16(x); }
  static FALCHION_INLINE Bits from_float(float x) { return bf16_from_f32(x); }
};

struct f16 {
  using Bits = std::uint16_t;
  static constexpr int kExp2Degree = 4;
#if HWY_TARGET == HWY_SCALAR  // Highway's own conversion handles neither NaN nor infinities there
  static FALCHION_INLINE Floats load(const Bits* p) { return splat(f32_from_f16(*p)); }
  static FALCHION_INLINE void store(Floats x, Bits* p) { *p = f16_from_f32(hn::GetLane(x)); }
#else
  static FALCHION_INLINE Floats load(const Bits* p) {
    const hn::Rebind<hwy::float16_t, FloatTag> half;
    return hn::PromoteTo(kFloats, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static FALCHION_INLINE void store(Floats x, Bits* p) {
    const hn::Rebind<hwy::float16_t, FloatTag> half;
    hn::StoreU(hn::DemoteTo(half, x), half, reinterpret_cast<hwy::float16_t*>(p));
  }
#endif
  static FALCHION_INLINE float to_float(Bits x) { return f32_from_f16(x); }
  static FALCHION_INLINE Bits from_float(float x) { return f16_from_f32(x); }
};

// The two 8-bit types are input types only.
struct e4m3 {
  using Bits = std::uint8_t;
  static FALCHION_INLINE Floats load(const Bits* p) {
    const hn::Rebind<std::uint8_t, FloatTag> byte;
    const hn::Rebind<std::uint32_t, FloatTag> word;
    const auto code = hn::PromoteTo(word, hn::LoadU(byte, p));
    const auto magnitude = hn::And(code, hn::Set(word, 0x7F));
    const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(word, 0x80)));
    // The exponent moves to its place in f32; magnitudes below 8 have none, and the mantissa counts 2^-9.
    const auto normal = hn::ShiftLeft<20>(hn::Add(magnitude, hn::Set(word, 120 << 3)));
    const auto small = hn::Mul(hn::ConvertTo(kFloats, hn::BitCast(Int32Tag(), magnitude)), splat(0x1p-9f));
    const auto is_small = hn::Lt(hn::BitCast(Int32Tag(), magnitude), hn::Set(Int32Tag(), 8));
    const auto number = hn::IfThenElse(hn::RebindMask(word, is_small), hn::BitCast(word, small), normal);
    const auto bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(word, 0x7F)), hn::Set(word, 0x7FC00000), number);
    return hn::BitCast(kFloats, hn::Or(bits, sign));
  }
  static FALCHION_INLINE float to_float(Bits x) { return f32_from_e4m3(x); }
};

struct i8 {
  using Bits = std::int8_t;
  static FALCHION_INLINE Floats load(const Bits* p) {
    const hn::Rebind<std::int8_t, FloatTag> byte;
    return hn::ConvertTo(kFloats, hn::PromoteTo(Int32Tag(), hn::LoadU(byte, p)));
  }
  static FALCHION_INLINE float to_float(Bits x) { return x; }
};

}  // namespace falchion::cpu::FALCHION_LEVEL
