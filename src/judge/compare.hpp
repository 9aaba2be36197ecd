// src/judge/compare.hpp: shared by the judges of softmax attention: the errors granted for the roundings of f32, and
// the comparison of a result with the definition and the naive computation, element by element.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "falchion/falchion.hpp"
#include "judge/nudge.hpp"
#include "judge/rule.hpp"
#include "judge/words.hpp"
#include "ref/elements.hpp"

namespace falchion::judge {

/// The error granted for a few roundings of f32.
inline constexpr double kSingle = 0x1p-22;

/// The error granted to each of d products that are summed. AMX multiplies f16 as two bf16 parts and leaves out the
/// product of the two small ones. That is at most 2^-16 of the whole, but of either sign, and 2^-18.5 in the root mean
/// square; a sum has many of them. The limit is twice the number granted here. In f32 each addition rounds at the
/// magnitude of the sum, which grows with the root of the number of products, so above 64 of them more is granted. (Of
/// 34,000 problems in f32 one with 256 products exceeded the limit by 12 % on an H200, where the naive computation had
/// an unusually small error.)
inline double product_step(DType dtype, std::int64_t d) {
  if (dtype == DType::f16) return 0x1p-19;
  return dtype == DType::f32 ? kSingle * std::sqrt(std::max(1.0, static_cast<double>(d) / 64)) : kSingle;
}

/// The rounding of an addition in f32 in the root mean square, as a share of its sum: 2^-24 at most, uniformly
/// distributed. A dot product in f32 is granted that share of its sum after every fourth product, as if four products
/// were summed first. It dominates if all terms have one sign, for example if scores rise with the key: the products'
/// own share grows with the root of their number, and this with that root times the sum. (Of 12,000 problems in f32 one
/// with 192 such products exceeded the limit by 44 % on an H200, where the naive sum had an unusually small error: in
/// 200 other orders of the products its error was 3.2e-4 in the median and 8.9e-4 at most, and the kernel's 1.5e-4 and
/// 3.9e-4. Here they had 1.3e-4 and 3.9e-4.)
inline constexpr double kAddition = 0x1p-24 / std::numbers::sqrt3;

/// The error granted to each probability in f32: a GPU's exp2 has an error of 2^-22, and its argument adds half as
/// much.
inline constexpr double kProbability = 3 * 0x1p-23;

/// The error granted to a sum, as a share of the sum of the magnitudes of its terms: three roundings of f32. If the
/// terms cancel, the sum is small but its error is not. (With two roundings an H200 missed the limit by 8 and by 16 %
/// in two of 22,000 problems.)
inline constexpr double kSum = 3 * 0x1p-24;

/// Compares the elements of one result with the definition's and with the naive ones. Misplaced Inf and NaN are
/// reported at once; the largest error is compared with the limit at the end.
class Comparison {
 public:
  explicit Comparison(const char* name) : name_(name) {}

  /// counts(index): whether the element is checked. excused(index, value, wanted): whether this value is allowed
  /// although neither the definition nor the naive computation has it. seen(index, wanted): called for each pair of
  /// finite numbers.
  template <class Counts, class Excused, class Seen>
  void run(const Tensor& exact, const Tensor& naive, const Tensor& got, const Counts& counts, const Excused& excused,
           const Seen& seen) {
    for_each_index(got.shape, [&](const std::array<std::int64_t, 4>& at) {
      if (!counts(at)) return;
      const double wanted = element(exact, at), by_naive = element(naive, at);
      double value = element(got, at);
      if (!same_special(got.dtype, value, wanted) && !same_special(got.dtype, value, by_naive)) {
        if (excused(at, value, wanted)) return;
        value = within_range(got.dtype, value, wanted);
      }
      if (!same_special(got.dtype, value, wanted) && !same_special(got.dtype, value, by_naive)) {
        if (report.same_specials) report.why = mismatch(name_, at, value, wanted);
        report.same_specials = false;
        return;
      }
      if (!std::isfinite(wanted) || !std::isfinite(value)) return;
      seen(at, wanted);
      report.squared_error += (value - wanted) * (value - wanted);
      report.squared_exact += wanted * wanted;
      report.squared_value += value * value;
      report.product += value * wanted;
      ++report.count;
      if (std::abs(value - wanted) > report.error) {
        report.error = std::abs(value - wanted);
        worst_ = at;
      }
      const double difference = std::abs(by_naive - wanted);
      if (std::isfinite(difference)) report.naive_error = std::max(report.naive_error, difference);
    });
  }
  /// Whether the result is final: refused already, or within the limit without a grant.
  bool decided() const { return !report.same_specials || report.error <= report.limit(); }
  /// Writes the message, if the error exceeds the limit with the grants.
  void conclude() {
    if (report.error <= report.limit()) return;
    report.why = where(name_, worst_) + " is off by " + number(report.error) + ", the limit is " +
                 number(report.limit()) + " (naive " + number(report.naive_error) + ", granted " +
                 number(report.granted) + ")";
  }

  ErrorReport report;

 private:
  static double element(const Tensor& x, const std::array<std::int64_t, 4>& at) {
    return ref::load(x, ref::at(x, at[0], at[1], at[2], at[3]));
  }

  /// An Inf where the definition is finite counts as the first number past the range of its type: the rounding error is
  /// compared with the limit like any other.
  static double within_range(DType dtype, double value, double wanted) {
    if (!std::isinf(value) || !std::isfinite(wanted) || std::signbit(value) != std::signbit(wanted)) return value;
    return std::copysign(largest_of(dtype) + unit_at(dtype, largest_of(dtype)), wanted);
  }

  const char* name_;
  std::array<std::int64_t, 4> worst_{};
};

}  // namespace falchion::judge
