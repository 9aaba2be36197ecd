// src/judge/rule.hpp: the tolerance rule (docs/contract.md), in one place for `falchion verify`, its storms and the
// tests. It is no part of the library. First, NaN and Inf must be where the definition has them, or where the naive
// computation has them (0 times Inf is NaN where a probability is too small for f32). Then the largest difference from
// the definition in double may be at most twice the naive error, plus one unit of the output type. The naive error is
// that of the naive computation in the same types, which sums 1024 keys at a time. With one query, one key or few
// elements it may be unusually small. So it is taken as at least the change of the definition when its inputs are
// nudged by the roundings that any computation in these types is granted, and, for O, as at least a few roundings of
// the sum of the terms' magnitudes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "falchion/falchion.hpp"
#include "policy/dtype.hpp"

namespace falchion::judge {

/// The distance between neighbouring numbers of the type at this magnitude.
inline double unit_at(DType dtype, double magnitude) {
  if (dtype == DType::i8) return 1;
  const int digits = dtype == DType::f32 ? 23 : dtype == DType::f16 ? 10 : dtype == DType::e4m3 ? 3 : 7;
  const int lowest = dtype == DType::f16 ? -14 : dtype == DType::e4m3 ? -6 : -126;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude is in [2^(exponent - 1), 2^exponent)
  return std::ldexp(1.0, std::max(magnitude > 0 ? exponent - 1 : lowest, lowest) - digits);
}

/// Numbers below this may be rounded to a multiple of it, or to 0. It is f16's smallest number, and f32's and bf16's
/// smallest normal number, below which GPUs and AMX flush to 0. 8-bit types have no numbers that are flushed.
inline double lowest_unit(DType dtype) {
  if (dtype == DType::i8 || dtype == DType::e4m3) return unit_at(dtype, 0);
  return dtype == DType::f16 ? 0x1p-24 : 0x1p-126;
}

/// The largest finite number of the type.
inline double largest_of(DType dtype) {
  if (dtype == DType::i8) return 127;
  if (dtype == DType::e4m3) return 448;
  const int digits = dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
  return std::ldexp(1 - std::ldexp(1.0, -digits), dtype == DType::f16 ? 16 : 128);
}

/// Whether the value is NaN, Inf or finite like the definition's. Inf is also right if the definition is finite but one
/// unit more would exceed the largest number of the type.
inline bool same_special(DType dtype, double value, double exact) {
  if (std::isnan(exact)) return std::isnan(value);
  if (std::isinf(exact)) return value == exact;
  if (!std::isinf(value)) return std::isfinite(value);
  const double largest = largest_of(dtype);
  return std::signbit(value) == std::signbit(exact) && std::abs(exact) + unit_at(dtype, largest) > largest;
}

/// One tensor's worst element.
struct ErrorReport {
  double error = 0;        // max |x - exact|
  double naive_error = 0;  // max |naive - exact|
  double granted = 0;      // how far nudged inputs move the definition; computed only if the error needs it
  double unit = 0;         // the unit of the output type at the largest exact element
  double bound = -1;       // of rules with a bound for each element: that of the worst one, whose error is `error`
  // Over all elements that are finite: sums of squares of the error, of the definition and of the value, and of their
  // product, for a relative error and an angle.
  double squared_error = 0, squared_exact = 0, squared_value = 0, product = 0;
  std::int64_t count = 0;
  bool same_specials = true;
  std::string why{};  // the first violation of NaN, Inf or the limit; empty if it passed

  double limit() const { return bound >= 0 ? bound : 2 * std::max(naive_error, granted) + unit; }
  /// The root of the mean square of the error over that of the definition.
  double relative_rms() const { return squared_exact > 0 ? std::sqrt(squared_error / squared_exact) : 0; }
  /// 1 - cosine of the angle between the result and the definition.
  double one_minus_cosine() const {
    const double sizes = std::sqrt(squared_exact) * std::sqrt(squared_value);
    return sizes > 0 ? std::max(0., 1 - product / sizes) : 0;
  }
  bool passed() const { return why.empty(); }
  double share() const { return limit() > 0 ? error / limit() : error > 0 ? 1e300 : 0; }  // error / limit
};

/// +1 or -1 for element i of the stream `draw`, made by splitmix64 (Steele, Lea, Flood, OOPSLA 2014) from a counter.
inline double nudge_sign(std::uint64_t draw, std::uint64_t i) {
  std::uint64_t z = (draw * 0xD1342543DE82EF95u + i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (z >> 63) != 0 ? 1 : -1;
}

/// How often the inputs are nudged; the largest movement counts.
inline constexpr int kNudges = 8;

}  // namespace falchion::judge
