// src/judge/nudge.hpp: a copy of a tensor in f32 whose numbers are changed: each is moved a step up or down, or
// replaced by its magnitude.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "judge/rule.hpp"
#include "ref/elements.hpp"

namespace falchion::judge {

/// Which elements move in the same direction: none, those of a row, which is the last axis, or all, so that equal
/// numbers stay equal.
enum class Together : std::uint8_t { none, row, all };

/// The size of a move: a share of the number, plus an absolute amount.
struct Step {
  double relative, absolute = 0;
};

/// Calls f(index) for each element, the last axis fastest.
template <class F>
void for_each_index(const std::array<std::int64_t, 4>& shape, const F& f) {
  for (std::int64_t i = 0; i < shape[0]; ++i)
    for (std::int64_t j = 0; j < shape[1]; ++j)
      for (std::int64_t k = 0; k < shape[2]; ++k)
        for (std::int64_t l = 0; l < shape[3]; ++l) f(std::array<std::int64_t, 4>{i, j, k, l});
}

/// A copy of one input, dense and in f32, with changed numbers.
class Changed {
 public:
  /// change(x, nth element, nth row) returns the replacement of x.
  template <class F>
  Changed(const Tensor& from, const F& change) {
    view_ = Tensor::dense(nullptr, DType::f32, from.shape);
    if (from.data == nullptr) return;
    const auto& n = from.shape;
    memory_.reserve(static_cast<std::size_t>(n[0] * n[1] * n[2] * n[3]));
    std::uint64_t element = 0;
    for_each_index(n, [&](const std::array<std::int64_t, 4>& at) {
      const double x = ref::load(from, ref::at(from, at[0], at[1], at[2], at[3]));
      memory_.push_back(static_cast<float>(change(x, element, element / static_cast<std::uint64_t>(n[3]))));
      ++element;
    });
    view_.data = memory_.data();
  }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;
  const Tensor& view() const { return view_; }

 private:
  std::vector<float> memory_;
  Tensor view_;
};

/// Moves each finite number a step up or down. An infinity stays, because -Inf in a bias hides a key, and -Inf + Inf is
/// NaN.
class Nudged : public Changed {
 public:
  Nudged(const Tensor& from, Step step, Together together, std::uint64_t draw)
      : Changed(from, [=](double x, std::uint64_t element, std::uint64_t row) {
          if (!std::isfinite(x)) return x;
          const std::uint64_t mine = together == Together::none ? element : together == Together::row ? row : 0;
          return x + nudge_sign(draw, mine) * (step.relative * std::abs(x) + step.absolute);
        }) {}
};

/// Replaces each number by its magnitude.
class Magnitudes : public Changed {
 public:
  explicit Magnitudes(const Tensor& from)
      : Changed(from, [](double x, std::uint64_t, std::uint64_t) { return std::abs(x); }) {}
};

}  // namespace falchion::judge
