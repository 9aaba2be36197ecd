// src/ref/norm.hpp: the definition of a norm.
#pragma once

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// Computes v = x + residual, Y = (v - mean) rstd weight + bias in double, one row after the other. problem and
/// operands must be valid (src/api/validate.hpp), except that each tensor may also be f32, for a reference whose inputs
/// are not rounded. It allocates nothing, throws nothing and runs on one thread.
void norm(const Norm& problem, const NormOperands& operands) noexcept;

}  // namespace falchion::ref
