// src/gpu/blocks/moments.cuh: the mean of a row and its squares, put together from those of its parts. A part subtracts
// its own mean, so no part waits for the mean of all before it adds its squares, and nothing cancels when they are put
// together (Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance").
#pragma once

#include "base/host_device.hpp"

namespace falchion::gpu {

/// Of `count` numbers. Their mean is mean + rest, where rest is what mean is off by, and squares is the sum of the
/// squares of their deviations from it. mean is finite; where the numbers' is not, rest is that.
struct Moments {
  float count = 0, mean = 0, rest = 0, squares = 0;
};

FALCHION_DEVICE bool is_finite(float x) { return x - x == 0; }

FALCHION_DEVICE float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return 1 / x;
#endif
}
/// x / count without the code that a division has for operands near the ends of f32's range, which takes registers. A
/// quotient that f32 holds is exact.
FALCHION_DEVICE float quotient(float x, float count) {
  const float share = reciprocal(count), out = x * share, off = fmaf(-count, out, x);
  return is_finite(off) ? fmaf(off, share, out) : out;
}

/// The moments of the numbers of a thread: number(c, e) where there(c, e), and else number is 0. kWhole: all of a chunk
/// is there or none, and no chunk behind one that is not. In a part of equal numbers each deviation is the same few
/// units of the mean. So their sums are exact, and squares is 0.
template <int kChunks, int kChunk, bool kWhole, class Number, class There>
FALCHION_DEVICE Moments moments_of(Number number, There there) {
  float count = 0, sums[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    float some[kChunk];
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      count += there(c, e) ? 1 : 0;
      some[e] = number(c, e);
    }
#pragma unroll
    for (int by = 1; by < kChunk; by *= 2) {
#pragma unroll
      for (int e = 0; e < kChunk; e += 2 * by) some[e] += some[e + by];
    }
    sums[c] = c == 0 ? some[0] : sums[c - 1] + some[0];
  }
  if (count == 0) return {};
  const float mean = sums[kChunks - 1] * reciprocal(count);
  if (!is_finite(mean)) return {count, 0, mean, mean - mean};
  float sum = 0, squares = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (kWhole && !there(c, 0)) break;
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      const float by = there(c, e) ? number(c, e) - mean : 0;
      sum += by;
      squares = fmaf(by, by, squares);
    }
  }
  const float rest = quotient(sum, count);
  return {count, mean, rest, fmaf(-sum, rest, squares)};
}

/// What a part adds to the moments of all, around a mean that is right but for its rounding.
struct MomentsAround {
  float sum, squares;

  static FALCHION_DEVICE MomentsAround of(const Moments& part, float mean) {
    const float by = (part.mean - mean) + part.rest;
    return {part.count * by, fmaf(part.count * by, by, part.squares)};
  }
  FALCHION_DEVICE Moments moments(float count, float mean) const {
    const float rest = quotient(sum, count);
    return {count, mean, rest, fmaf(-sum, rest, squares)};
  }
};

/// The moments of two parts of a thread, the first of which is not empty.
FALCHION_DEVICE Moments both(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  const float between = a.mean + ((b.mean - a.mean) + (b.rest - a.rest)) * quotient(b.count, count);
  const float mean = is_finite(between) ? between : a.mean;
  const MomentsAround x = MomentsAround::of(a, mean), y = MomentsAround::of(b, mean);
  return MomentsAround{x.sum + y.sum, x.squares + y.squares}.moments(count, mean);
}

/// `width` lanes of a warp, a power of two, from a multiple of it on.
struct MomentLanes {
  unsigned mask;
  int width;

  /// Each lane gets the same bits.
  FALCHION_DEVICE float sum(float x) const {
    for (int by = width / 2; by > 0; by /= 2) x += __shfl_xor_sync(mask, x, by);
    return x;
  }
  /// The moments of all lanes' parts, some of which may be empty, but not the first. The parts' means are added up as
  /// distances from the first part's, so that parts with equal means have exactly that mean. If that mean is far from
  /// the others, its distances are coarse, and the mean is off, which the second sums find.
  FALCHION_DEVICE Moments all(const Moments& part) const {
    const float first = __shfl_sync(mask, part.mean, 0, width), count = sum(part.count);
    const float near = first + quotient(sum(part.count * ((part.mean - first) + part.rest)), count);
    const float mean = is_finite(near) ? near : first;
    const MomentsAround own = MomentsAround::of(part, mean);
    return MomentsAround{sum(own.sum), sum(own.squares)}.moments(count, mean);
  }
};

}  // namespace falchion::gpu
