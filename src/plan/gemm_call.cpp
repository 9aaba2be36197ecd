// src/plan/gemm_call.cpp: see gemm_call.hpp.
#include "plan/gemm_call.hpp"

#include <cstdint>

#include "plan/gemm.hpp"
#include "plan/launch.hpp"

namespace falchion {
namespace {

static_assert(static_cast<int>(GemmActivation::none) == static_cast<int>(Activation::none) &&
                  static_cast<int>(GemmActivation::relu) == static_cast<int>(Activation::relu) &&
                  static_cast<int>(GemmActivation::gelu_tanh) == static_cast<int>(Activation::gelu_tanh) &&
                  static_cast<int>(GemmActivation::gelu_erf) == static_cast<int>(Activation::gelu_erf) &&
                  static_cast<int>(GemmActivation::silu) == static_cast<int>(Activation::silu) &&
                  static_cast<int>(GemmActivation::swiglu) == static_cast<int>(Activation::swiglu),
              "what kernels see is the public enum");

/// Sets the operands that the call reads and writes. Without a product, a and b may be null and have any strides.
void attach(const Gemm& g, const GemmOperands& x, GemmCall* call) {
  call->k1 = x.a.shape[3];
  call->n1 = x.d.shape[3];
  if (call->k > 0) {
    call->a = view_of(x.a);
    call->b = view_of(x.b);
    if (g.scaling != Scaling::none) {
      call->scale_a = view_of(x.scale_a);
      call->scale_b = view_of(x.scale_b);
    }
  }
  call->d = view_of(x.d);
  if (g.beta != 0) call->c = view_of(x.c);
  if (g.residual) call->residual = view_of(x.residual);
  if (g.bias_n) call->bias_n = view_of(x.bias_n);
  if (g.bias_m) call->bias_m = view_of(x.bias_m);
  call->bias_n_f32 = x.bias_n.dtype == DType::f32;
  call->bias_m_f32 = x.bias_m.dtype == DType::f32;
}

/// Whether the batch is rows of one matrix in every operand with rows: then those of an entry follow the previous
/// one's.
bool is_one_matrix(const GemmCall& call) {
  const auto follows = [&](const View& x) {
    return x.data == nullptr || call.m == 1 || x.stride[0] == call.m * x.stride[1];
  };
  return call.batch > 1 && call.b.stride[0] == 0 && call.scale_b.stride[0] == 0 && follows(call.a) && follows(call.c) &&
         follows(call.d) && follows(call.residual) && follows(call.bias_m) && follows(call.scale_a);
}

}  // namespace

Gemm merged(Gemm g) {
  g.m *= g.batch;
  g.batch = 1;
  return g;
}

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
  call->half_f16 = dtype_of_d(g) == DType::f16;
  call->d_i32 = dtype_of_d(g) == DType::i32;
  call->block_scales = g.scaling == Scaling::block128 && call->k > 0;
}

bool set_call(const Gemm& g, const GemmOperands& x, GemmCall* call) noexcept {
  set_sizes(g, call);
  attach(g, x, call);
  if (!is_one_matrix(*call)) return false;
  set_sizes(merged(g), call);
  for (View* view : {&call->a, &call->c, &call->d, &call->residual, &call->bias_m, &call->scale_a})
    if (g.m == 1) view->stride[1] = view->stride[0];
  return true;
}

}  // namespace falchion
