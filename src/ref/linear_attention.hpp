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
/// may be f32 as well. decay_terms: null, or (rows of q, h_v) zeros, to which is added how exact the gradient of a
/// decay can be. Chunked kernels do not keep the states, and sum that gradient from the last token on: dg_t = sum_{j >=
/// t} of phi(q_j) . dphi(q_j) - phi(k_j) . dphi(k_j), without what a token has from itself. Here is the sum of the
/// squares of the products that token j adds.
void linear_attention_backward(const LinearAttention& problem, const LinearOperands& operands, void* workspace,
                               double* decay_terms = nullptr) noexcept;

}  // namespace falchion::ref
