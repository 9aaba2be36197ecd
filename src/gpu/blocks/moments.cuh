// src/gpu/blocks/moments.cuh: the mean of a row and its squares, put together from those of its parts. A part subtracts
// a number of its own, so no part waits for the mean of all before it adds its squares, and nothing cancels when they
// are put together (Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance").
#pragma once

#include <cmath>

#include "base/host_device.hpp"

namespace falchion::gpu {

FALCHION_DEVICE bool is_finite(float x) { return x - x == 0; }

/// 1 / sqrt(x), right to its last bit or the one before, in fewer instructions than a root and a division take.
FALCHION_DEVICE float inverse_root(float x) {
#if defined(__CUDA_ARCH__)
  const float out = rsqrtf(x);
#else
  const float out = 1 / std::sqrt(x);
#endif
  const float off = fmaf(-x * out, out, 1.F);
  return is_finite(off) ? fmaf(0.5F * out, off, out) : out;
}

/// How many numbers there are, and 1 over that.
struct NumberCount {
  float count = 0, share = 0;

  static FALCHION_DEVICE NumberCount of(float count) { return {count, 1 / count}; }
};

/// Of `count` numbers. Their mean is mean + rest, and squares is the sum of the squares of their deviations from it. In
/// a row with an Inf or a NaN, squares is not finite, and the mean is not said.
struct Moments {
  float count = 0, mean = 0, rest = 0, squares = 0;
};

/// The moments of a thread's numbers: number(c, e) where there(c, e); else number is 0. They are taken around the mean
/// of the first chunk, which `mean` is then. One chunk's mean is off by no more than what the chunk itself adds to the
/// squares. So with four chunks the sums are at most five times what they would be around the mean of all, and squares
/// loses two bits at most. Equal numbers deviate by exactly 0. put(c, e, by) gets the deviations. kWhole: all of a
/// chunk is there or none; else the first number is subtracted.
template <int kChunks, int kChunk, bool kWhole, class Number, class There, class Put>
FALCHION_DEVICE Moments moments_of(const NumberCount& n, Number number, There there, Put put) {
  float first[kChunk], sums[kChunks], squares[kChunks];
#pragma unroll
  for (int e = 0; e < kChunk; ++e) first[e] = number(0, e);
#pragma unroll
  for (int by = 1; kWhole && by < kChunk; by *= 2) {
#pragma unroll
    for (int e = 0; e < kChunk; e += 2 * by) first[e] += first[e + by];
  }
  const float anchor = kWhole ? first[0] * (1.F / kChunk) : first[0];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    sums[c] = squares[c] = 0;
    if (kWhole && c > 0 && !there(c, 0)) continue;
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      const float by = kWhole || there(c, e) ? number(c, e) - anchor : 0;
      put(c, e, by);
      sums[c] += by;
      squares[c] = fmaf(by, by, squares[c]);
    }
  }
#pragma unroll
  for (int c = 1; c < kChunks; ++c) {
    sums[0] += sums[c];
    squares[0] += squares[c];
  }
  const float rest = sums[0] * n.share;
  return {n.count, anchor, rest, fmaf(-sums[0], rest, squares[0])};
}

/// The moments of two parts of a thread.
FALCHION_DEVICE Moments both(const Moments& a, const Moments& b) {
  const float count = a.count + b.count, by = (b.mean - a.mean) + (b.rest - a.rest), share = b.count / count;
  return {count, a.mean, fmaf(by, share, a.rest), fmaf(by * by, a.count * share, a.squares + b.squares)};
}

/// `width` lanes of a warp, a power of two, from a multiple of it on.
struct MomentLanes {
  unsigned mask;
  int width;

  /// Each lane gets the same bits.
  FALCHION_DEVICE float sum(float x) const {
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
      const float other = __shfl_xor_sync(mask, x, by);
      x = by < width ? x + other : x;
    }
    return x;
  }
  /// The moments of all lanes' parts, n numbers. Some parts may be empty, but not the first. The parts' means are added
  /// up as distances from the first one, so that equal means have exactly that mean. What the first is far from the
  /// others by is subtracted again before it is squared.
  FALCHION_DEVICE Moments all(const Moments& part, const NumberCount& n) const {
    const float mean = part.mean + part.rest, first = __shfl_sync(mask, mean, 0, width);
    const float far = (mean - first) + ((part.mean - mean) + part.rest), rest = sum(part.count * far) * n.share;
    const float by = far - rest;
    return {n.count, first, rest, sum(fmaf(part.count * by, by, part.squares))};
  }
};

}  // namespace falchion::gpu
