// src/plan/work.cpp: see work.hpp. In double: sizes may be anything.
#include "plan/work.hpp"

#include <algorithm>

#include "base/fields.hpp"
#include "base/size.hpp"
#include "plan/gemm.hpp"
#include "plan/norm.hpp"
#include "plan/quantise.hpp"
#include "plan/text.hpp"
#include "ref/norm_backward.hpp"

namespace falchion {
namespace {

/// Sum over t <= x of clamp(t, 0, s).
double clamped_sum(double x, double s) {
  if (x <= 0) return 0;
  return x <= s ? x * (x + 1) / 2 : s * (s + 1) / 2 + (x - s) * s;
}

/// Pairs with j - (i + shift) <= bound.
double pairs_up_to(double s_q, double s_k, double shift, double bound) {
  const double first = shift + bound + 1;  // keys that query 0 sees, before clamping
  return clamped_sum(first + s_q - 1, s_k) - clamped_sum(first - 1, s_k);
}

}  // namespace

double visible_pairs(const Attention& a) {
  const double s_q = static_cast<double>(a.s_q), s_k = static_cast<double>(a.s_k);
  const double shift = static_cast<double>(a.band.shift(a.s_q, a.s_k));
  const double below = a.band.right < 0 ? s_q * s_k : pairs_up_to(s_q, s_k, shift, static_cast<double>(a.band.right));
  const double before = a.band.left < 0 ? 0 : pairs_up_to(s_q, s_k, shift, -static_cast<double>(a.band.left) - 1);
  return below > before ? below - before : 0;
}

double attention_flops(const Attention& a) {
  return 2.0 * (static_cast<double>(a.d_qk) + static_cast<double>(a.d_v)) * static_cast<double>(a.b) *
         static_cast<double>(a.h_q) * visible_pairs(a);
}

double attention_bytes(const Attention& a) {
  const double element = static_cast<double>(size_of(a.dtype));
  const double q_rows = static_cast<double>(a.b) * static_cast<double>(a.s_q) * static_cast<double>(a.h_q);
  const double of_q = static_cast<double>(a.d_qk) * element;
  const double of_o = static_cast<double>(a.d_v) * static_cast<double>(size_of(dtype_of_o(a)));
  const double scores = q_rows * static_cast<double>(a.s_k);
  double bytes = q_rows * (of_q + of_o) + keys_bytes(a);
  bytes += q_rows * 4 * ((a.lse ? 1 : 0) + (a.row_max ? 1 : 0));
  if (a.probabilities) bytes += scores * 4;
  if (a.bias) bytes += scores * element;
  if (a.mask) bytes += scores;
  if (a.sinks) bytes += 4 * static_cast<double>(a.h_q);
  return bytes + new_keys_bytes(a, static_cast<double>(a.b) * static_cast<double>(a.s_q));
}

double new_keys_bytes(const Attention& a, double rows) {
  const double row = static_cast<double>(a.h_k) * (static_cast<double>(a.d_qk) + static_cast<double>(a.d_v));
  const double written = a.append ? row * static_cast<double>(size_of(a.dtype)) : 0;
  return rows * (written + 4 * static_cast<double>(a.rotary_dim));
}

double keys_bytes(const Attention& a) {
  const double of_k = static_cast<double>(a.d_qk) * static_cast<double>(size_of(dtype_of_k(a)));
  const double of_v = static_cast<double>(a.d_v) * static_cast<double>(size_of(dtype_of_v(a)));
  return static_cast<double>(a.b) * static_cast<double>(a.s_k) * static_cast<double>(a.h_k) * (of_k + of_v);
}

double attention_backward_flops(const Attention& a) {
  const double qk = static_cast<double>(a.d_qk), v = static_cast<double>(a.d_v);
  const double scores = qk + v, of_q = (a.frozen & 1) != 0 ? 0 : qk, of_kv = (a.frozen & 2) != 0 ? 0 : qk + v;
  return 2 * (scores + of_q + of_kv) * static_cast<double>(a.b) * static_cast<double>(a.h_q) * visible_pairs(a);
}

double attention_backward_bytes(const Attention& a) {
  Attention inputs = a;  // q, k, v, o and the inputs of scores
  inputs.lse = inputs.row_max = inputs.probabilities = false;
  const double q_rows = static_cast<double>(a.b) * static_cast<double>(a.s_q) * static_cast<double>(a.h_q);
  const double k_rows = static_cast<double>(a.b) * static_cast<double>(a.s_k) * static_cast<double>(a.h_k);
  const double qk = static_cast<double>(a.d_qk), v = static_cast<double>(a.d_v);
  const double element = static_cast<double>(size_of(a.dtype));
  const double times = a.grads == Grads::accumulate ? 2 : 1;  // an accumulated gradient is read first
  const double gradient = a.grads == Grads::rounded ? element : 4 * times;
  double bytes = attention_bytes(inputs) + q_rows * v * element;  // with grad_o
  bytes += q_rows * 4 * (a.grad_lse ? 2 : 1);                     // lse and grad_lse
  if ((a.frozen & 1) == 0) bytes += q_rows * qk * gradient;
  if ((a.frozen & 2) == 0) bytes += k_rows * (qk + v) * gradient;
  if (a.grad_bias) bytes += q_rows * static_cast<double>(a.s_k) * 4 * times;
  return bytes;
}

double linear_attention_flops(const LinearAttention& a, Pass pass, int chunk) {
  const double e = static_cast<double>(a.d_qk), m = static_cast<double>(a.d_v), c = std::min<double>(chunk, a.s);
  const double tokens = static_cast<double>(a.b) * static_cast<double>(a.s) * static_cast<double>(a.h_v);
  return tokens * (pass == Pass::forward ? 2 * c * (e + m) + 4 * e * m : 2 * c * (3 * e + 2 * m) + 10 * e * m);
}

double linear_attention_bytes(const LinearAttention& a, Pass pass) {
  const double element = static_cast<double>(size_of(a.dtype)),
               rows = static_cast<double>(a.b) * static_cast<double>(a.s);
  const double q = rows * static_cast<double>(a.h_qk) * static_cast<double>(a.d_qk),
               v = rows * static_cast<double>(a.h_v) * static_cast<double>(a.d_v);
  const double state = 4.0 * static_cast<double>(a.b) * static_cast<double>(a.h_v) * static_cast<double>(a.d_qk) *
                       (static_cast<double>(a.d_v) + (a.normalise ? 1 : 0));
  const double decay = 4.0 * static_cast<double>(a.h_v) * (a.decay == Decay::token ? rows : a.decay == Decay::head);
  const double states = state * ((a.initial_state ? 1 : 0) + (a.final_state ? 1 : 0));
  if (pass == Pass::forward) return (2 * q + 2 * v) * element + decay + states;
  return (4 * q + 3 * v) * element + 2 * decay + states + (a.initial_state ? state : 0);
}

double gemm_flops(const Gemm& g) {
  if (g.alpha == 0) return 0;
  return 2 * static_cast<double>(g.batch) * static_cast<double>(g.m) * static_cast<double>(rows_of_b(g)) *
         static_cast<double>(g.k);
}

double gemm_bytes_like_d(const Gemm& g) {
  const auto of_d = static_cast<double>(size_of(dtype_of_d(g)));
  const double of_c = g.beta != 0 ? static_cast<double>(size_of(dtype_of_c(g))) : 0;
  const double elements = static_cast<double>(g.batch) * static_cast<double>(g.m) * static_cast<double>(g.n);
  return elements * (of_d + of_c + (g.residual ? of_d : 0));
}

double gemm_bytes(const Gemm& g, bool shared_b) {
  const double rows_of_a = static_cast<double>(g.batch) * static_cast<double>(g.m);
  const double rows =
      static_cast<double>(shared_b ? std::min<std::int64_t>(g.batch, 1) : g.batch) * static_cast<double>(rows_of_b(g));
  const double row = g.alpha != 0 ? static_cast<double>(g.k) * static_cast<double>(size_of(g.dtype)) : 0;
  return (rows_of_a + rows) * row + gemm_bytes_like_d(g);
}

double norm_bytes(const Norm& n) {
  const auto of_residual = static_cast<double>(size_of(dtype_of_residual(n)));
  const double an_element = static_cast<double>(size_of(n.dtype) + size_of(dtype_of_y(n))) +
                            of_residual * ((n.residual ? 1 : 0) + (n.residual_out ? 1 : 0));
  const double rows = static_cast<double>(n.rows), d = static_cast<double>(n.d);
  const double factors = static_cast<double>(size_of(n.dtype)) * d * ((n.weight ? 1 : 0) + (n.bias ? 1 : 0));
  return rows * (d * an_element + 4 * ((n.mean ? 1 : 0) + (n.rstd ? 1 : 0))) + factors;
}

double norm_backward_bytes(const Norm& n) {
  const std::int64_t of_x = size_of(n.dtype) * (ref::wants_grad_x(n) ? 2 : 1);
  const std::int64_t of_residual = n.residual_out ? size_of(dtype_of_residual(n)) : 0;
  const int factors = (n.weight ? 1 : 0) + (ref::wants_grad_weight(n) ? 1 : 0) + (n.bias ? 1 : 0);
  const double rows = static_cast<double>(n.rows), d = static_cast<double>(n.d);
  return d * (rows * static_cast<double>(of_x + size_of(dtype_of_y(n)) + of_residual) +
              static_cast<double>(size_of(n.dtype) * factors));
}

double quantise_bytes(const Quantise& q) {
  const double heads = static_cast<double>(q.b) * static_cast<double>(q.h), d = static_cast<double>(q.d);
  const double numbers = heads * static_cast<double>(q.s) * d;
  return numbers * static_cast<double>(size_of(q.dtype) + size_of(q.dtype_y)) +
         4 * heads * (static_cast<double>(blocks_of(q)) + (q.smooth ? d : 0));
}

}  // namespace falchion
