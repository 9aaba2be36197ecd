// src/ref/linear_attention.hpp: the definition of causal linear attention and of its gradients.
#pragma once

#include <cstddef>

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// Bytes that either function below works in, 8-byte aligned.
std::size_t linear_attention_workspace(const LinearAttention& problem, Pass pass) noexcept;

/// The recurrence of falchion.hpp in double, token by token (Katharopoulos et al. 2020, arXiv:2006.16236, equations 16
/// to 20). problem and operands are valid (src/api/validate.hpp), save that o may also be f32, for a reference that is
/// not rounded. Lengths are clamped into bounds whatever they are, packed ones to b * s rows in all. Allocates nothing,
/// throws nothing, runs on one thread.
void linear_attention_forward(const LinearAttention& problem, const LinearOperands& operands, void* workspace) noexcept;

/// Its gradients, by the chain rule on the recurrence, backwards token by token, with every state kept. The gradients
/// may be f32 as well.
void linear_attention_backward(const LinearAttention& problem, const LinearOperands& operands,
                               void* workspace) noexcept;

}  // namespace falchion::ref
