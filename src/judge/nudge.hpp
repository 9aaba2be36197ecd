// src/judge/nudge.hpp: a tensor's numbers once more in f32, changed: each off by a step up or down, or its magnitude.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "judge/rule.hpp"
#include "ref/elements.hpp"

namespace falchion::judge {

/// What moves the same way: nothing, the elements of a row (the last axis), or all of them, so that equals stay equal.
enum class Together : std::uint8_t { none, row, all };

/// Relative to a number, and besides of any number's.
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

/// One input once more, dense and in f32, its numbers changed.
class Changed {
 public:
  /// change(x, nth element, nth row) is what stands for x.
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

/// Each finite number off by a step up or down. An infinity stays: -Inf in a bias hides a key, and -Inf + Inf is NaN.
class Nudged : public Changed {
 public:
  Nudged(const Tensor& from, Step step, Together together, std::uint64_t draw)
      : Changed(from, [=](double x, std::uint64_t element, std::uint64_t row) {
          if (!std::isfinite(x)) return x;
          const std::uint64_t mine = together == Together::none ? element : together == Together::row ? row : 0;
          return x + nudge_sign(draw, mine) * (step.relative * std::abs(x) + step.absolute);
        }) {}
};

/// Each number's magnitude.
class Magnitudes : public Changed {
 public:
  explicit Magnitudes(const Tensor& from)
      : Changed(from, [](double x, std::uint64_t, std::uint64_t) { return std::abs(x); }) {}
};

}  // namespace falchion::judge
