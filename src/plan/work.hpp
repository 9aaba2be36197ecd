// src/plan/work.hpp: the work of a problem, from its sizes (packed and used lengths: their upper bounds).
#pragma once

#include "falchion/falchion.hpp"

namespace falchion {

/// Visible (query, key) pairs of one head under the band, of s_q x s_k.
double visible_pairs(const Attention& problem);
/// 2 (d_qk + d_v) flop for each visible pair of each query head.
double attention_flops(const Attention& problem);
/// 2 (3 d_qk + 2 d_v) flop for each of them: S, the gradient of P, and those of q, k and v. Frozen gradients cost
/// nothing.
double attention_backward_flops(const Attention& problem);
/// q, k, v, o and the other operands that are present, each moved once; but not the scales of numbers of 8 bits,
/// because a plan does not know how many share one.
double attention_bytes(const Attention& problem);
/// What is part of them for `rows` queries with their new keys: these are read instead of their slots and written
/// there, and the angles of a row are read.
double new_keys_bytes(const Attention& problem, double rows);
/// K and V alone.
double keys_bytes(const Attention& problem);
/// The same with o, lse and grad_o as inputs, and the gradients; that of a bias counts as if nothing were broadcast.
double attention_backward_bytes(const Attention& problem);

/// Flop of the chunked algorithm with dense chunks of `chunk` tokens, E = d_qk, M = d_v, for each token and value head:
/// forward 2 chunk (E + M) + 4 E M, backward 2 chunk (3 E + 2 M) + 10 E M.
double linear_attention_flops(const LinearAttention& problem, Pass pass, int chunk);
/// q, k, v, o, or q, k, v, dO, dQ, dK, dV, and the other operands that are present, each moved once.
double linear_attention_bytes(const LinearAttention& problem, Pass pass);

/// 2 m n k flop for each entry of the batch, with swiglu twice that; the epilogue is not counted.
double gemm_flops(const Gemm& problem);
/// a, b, d and the other operands that are present, each moved once. shared_b: the batch shares one b; else each entry
/// has its own.
double gemm_bytes(const Gemm& problem, bool shared_b = false);
/// The part of them with the shape of d: d itself, c, residual.
double gemm_bytes_like_d(const Gemm& problem);

/// x, y and the other operands that are present, each moved once; weight and bias count as one row each, which all rows
/// share.
double norm_bytes(const Norm& problem);
/// The same of the backward pass.
double norm_backward_bytes(const Norm& problem);

/// x, y and the other operands that are present, each moved once.
double quantise_bytes(const Quantise& problem);

}  // namespace falchion
