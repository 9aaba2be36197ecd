// src/judge/quantise.hpp: judges the outputs of Quantise. Its arithmetic is defined step by step, so scales and y must
// be those of the definition to the bit. Only the mean over tokens may be off by the rounding of a sum in f32; the
// definition is then given that mean.
#pragma once

#include <cstdint>
#include <string>

#include "falchion/falchion.hpp"

namespace falchion::judge {

/// inputs: operands in the host's memory, in the problem's types or f32. got: the outputs of the problem, with the same
/// shapes. Returns "" if all are right, else the first error.
std::string check_quantise(const Quantise& problem, const QuantiseOperands& inputs, const QuantiseOperands& got);

}  // namespace falchion::judge
