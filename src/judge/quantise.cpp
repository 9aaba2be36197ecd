// src/judge/quantise.cpp: see quantise.hpp.
#include "judge/quantise.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/size.hpp"
#include "judge/compare.hpp"
#include "ref/elements.hpp"
#include "ref/quantise.hpp"

namespace falchion::judge {
namespace {

using Place = std::array<std::int64_t, 4>;

/// The first place of `shape` where `wrong` says so, or nothing. With its name: "y at [0, 1, 2, 3]".
template <class F>
std::string first_wrong(const char* name, const Tensor& x, const F& wrong) {
  for (std::int64_t i = 0; i < x.shape[0]; ++i)
    for (std::int64_t j = 0; j < x.shape[1]; ++j)
      for (std::int64_t k = 0; k < x.shape[2]; ++k)
        for (std::int64_t l = 0; l < x.shape[3]; ++l)
          if (std::string why = wrong(Place{i, j, k, l}); !why.empty())
            return where((std::string(name) + " at ").c_str(), {i, j, k, l}) + ": " + why;
  return "";
}

float get(const Tensor& x, const Place& at) { return ref::load(x, ref::at(x, at[0], at[1], at[2], at[3])); }

std::string text_of(double got, double wanted) { return std::to_string(got) + " instead of " + std::to_string(wanted); }

/// A sum of n numbers in f32 may be off by a few roundings of their magnitudes. Where a part of it may be beyond f32,
/// anything goes.
std::string check_mean(const Quantise& q, const Tensor& x, const Tensor& mean) {
  constexpr double kSumOfRows = 0x1p-20, kSmallest = 0x1p-148;
  return first_wrong("mean", mean, [&](const Place& at) -> std::string {
    double sum = 0, size = 0;
    for (std::int64_t i = 0; i < q.s; ++i) {
      const double number = get(x, {at[0], i, at[2], at[3]});
      sum += number;
      size += std::abs(number);
    }
    const double s = q.s > 0 ? static_cast<double>(q.s) : 1, exact = sum / s, got = get(mean, at);
    if (size > std::numeric_limits<float>::max() && std::isfinite(size)) return "";
    if (std::isnan(exact) && std::isnan(got)) return "";
    if (got == exact || std::abs(got - exact) <= kSumOfRows * size / s + kSmallest) return "";
    return text_of(got, exact);
  });
}

/// Whether two elements of one type have the same bits; a NaN of f32 is as good as another.
bool same(const Tensor& one, const Tensor& other, const Place& at) {
  const auto size = static_cast<std::int64_t>(size_of(one.dtype));
  const auto address = [&](const Tensor& x) {
    return static_cast<const char*>(x.data) + size * ref::at(x, at[0], at[1], at[2], at[3]);
  };
  if (std::memcmp(address(one), address(other), static_cast<std::size_t>(size)) == 0) return true;
  return one.dtype == DType::f32 && std::isnan(get(one, at)) && std::isnan(get(other, at));
}

}  // namespace

std::string check_quantise(const Quantise& problem, const QuantiseOperands& inputs, const QuantiseOperands& got) {
  Quantise q = problem;
  QuantiseOperands exact = inputs;
  if (q.smooth && !q.mean_given) {
    if (std::string why = check_mean(q, inputs.x, got.mean); !why.empty()) return why;
    q.mean_given = true;
    exact.mean = got.mean;
  }
  const auto& s = got.scale.shape;
  std::vector<float> scale(static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]));
  std::vector<std::uint8_t> y(static_cast<std::size_t>(q.b * q.s * q.h * q.d));
  if (!q.scale_given) exact.scale = Tensor::dense(scale.data(), DType::f32, s);
  exact.y = Tensor::dense(y.data(), q.dtype_y, got.y.shape);
  ref::quantise(q, exact);
  const auto compare = [&](const char* name, const Tensor& is, const Tensor& wanted) {
    return first_wrong(name, is, [&](const Place& at) {
      return same(is, wanted, at) ? std::string() : text_of(get(is, at), get(wanted, at));
    });
  };
  std::string why = q.scale_given ? "" : compare("scale", got.scale, exact.scale);
  return why.empty() ? compare("y", got.y, exact.y) : why;
}

}  // namespace falchion::judge
