// src/policy/norm_range.hpp: rows whose squares are outside the range of f32, and the factor that brings them back.
#pragma once

#include "base/host_device.hpp"

namespace falchion {

/// Powers of two that take a row's numbers to where their squares are in the range of f32, up or down.
inline constexpr float kNormUp = 0x1p96F, kNormDown = 0x1p-96F;

/// A row is summed in f32, where the square of a number below 2^-63 loses bits, that of one below 2^-75 is 0, and that
/// of one above 2^64 is Inf. So a row whose first sums are too small or too large is summed again, with each of its
/// numbers multiplied by this power of two. It is 1 for any other row. If the variance and eps are below 2^-104, no
/// number of a row of up to 2^30 numbers deviates by 2^-37. Times 2^96 its squares are at least 2^-106, which is
/// normal, and their sum is at most 2^118. In a row with a mean of at least 2^-8 numbers that close are equal, and its
/// variance is exactly 0 without a factor. If the variance is not finite, either sums exceeded f32, or the row has an
/// Inf or NaN, which stays one.
FALCHION_HD float norm_scale(float mean, float variance, float eps) {
  constexpr float kLeast = 0x1p-104F, kMost = 0x1p100F, kLargeMean = 0x1p-8F;
  if (!(variance <= kMost)) return kNormDown;
  return variance + eps < kLeast && mean < kLargeMean && mean > -kLargeMean ? kNormUp : 1.F;
}

/// Corrects the statistics of numbers that were multiplied by `scale`. Those numbers are multiplied by 1 /
/// sqrt(variance + eps); rstd is `rstd` times that, and the mean is `mean` times theirs. Equal numbers have a variance
/// of 0 at any scale. Their eps is not scaled, because it could underflow.
struct NormScaled {
  float eps, rstd, mean;

  static FALCHION_HD NormScaled of(float scale, float variance, float eps) {
    const float back = scale > 1 ? kNormDown : scale < 1 ? kNormUp : 1.F;
    return variance == 0 ? NormScaled{eps, 1, back} : NormScaled{eps * scale * scale, scale, back};
  }
};

}  // namespace falchion
