// src/args/norm_call.hpp: one norm as every kernel sees it. It is plain data for the reason that attention_call.hpp
// gives.
#pragma once

#include <cstdint>

#include "args/number.hpp"
#include "args/view.hpp"
#include "base/host_device.hpp"

namespace falchion {

/// Row r has the indices (r / h / s, r / h % s, r % h).
struct NormRows {
  std::int64_t rows = 0, s = 0, h = 0, d = 0;
  bool layer = true, zero_centered = false;
  float eps = 0;
};

/// The operands have types of their own. x, residual, y and residual_out are (b, s, h, d). So are weight and bias, with
/// a stride of 0 along an axis whose rows share their numbers. mean and rstd are (b, s, h, 1) f32.
struct NormCall : NormRows {
  View x, residual, weight, bias, y, residual_out, mean, rstd;   // null: absent
  Number residual_type{}, weight_type{}, bias_type{}, y_type{};  // that of x is the variant's
};

/// Where row r of an operand begins, in elements.
struct NormPlace {
  std::uint32_t i, j, k;  // rows have 31 bits

  static FALCHION_HD NormPlace of(const NormRows& a, std::int64_t row) {
    if (a.s >= a.rows) return {0, static_cast<std::uint32_t>(row), 0};  // s is the one axis that join_axes made
    const auto r = static_cast<std::uint32_t>(row), h = static_cast<std::uint32_t>(a.h);
    const auto s = static_cast<std::uint32_t>(a.s), outer = r / h;
    return {outer / s, outer % s, r - outer * h};
  }
  FALCHION_HD std::int64_t in(const View& x) const { return i * x.stride[0] + j * x.stride[1] + k * x.stride[2]; }
};

}  // namespace falchion
