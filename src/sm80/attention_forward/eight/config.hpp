// src/sm80/attention_forward/eight/config.hpp: tiles, layouts and shared memory of kind eight, whose q and k have 8
// bits. It compiles without nvcc, as ../config.hpp does.
#pragma once

#include <cute/tensor.hpp>  // CuTe's headers need this one first.

#include <cutlass/float8.h>

#include <cstdint>
#include <type_traits>

#include "sm80/attention_forward/config.hpp"

namespace falchion::sm80 {

using e4m3 = cutlass::float_e4m3_t;
using i8 = std::int8_t;

/// The config of one variant. Type: bf16 or f16 of V beside q and k of i8; or e4m3 or i8 of q and k beside V of e4m3.
/// Q and K of i8 stay bytes, and their product is one of integers. Numbers of e4m3 become f16, which holds each of
/// them.
template <class Type, int kD>
struct EightConfig : AttentionForwardConfig<std::conditional_t<sizeof(Type) == 2, Type, f16>, kD, Kind::eight> {
  using Base = AttentionForwardConfig<std::conditional_t<sizeof(Type) == 2, Type, f16>, kD, Kind::eight>;
  using Base::kRows, Base::kKeys, Base::kWarps;
  static constexpr bool kIntegers = !std::is_same_v<Type, e4m3>;
  static constexpr bool kBytesOfV = sizeof(Type) == 1;

  // A box of bytes has 8 rows of 128, or of 64 where D is no multiple of 128. The swizzles are those of 16 bits.
  static constexpr int kByteBox = kD % 128 == 0 ? 128 : 64;
  using ByteBox = decltype(cute::composition(
      cute::Swizzle<(kByteBox == 128 ? 3 : 2), 4, 3>{},
      cute::Layout<cute::Shape<cute::_8, cute::Int<kByteBox>>, cute::Stride<cute::Int<kByteBox>, cute::_1>>{}));
  using ByteLayoutQ = decltype(cute::tile_to_shape(ByteBox{}, cute::Shape<cute::Int<kRows>, cute::Int<kD>>{}));
  using ByteLayoutK = decltype(cute::tile_to_shape(ByteBox{}, cute::Shape<cute::Int<kKeys>, cute::Int<kD>>{}));

  // In bytes: Q, K, V and the bytes of the next K and V that are still to be widened. Bytes of K and 16-bit V need not
  // be: they have two stages instead.
  static constexpr int kSizeOfQ = kRows * kD * (kIntegers ? 1 : 2), kSizeOfK = 2 * kKeys * kD,
                       kSizeOfV = (kBytesOfV ? 1 : 2) * 2 * kKeys * kD, kSizeOfRaw = kKeys * kD;
  static constexpr int kSharedBytes =
      kSizeOfQ + kSizeOfK + kSizeOfV + ((kIntegers ? 0 : 1) + (kBytesOfV ? 1 : 0)) * kSizeOfRaw;
  static_assert(kSharedBytes >= 2 * kRows * kD, "O lies in the place of Q, K and V");

  using IntegerMma = cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x32_S32S8S8S32_TN>,
                                    cute::Layout<cute::Shape<cute::Int<kWarps>, cute::_1, cute::_1>>,
                                    cute::Tile<cute::Int<16 * kWarps>, cute::_16, cute::_32>>;
  using CopyAtomOfBytes = cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, i8>;

  // Threads that load a row of a box, 16 bytes each. A chunk to be widened becomes two of a row of 128 bytes.
  static constexpr int kLanesOfBytes = kByteBox / 16, kLanesOfRaw = 4, kLanesOfV = 8;
};

}  // namespace falchion::sm80
