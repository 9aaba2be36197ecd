// tests/support/to_c.hpp: problems and operands as the structs of the C API, for its tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fields.hpp"
#include "falchion/falchion.h"
#include "falchion/falchion.hpp"

namespace falchion::testing {

inline fal_tensor to_c(const Tensor& x) {
  fal_tensor out = {};
  out.data = x.data;
  out.dtype = static_cast<std::int32_t>(x.dtype);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    out.shape[axis] = x.shape[axis];
    out.stride[axis] = x.stride[axis];
  }
  return out;
}
inline fal_operands to_c(const Operands& x) {
  fal_operands out = {};
  out.size = sizeof out;
#define FALCHION_OPERAND(name, ...) out.name = to_c(x.name);
#define FALCHION_LENGTHS(key, ...) out.key = x.key;
#include "base/fields.def"
  out.cu_seqlens_q = x.cu_seqlens_q;
  out.cu_seqlens_k = x.cu_seqlens_k;
  out.rng = {x.rng.seed, x.rng.offset, x.rng.at, 0};
  const Rng::Origin& origin = x.rng.origin;
  out.origin = {origin.b, origin.h, origin.i, origin.j, origin.h_q};
  out.page_starts = x.page_starts;
  return out;
}
inline fal_attention to_c(const Attention& x) {
  fal_attention out = {};
  out.size = sizeof out;
  const auto set = [&x](auto& to) {  // under its own name, or in the same struct as in C++
#define FALCHION_ANY_FIELD(kind, key, member, option, text) \
  if constexpr (requires { to.member; }) {                  \
    to.member = static_cast<decltype(to.member)>(x.member); \
  } else {                                                  \
    to.key = static_cast<decltype(to.key)>(x.member);       \
  }
#define FALCHION_LENGTHS(key, ...) to.key = x.key;
#include "base/fields.def"
  };
  set(out);
  return out;
}

inline fal_linear_operands to_c(const LinearOperands& x) {
  fal_linear_operands out = {};
  out.size = sizeof out;
  out.q = to_c(x.q);
  out.k = to_c(x.k);
  out.v = to_c(x.v);
  out.o = to_c(x.o);
  out.decay = to_c(x.decay);
  out.initial_state = to_c(x.initial_state);
  out.final_state = to_c(x.final_state);
  out.initial_z = to_c(x.initial_z);
  out.final_z = to_c(x.final_z);
  out.cu_seqlens = x.cu_seqlens;
  out.grad_o = to_c(x.grad_o);
  out.grad_final_state = to_c(x.grad_final_state);
  out.grad_final_z = to_c(x.grad_final_z);
  out.grad_q = to_c(x.grad_q);
  out.grad_k = to_c(x.grad_k);
  out.grad_v = to_c(x.grad_v);
  out.grad_decay = to_c(x.grad_decay);
  out.grad_initial_state = to_c(x.grad_initial_state);
  out.grad_initial_z = to_c(x.grad_initial_z);
  return out;
}
inline fal_linear_attention to_c(const LinearAttention& x) {
  fal_linear_attention out = fal_linear_attention_init();
  out.dtype = static_cast<std::int32_t>(x.dtype);
  out.b = x.b;
  out.s = x.s;
  out.h_qk = x.h_qk;
  out.h_v = x.h_v;
  out.d_qk = x.d_qk;
  out.d_v = x.d_v;
  out.scale = x.scale;
  out.eps = x.eps;
  out.feature_map = static_cast<std::int32_t>(x.feature_map);
  out.decay = static_cast<std::int32_t>(x.decay);
  out.normalise = x.normalise;
  out.reverse = x.reverse;
  out.packed = x.packed;
  out.initial_state = x.initial_state;
  out.final_state = x.final_state;
  return out;
}

inline fal_gemm_operands to_c(const GemmOperands& x) {
  fal_gemm_operands out = {};
  out.size = sizeof out;
  out.a = to_c(x.a);
  out.b = to_c(x.b);
  out.c = to_c(x.c);
  out.d = to_c(x.d);
  out.residual = to_c(x.residual);
  out.bias_n = to_c(x.bias_n);
  out.bias_m = to_c(x.bias_m);
  out.scale_a = to_c(x.scale_a);
  out.scale_b = to_c(x.scale_b);
  return out;
}
inline fal_gemm to_c(const Gemm& x) {
  fal_gemm out = fal_gemm_init();
  out.dtype = static_cast<std::int32_t>(x.dtype);
  out.dtype_b = static_cast<std::int32_t>(x.dtype_b);
  out.dtype_c = static_cast<std::int32_t>(x.dtype_c);
  out.dtype_d = static_cast<std::int32_t>(x.dtype_d);
  out.batch = x.batch;
  out.m = x.m;
  out.n = x.n;
  out.k = x.k;
  out.alpha = x.alpha;
  out.beta = x.beta;
  out.activation = static_cast<std::int32_t>(x.activation);
  out.bias_n = x.bias_n;
  out.bias_m = x.bias_m;
  out.residual = x.residual;
  out.scaling = static_cast<std::uint8_t>(x.scaling);
  return out;
}

}  // namespace falchion::testing
