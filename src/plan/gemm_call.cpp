// src/plan/gemm_call.cpp: see gemm_call.hpp.
#include "plan/gemm_call.hpp"

#include "plan/gemm.hpp"
#include "plan/launch.hpp"

namespace falchion {

void set_sizes(const Gemm& g, GemmCall* call) noexcept {
  call->batch = g.batch;
  call->m = g.m;
  call->n = g.n;
  call->k = g.alpha != 0 ? g.k : 0;
  call->alpha = g.alpha;
  call->beta = g.beta;
  call->activation = static_cast<GemmActivation>(g.activation);
  call->c_f32 = dtype_of_c(g) == DType::f32;
  call->d_f32 = dtype_of_d(g) == DType::f32;
}

void set_operands(const Gemm& g, const GemmOperands& x, GemmCall* call) noexcept {
  call->k1 = x.a.shape[3];
  call->n1 = x.d.shape[3];
  if (call->k > 0) {
    call->a = view_of(x.a);
    call->b = view_of(x.b);
  }
  call->d = view_of(x.d);
  if (g.beta != 0) call->c = view_of(x.c);
  if (g.residual) call->residual = view_of(x.residual);
  if (g.bias_n) call->bias_n = view_of(x.bias_n);
  if (g.bias_m) call->bias_m = view_of(x.bias_m);
  call->bias_n_f32 = x.bias_n.dtype == DType::f32;
  call->bias_m_f32 = x.bias_m.dtype == DType::f32;
}

}  // namespace falchion
