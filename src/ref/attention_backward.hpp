// src/ref/attention_backward.hpp: the definition of the gradients of attention.
#pragma once

#include "falchion/falchion.hpp"
#include "ref/attention_forward.hpp"

namespace falchion::ref {

/// Computes the gradients of q, k, v, and of bias, slopes and sinks if the problem asks for them, in double in the
/// plainest way: each element is a separate sum over every pair of a query and a key that it depends on. With P = exp(S
/// - lse), r the factor of dropout, D = grad_o . o - grad_lse for each row, and f' the derivative of the softcap:
///   G = P (r grad_o . v - D)                              the gradient of a score
///   grad_q_i = scale sum_j f' G k_j,   grad_k_j = scale sum_i f' G q_i,   grad_v_j = sum_i r P grad_o_i
///   grad_bias = G,   grad_alibi = -sum G |i + shift - j|,   grad_sinks = -sum exp(sink - lse) D
/// summed over the query heads that share a K/V head, and over each axis on which a bias, a slope or a sink is
/// broadcast. o and
/// lse are inputs. A row whose lse is -inf has seen no key and adds nothing, even if it holds NaN.
///
/// problem and operands must be valid (src/api/validate.hpp), except that gradients may also be f32, for a reference
/// that is not rounded. Rounding::p is for P in grad_v, Rounding::ds for f' G in grad_q and grad_k, Rounding::o for the
/// gradients; step, draw and magnitudes let a judge find out how exact a result can be. Lengths are clamped into the
/// tensors. It allocates nothing, throws nothing and runs on one thread.
void attention_backward(const Attention& problem, const Operands& operands, Rounding rounding) noexcept;

}  // namespace falchion::ref
