// src/judge/nudge.hpp: a tensor's numbers once more in f32, each off by a relative step up or down.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "judge/rule.hpp"
#include "ref/elements.hpp"

namespace falchion::judge {

/// What moves the same way: nothing, the elements of a row (the last axis), or all of them, so that equals stay equal.
enum class Together : std::uint8_t { none, row, all };

/// Dense memory of one nudged input.
class Nudged {
 public:
  Nudged(const Tensor& from, double step, Together together, std::uint64_t draw) {
    view_ = Tensor::dense(nullptr, DType::f32, from.shape);
    if (from.data == nullptr) return;
    const auto& n = from.shape;
    memory_.reserve(static_cast<std::size_t>(n[0] * n[1] * n[2] * n[3]));
    std::uint64_t count = 0;
    const std::uint64_t each = together == Together::none ? 1 : 0, row = together == Together::row ? 1 : 0;
    for (std::int64_t i = 0; i < n[0]; ++i)
      for (std::int64_t j = 0; j < n[1]; ++j)
        for (std::int64_t k = 0; k < n[2]; ++k, count += row)
          for (std::int64_t l = 0; l < n[3]; ++l, count += each)
            memory_.push_back(
                static_cast<float>(ref::load(from, ref::at(from, i, j, k, l)) * (1 + step * nudge_sign(draw, count))));
    view_.data = memory_.data();
  }
  Nudged(const Nudged&) = delete;
  Nudged& operator=(const Nudged&) = delete;
  const Tensor& view() const { return view_; }

 private:
  std::vector<float> memory_;
  Tensor view_;
};

}  // namespace falchion::judge
