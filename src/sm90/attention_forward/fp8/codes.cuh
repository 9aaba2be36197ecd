// src/sm90/attention_forward/fp8/codes.cuh: the softmax of kind fp8, which makes e4m3 numbers P without an exponential:
// one FFMA turns an element of S into the number of its code. docs/design/sm90_fp8.md has the error of that.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_softmax.cuh"

namespace falchion::sm90 {

/// An e4m3 number 2^(i + f) has the code 8 (i + 7 + f), but that its mantissa is linear: the code stands for
/// (1 + f) 2^i. So the code of P is a score in eighths of a bit, rounded to a whole number, and P is too large by
/// (1 + f) / 2^f, by 0 to 6 %. Its mean cancels, since O is divided by the sum of the same P.
///
/// The FFMA that scales S adds 1.5 * 2^23. So its result t is rounded to whole numbers, and the bits of t are kZero
/// plus the number, while that lies within +-2^22.
struct Codes {
  static constexpr float kMagic = 12582912.f;      // 1.5 * 2^23
  static constexpr unsigned kZero = 0x4B400000u;   // its bits
  static constexpr unsigned kLimit = 0x4B800000u;  // bits from here on are no codes: too large, NaN or negative
  static constexpr unsigned kLeast = 0x4B000000u;  // those of the least code
  static constexpr float kMasked = 4194304.f;      // below each code
  static constexpr int kTop = 120;                 // e4m3's code of 256, the largest P of a tile
  static constexpr float kMeanBits = 0.0575f;      // log2 of the mean of (1 + f) / 2^f
  static constexpr float kNothing = -1e30f;        // the reference of a row that has seen no key
};

/// Two numbers as bytes, saturated to 0 to 255, below the lower half of `upper`.
FALCHION_DEVICE std::uint32_t pack_bytes(int first, int second, std::uint32_t upper) {
  std::uint32_t x;
  asm volatile("cvt.pack.sat.u8.s32.b32 %0, %2, %1, %3;" : "=r"(x) : "r"(first), "r"(second), "r"(upper));
  return x;
}
/// 2^x of a whole number; 0 below 2^-126. x is at most 127.
FALCHION_DEVICE float power_of_whole(float x) {
  return __uint_as_float(__float_as_uint(fmaxf(x, -127.f) + (Codes::kMagic + 127.f)) << 23);
}

/// The state of a thread's two rows. O and l are relative to 2^(reference - 8). The reference of a row is that of its
/// first tile. It moves only if a later tile is above it by more than kSlack bits.
struct CodesSoftmax {
  static constexpr int kSize = 2;
  static constexpr float kSlack = 60;
  float l[2], m[2];  // m: the reference, whole bits

  FALCHION_DEVICE void reset() {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      l[r] = 0;
      m[r] = Codes::kNothing;
    }
  }
  FALCHION_DEVICE float reference(int r, float) const {
    return l[r] == 0 ? -FALCHION_INF : m[r] - 8 - Codes::kMeanBits;
  }
  FALCHION_DEVICE float lse(int r, float) const {
    return l[r] == 0 ? -FALCHION_INF : (reference(r, 1) + log2(l[r])) * kLn2;
  }
  /// The factors by which a product is added to O, whose P are relative to 2^(top - 8). O must be multiplied by shrink
  /// before, where the result is true.
  FALCHION_DEVICE bool weigh(const float (&top)[2], float (&factor)[2], float (&shrink)[2]) {
    float up[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) up[r] = top[r] - m[r];
    const bool moves = __any_sync(~0u, up[0] > kSlack || up[1] > kSlack);
    if (moves) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const bool move = up[r] > kSlack;
        shrink[r] = move ? power_of_whole(-up[r]) : 1.f;
        m[r] = move ? top[r] : m[r];
        l[r] *= shrink[r];
        up[r] = move ? 0 : up[r];
      }
    }
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) factor[r] = power_of_whole(up[r]);
    return moves;
  }
};

/// The codes of one tile of keys, which take the place of S.
struct TileOfCodes {
  float top[2];  // of each row the whole bits at or above its largest score
  int base[2];   // what is subtracted from the bits of its t

  /// Takes t of all elements (rows, columns).
  template <class Scores>
  FALCHION_DEVICE void find_tops(Scores&& t) {
    constexpr int kChains = 4, kColumns = decltype(size<1>(t))::value;
    unsigned most[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      unsigned chain[kChains];  // of bits, because a maximum of integers takes half the time of one of floats
      CUTE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const unsigned x = __float_as_uint(t(r, c));
        chain[c % kChains] = c < kChains ? x : max(chain[c % kChains], x);
      }
      most[r] = over_quad_max(max(max(chain[0], chain[1]), max(chain[2], chain[3])));
    }
    const auto is_code = [](unsigned x) { return x - Codes::kLeast < Codes::kLimit - Codes::kLeast; };
    if (__any_sync(~0u, !is_code(most[0]) || !is_code(most[1]))) {
      find_far_tops(t);
      return;
    }
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      most[r] = (most[r] + 7) & ~7u;
      base[r] = static_cast<int>(most[r]) - Codes::kTop;
      top[r] = (__uint_as_float(most[r]) - Codes::kMagic) * 0.125f;
    }
  }
  FALCHION_DEVICE int code(float t, int r) const { return static_cast<int>(__float_as_uint(t)) - base[r]; }

 private:
  static FALCHION_DEVICE unsigned over_quad_max(unsigned x) {
    x = max(x, __shfl_xor_sync(~0u, x, 1));
    return max(x, __shfl_xor_sync(~0u, x, 2));
  }
  /// The same for scores of any size, NaN, and rows that see no key: t becomes relative to its row's top. Rows of plain
  /// codes get the codes that they have without it.
  template <class Scores>
  FALCHION_DEVICE void find_far_tops(Scores&& t) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      float most = -FALCHION_INF;
      CUTE_UNROLL
      for (int c = 0; c < size<1>(t); ++c) {
        t(r, c) = t(r, c) == Codes::kMasked ? -FALCHION_INF : t(r, c) - Codes::kMagic;
        most = fmaxf(most, t(r, c));
      }
      top[r] = fmaxf(ceilf(largest_of_row(most) * 0.125f), Codes::kNothing);
      base[r] = static_cast<int>(Codes::kZero) - Codes::kTop;
      CUTE_UNROLL
      for (int c = 0; c < size<1>(t); ++c) {
        const float x = t(r, c) - 8 * top[r];
        t(r, c) = (x < -1024 ? -1024 : x) + Codes::kMagic;  // keeps NaN
      }
    }
  }
};

}  // namespace falchion::sm90
