// src/ref/linear_attention.hpp: the definition of causal linear attention and of its gradients.
#pragma once

#include <cstddef>

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// The bytes of workspace that the functions below need, 8-byte aligned.
std::size_t linear_attention_workspace(const LinearAttention& problem, Pass pass) noexcept;

/// Computes the recurrence of falchion/linear_attention.hpp in double, token by token (Katharopoulos et al. 2020,
/// arXiv:2006.16236, equations 16 to 20). problem and operands must be valid (src/api/validate.hpp), except that o may
/// also be f32, for a reference that is not rounded. Lengths are clamped into the tensors, and packed ones to b * s
/// rows in all. It allocates nothing, throws nothing and runs on one thread.
void linear_attention_forward(const LinearAttention& problem, const LinearOperands& operands, void* workspace) noexcept;

/// Computes its gradients by the chain rule on the recurrence, backwards token by token, with every state
/// kept. The gradients may be f32 as well. decay_terms is null or points to zeros (rows of q, h_v). They
/// tell the judge how exact the gradient of a decay can be: chunked kernels do not keep the states, and
/// sum that gradient from the last token on,
///   dg_t = sum over j >= t of phi(q_j) . dphi(q_j) - phi(k_j) . dphi(k_j), without a token's own contribution.
/// decay_terms of token j gets the sum of the squares of the products that the token adds.
void linear_attention_backward(const LinearAttention& problem, const LinearOperands& operands, void* workspace,
                               double* decay_terms = nullptr) noexcept;

}  // namespace falchion::ref
