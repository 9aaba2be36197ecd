// src/ref/quantise.hpp: the definition of Quantise, which the CPU runs too.
#pragma once

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// The mean over tokens is summed in double. All else is f32, one rounding a step (policy/quantise.hpp), and a part of
/// the definition. problem and operands must be valid (src/api/validate.hpp), except that x may also be f32. It
/// allocates nothing, throws nothing and runs on one thread.
void quantise(const Quantise& problem, const QuantiseOperands& operands) noexcept;

}  // namespace falchion::ref
