// src/api/problem_fields.hpp: the fields of a problem's line, and how a value is written. The writer and the parser use
// the same table.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "api/problem_line.hpp"
#include "base/names.hpp"

namespace falchion::line {

// --- A value and its text ------------------------------------------------------------------------------------------
inline std::string write(const std::string& x) { return x; }
inline std::string write(bool x) { return x ? "1" : "0"; }
inline std::string write(float x) {
  char digits[32];  // as many as it takes to read the same number
  return {digits, std::to_chars(digits, digits + sizeof digits, x).ptr};
}
template <class T>
requires std::is_integral_v<T> std::string write(T x) { return std::to_string(x); }
inline std::string write(DType x) { return name(x); }
inline std::string write(Backend x) { return name(x); }
inline std::string write(Align x) { return name(x); }
inline std::string write(FeatureMap x) { return x == FeatureMap::identity ? "identity" : "elu"; }
inline std::string write(Grads x) { return x == Grads::rounded ? "rounded" : x == Grads::f32 ? "f32" : "accumulate"; }
inline std::string write(Activation x) { return name(x); }
inline std::string write(NormKind x) { return name(x); }
inline std::string write(Scaling x) { return name(x); }
inline std::string write(Decay x) { return x == Decay::none ? "none" : x == Decay::head ? "head" : "token"; }
inline std::string write(const Broadcast& x) { return std::to_string(x.one); }
template <class T>
inline std::string write(const std::vector<T>& list) {
  std::string out;
  for (const T& x : list) out += (out.empty() ? "" : ",") + write(x);
  return out;
}

// --- The fields ----------------------------------------------------------------------------------------------------
/// The line's other keys after a field of attention's problem: operands of a run, and how their numbers are drawn.
template <class Any, class F>
void beside(Any& p, std::string_view key, const F& f) {
  if (key == "dropout") {
    f("dropout_seed", p.seed);
    f("dropout_offset", p.offset);
    f("rng_at", p.rng_in_memory);
    f("origin_b", p.origin.b);
    f("origin_h", p.origin.h);
    f("origin_i", p.origin.i);
    f("origin_j", p.origin.j);
    f("origin_h_q", p.origin.h_q);
  } else if (key == "alibi") {
    f("alibi_by_batch", p.slopes_by_batch);
  } else if (key == "bias") {
    f("bias_dtype", p.bias_dtype);
    f("bias_ones", p.bias);
    f("bias_data", p.data.bias);
  } else if (key == "mask") {
    f("mask_ones", p.mask);
    f("mask_data", p.data.mask);
  } else if (key == "grad_bias") {
    f("grad_bias_ones", p.grad_bias);
  } else if (key == "grad_alibi") {
    f("grad_alibi_by_batch", p.grad_alibi_by_batch);
  } else if (key == "sinks") {
    f("sinks_by_batch", p.sinks_by_batch);
  } else if (key == "grad_sinks") {
    f("grad_sinks_by_batch", p.grad_sinks_by_batch);
  } else if (key == "packed") {
    f("lengths_q", p.lengths_q);
    f("lengths_k", p.lengths_k);
  } else if (key == "page_size") {
    f("pages", p.pages);
    f("page_count", p.page_count);
    f("page_columns", p.page_columns);
    f("page_starts", p.page_starts);
  } else if (key == "k_scale") {
    f("k_scale_ones", p.k_scale);
  } else if (key == "v_scale") {
    f("v_scale_ones", p.v_scale);
  } else if (key == "q_scale") {
    f("q_scale_ones", p.q_scale);
  } else if (key == "rotary_dim") {
    f("positions", p.positions);
  }
}

template <class Any, class F>
void attention_fields(Any& p, const F& f) {
  const bool forward = p.pass() == Pass::forward;
  const auto field = [&](const char* key, auto& x) {
    f(key, x);
    beside(p, key, f);
  };
#define FALCHION_FIELD(kind, key, member, option, text) field(#key, p.attention.member);
#define FALCHION_FORWARD_FIELD(kind, key, member, option, text) \
  if (forward) field(#key, p.attention.member);
#define FALCHION_BACKWARD_FIELD(kind, key, member, option, text) \
  if (!forward) field(#key, p.attention.member);
#define FALCHION_CACHE_FIELD FALCHION_FORWARD_FIELD
#define FALCHION_LENGTHS(key, side, usual, has, option, text) \
  f(#has, p.attention.key);                                   \
  f(#key, p.key);
#include "base/fields.def"
  if (forward) return;
  f("amount_grad", p.data.grad);
  f("state", p.data.state);
}

template <class Any, class F>
void linear_fields(Any& p, const F& f) {
  auto& a = p.linear;
  f("dtype", a.dtype);
  f("b", a.b);
  f("s", a.s);
  f("h_qk", a.h_qk);
  f("h_v", a.h_v);
  f("d_qk", a.d_qk);
  f("d_v", a.d_v);
  f("scale", a.scale);
  f("feature_map", a.feature_map);
  f("decay", a.decay);
  f("decay_data", p.data.decay);
  f("normalise", a.normalise);
  f("eps", a.eps);
  f("reverse", a.reverse);
  f("packed", a.packed);
  f("lengths", p.lengths_q);
  f("initial_state", a.initial_state);
  f("final_state", a.final_state);
  f("in_place", p.in_place);
  f("segments", p.segments);
}

template <class Any, class F>
void gemm_fields(Any& p, const F& f) {
  auto& g = p.gemm;
  f("dtype", g.dtype);
  f("dtype_c", g.dtype_c);
  f("dtype_d", g.dtype_d);
  f("batch", g.batch);
  f("m", g.m);
  f("n", g.n);
  f("k", g.k);
  f("k2", p.k2);
  f("n2", p.n2);
  f("shared_b", p.shared_b);
  f("alpha", g.alpha);
  f("beta", g.beta);
  f("activation", g.activation);
  f("bias_n", g.bias_n);
  f("bias_m", g.bias_m);
  f("bias_dtype", p.bias_dtype);
  f("residual", g.residual);
  f("scaling", g.scaling);
  f("in_place", p.in_place);
}

template <class Any, class F>
void norm_fields(Any& p, const F& f) {
  auto& n = p.norm;
  f("dtype", n.dtype);
  f("dtype_y", n.dtype_y);
  f("dtype_residual", n.dtype_residual);
  f("kind", n.kind);
  f("rows", n.rows);
  f("d", n.d);
  f("s", p.s);
  f("h", p.h);
  f("eps", n.eps);
  f("zero_centered", n.zero_centered);
  f("weight", n.weight);
  f("weight_dtype", p.weight_dtype);
  f("weight_ones", p.weight);
  f("bias", n.bias);
  f("bias_dtype", p.bias_dtype);
  f("bias_ones", p.bias);
  f("residual", n.residual);
  f("residual_out", n.residual_out);
  f("mean", n.mean);
  f("rstd", n.rstd);
  f("frozen", n.frozen);
  f("grad_weight_dtype", p.grad_weight_dtype);
  f("grad_bias_dtype", p.grad_bias_dtype);
  f("in_place", p.in_place);
}

template <class Any, class F>
void quantise_fields(Any& p, const F& f) {
  auto& q = p.quantise;
  f("dtype", q.dtype);
  f("dtype_y", q.dtype_y);
  f("b", q.b);
  f("s", q.s);
  f("h", q.h);
  f("d", q.d);
  f("rows", q.rows);
  f("scale_given", q.scale_given);
  f("scale_ones", p.k_scale);
  f("powers_of_two", q.powers_of_two);
  f("smooth", q.smooth);
  f("mean_given", q.mean_given);
  f("rotate", q.rotate);
}

/// f(key, field) for each field that the operation has; `any` is a Problem, const or not.
template <class Any, class F>
void for_each_field(Any& p, const F& f) {
  f("backend", p.backend);
  f("level", p.level);
  f("threads", p.threads);
  f("lent", p.lent);
  f("sms", p.sms);
  switch (p.kind()) {
    case Kind::attention: attention_fields(p, f); break;
    case Kind::linear: linear_fields(p, f); break;
    case Kind::gemm: gemm_fields(p, f); break;
    case Kind::norm: norm_fields(p, f); break;
    case Kind::quantise: quantise_fields(p, f); break;
  }
  f("spare", p.spare);
  f("data", p.data.seed);
  f("amount_q", p.data.q);
  f("amount_k", p.data.k);
  f("amount_v", p.data.v);
  f("scores", p.data.shape);
  f("plant", p.data.plant);
}

}  // namespace falchion::line
