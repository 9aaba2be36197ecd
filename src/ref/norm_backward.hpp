// src/ref/norm_backward.hpp: the definition of the gradients of a norm.
#pragma once

#include <cstddef>

#include "falchion/falchion.hpp"

namespace falchion::ref {

inline bool wants_grad_x(const Norm& n) { return (n.frozen & 1) == 0; }
inline bool wants_grad_weight(const Norm& n) { return n.weight && (n.frozen & 2) == 0; }

/// What norm_backward() needs: the mean and rstd of each row, in double.
std::size_t norm_backward_workspace(const Norm& problem);

/// Computes grad_x, grad_weight and grad_bias in double, each sum in the order of the rows. problem and operands must
/// be valid (src/api/validate.hpp), except that each tensor may also be f32, for a reference whose inputs are not
/// rounded. It allocates nothing, throws nothing and runs on one thread.
void norm_backward(const Norm& problem, const NormOperands& operands, void* workspace) noexcept;

}  // namespace falchion::ref
