// src/ref/norm.hpp: the definition of a norm.
#pragma once

#include <cmath>

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// x + residual, two numbers of f32. Every path computes this sum in f32, so a sum past its range is an infinity.
inline double norm_sum(double x, double residual) {
  const auto single = static_cast<float>(x + residual);
  return std::isinf(single) ? double{single} : x + residual;
}

/// Computes v = x + residual, Y = (v - mean) rstd weight + bias in double, one row after the other. problem and
/// operands must be valid (src/api/validate.hpp), except that each tensor may also be f32, for a reference whose inputs
/// are not rounded. It allocates nothing, throws nothing and runs on one thread.
void norm(const Norm& problem, const NormOperands& operands) noexcept;

}  // namespace falchion::ref
