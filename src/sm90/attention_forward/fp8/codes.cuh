// src/sm90/attention_forward/fp8/codes.cuh: the softmax of kind fp8, which makes e4m3 numbers P without an exponential:
// one FFMA turns an element of S into the number of its code. docs/design/sm90_fp8.md has the error of that.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/store.cuh"
#include "gpu/blocks/sm90_softmax.cuh"

namespace falchion::sm90 {

/// An e4m3 number 2^(i + f) has the code 8 (i + 7 + f), but that its mantissa is linear: the code stands for
/// (1 + f) 2^i. So the code of P is a score in eighths of a bit, rounded to a whole number, and P is too large by
/// (1 + f) / 2^f, by 0 to 6 %. Its mean cancels, since O is divided by the sum of the same P.
struct Codes {
  static constexpr float kOf256 = 120;       // e4m3's code of 256
  static constexpr float kNan = 127;         // its code of NaN
  static constexpr float kMeanBits = .0575;  // log2 of the mean of (1 + f) / 2^f
  /// Each lane's largest code of a row may be from kLeast to kMost. Else the row's top is chosen anew, so that its
  /// largest code is above kAim - 8 and at most kAim, that of 64. An aim of 128 was 9 % slower at 4k keys, because
  /// codes that do not fit were more frequent. P below 2^-6 become less than they should be, down to 0 at 2^-7.
  static constexpr float kLeast = 48, kMost = 126.5, kAim = 104;
  static constexpr float kAt1 = 1.f / 64;  // makes the largest P about 1
};

/// Two codes as bytes, rounded to nearest and saturated to 0 to 255, below the lower half of `upper`. It is one
/// instruction.
FALCHION_DEVICE std::uint32_t pack_codes(float first, float second, std::uint32_t upper) {
  std::uint32_t x;
  asm volatile("cvt.pack.sat.u8.s32.b32 %0, %2, %1, %3;"
               : "=r"(x)
               : "r"(__float2int_rn(first)), "r"(__float2int_rn(second)), "r"(upper));
  return x;
}
/// 2^x of a whole number; 0 below 2^-126. x is at most 127, but in rows that have seen no key: then it is about 1e30,
/// the result is some finite number, and all P that it multiplies are 0.
FALCHION_DEVICE float power_of_whole(float x) {
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23, whose last bits are those of the whole number
  return __uint_as_float(__float_as_uint(fmaxf(x, -127.f) + (kMagic + 127.f)) << 23);
}

/// The state of a thread's two rows. P of a tile of keys is relative to 2^(top - 8); O and l to 2^(m - 8). Both are
/// whole bits. A tile takes the top of the one before it, as long as its codes fit; so choosing one is rare, and what
/// else the usual tile does not need is done there, in `place`.
struct CodesSoftmax {
  static constexpr int kSize = 2;
  static constexpr float kSlack = 60;       // m follows a top that is more bits above it
  static constexpr float kNothing = -1e30;  // m of a row that has seen no key
  float l[2], m[2];
  float addend[2];  // of the FFMA that makes codes: kOf256 - 8 top
  float factor[2];  // 2^(top - m) of the P that was made last
  float of_ot[2];   // the same of the product that runs
  bool begun;       // all rows of the warp have seen a key

  FALCHION_DEVICE void reset() {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      l[r] = 0;
      m[r] = kNothing;
      addend[r] = Codes::kOf256;
      factor[r] = of_ot[r] = 0;
    }
    begun = false;
  }
  /// After `finish`.
  FALCHION_DEVICE float reference(int r, float) const {
    return l[r] == 0 ? -FALCHION_INF : m[r] - 2 - Codes::kMeanBits;
  }
  FALCHION_DEVICE float lse(int r, float) const {
    return l[r] == 0 ? -FALCHION_INF : (reference(r, 1) + log2(l[r])) * kLn2;
  }
  /// Makes l relative to 2^(m - 2), and O too. Weights of rows beside a sink would else be below what f32 can hold.
  template <class Output>
  FALCHION_DEVICE void finish(Output& o) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) l[r] *= Codes::kAt1;
    CUTE_UNROLL
    for (int i = 0; i < size(o); ++i) o(i) *= Codes::kAt1;
  }
  /// The product of the P that was made last starts.
  FALCHION_DEVICE void start_ot() {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) of_ot[r] = factor[r];
  }

  /// Makes what the FFMA made of S (rows, columns) codes that pack_codes can take. O is that of the tiles before.
  template <class Scores, class Output>
  FALCHION_DEVICE void find_codes(Scores&& x, Output&& o) {
    constexpr int kChains = 4, kColumns = decltype(size<1>(x))::value;
    constexpr unsigned kLeast = __builtin_bit_cast(unsigned, Codes::kLeast);
    constexpr unsigned kRange = __builtin_bit_cast(unsigned, Codes::kMost) - kLeast;
    bool fits = begun;
    int most[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      int chain[kChains];  // of bits, because a maximum of integers takes half the time of one of floats
      CUTE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const int bits = __float_as_int(x(r, c));
        chain[c % kChains] = c < kChains ? bits : max(chain[c % kChains], bits);
      }
      most[r] = max(max(chain[0], chain[1]), max(chain[2], chain[3]));
      fits = fits && static_cast<unsigned>(most[r]) - kLeast <= kRange;  // not if it is negative, or NaN
    }
    if (!__all_sync(~0u, fits)) place(x, o, most);
  }

 private:
  /// Chooses the tops of rows whose largest code does not fit. most: the largest bits of x of each row.
  template <class Scores, class Output>
  FALCHION_DEVICE void place(Scores&& x, Output&& o, const int (&most)[2]) {
    float largest[2], shrink[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) largest[r] = __int_as_float(most[r]);
    if (__any_sync(~0u,
                   most[0] < 0 || most[1] < 0)) {  // the largest of negative numbers does not have the largest bits
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        largest[r] = most[r] < 0 ? -FALCHION_INF : largest[r];
        CUTE_UNROLL
        for (int c = 0; c < size<1>(x); ++c) largest[r] = fmaxf(largest[r], x(r, c));
      }
    }
    bool lost = false, shrinks = false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      // NaN and Inf have the largest bits. A row with one of them is NaN.
      largest[r] = largest_of_row(most[r] >= __float_as_int(FALCHION_INF) ? FALCHION_INF : largest[r]);
      const bool is_lost = largest[r] == FALCHION_INF, nothing = m[r] == kNothing;
      const bool fits = largest[r] >= Codes::kLeast && largest[r] <= Codes::kMost;
      const bool moves = !is_lost && largest[r] > -FALCHION_INF && (nothing || !fits);
      const float shift = moves ? 8 * ceilf((largest[r] - Codes::kAim) * .125f) : 0.f;
      addend[r] -= shift;
      CUTE_UNROLL
      for (int c = 0; c < size<1>(x); ++c) x(r, c) -= shift;
      const float top = (Codes::kOf256 - addend[r]) * .125f;
      const bool follows = is_lost ? nothing : moves && top - m[r] > kSlack;  // as a row that has seen nothing does
      shrink[r] = follows ? power_of_whole(m[r] - top) : 1.f;
      m[r] = follows ? top : m[r];
      factor[r] = power_of_whole(top - m[r]);
      lost = lost || is_lost;
      shrinks = shrinks || (follows && !nothing);
    }
    if (__any_sync(~0u, lost)) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        CUTE_UNROLL
        for (int c = 0; c < size<1>(x); ++c) x(r, c) = largest[r] == FALCHION_INF ? Codes::kNan : x(r, c);
      }
    }
    if (__any_sync(~0u, shrinks)) {
      gpu::scale_rows(o, shrink);
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        l[r] *= shrink[r];
        of_ot[r] *= shrink[r];
      }
    }
    begun = __all_sync(~0u, m[0] != kNothing && m[1] != kNothing);
  }
};

}  // namespace falchion::sm90
