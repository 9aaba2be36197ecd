// src/ref/gemm.hpp: the definition of a GEMM.
#pragma once

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// The activation of one number; of swiglu it is the gate's.
double activated(Activation activation, double x);

/// Computes Z = alpha A B^T + beta C + bias, D = activation(Z) + R in double, one element after the other. problem and
/// operands must be valid (src/api/validate.hpp), except that each tensor may also be f32, for a reference whose inputs
/// are not rounded. It allocates nothing, throws nothing and runs on one thread.
void gemm(const Gemm& problem, const GemmOperands& operands) noexcept;

}  // namespace falchion::ref
