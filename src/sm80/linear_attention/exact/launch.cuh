// src/sm80/linear_attention/exact/launch.cuh: the launches of the variants that keep f32 between all products: first 1
// / n of each token if there is a normaliser, then the sweeps, and after the sweeps of the backward pass the kernels
// that gather their parts.
#pragma once

#include "sm80/linear_attention/backward.cuh"
#include "sm80/linear_attention/exact/gradients.cuh"
#include "sm80/linear_attention/exact/kernel.cuh"
#include "sm80/linear_attention/exact/normaliser.cuh"
#include "sm80/linear_attention/forward.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Returns the normaliser of a sweep. of: which side of this sweep, its q or its k, has the tokens that were q in the
/// forward pass, because n belongs to those. gradient: whether a gradient passes through n.
inline LinearNormaliser beside(LinearNormaliser::Of of, const LinearExactMemory& m, bool gradient) {
  if (m.inverse == nullptr) return {};
  LinearNormaliser n{.of = of, .inverse = m.inverse, .tiles = m.value_tiles, .tokens = m.tokens};
  if (gradient) {
    n.others = m.others;
    n.dots = m.dots;
    n.own_dots = m.own_dots;
  }
  return n;
}

/// Computes 1 / n, then launches one sweep. If sweep.dots is set, the products of o with do are stored instead of o.
template <class Config>
int launch_exact_forward(const LinearAttentionArgs& a, const LinearExactMemory& m, LinearSweeps sweeps, void* stream) {
  LinearSweep& sweep = sweeps.sweep[0];
  if constexpr (Config::kGeneral) {
    cudaError_t error = cudaSuccess;
    if (a.normalise)
      error = launch_linear_normalisers<typename Config::Element>(a, sweep, m.pieces, m.inverse, m.others, stream);
    if (error != cudaSuccess) return error;
  }
  sweep.normaliser = beside(LinearNormaliser::Of::q, m, false);
  sweep.initial_z = sweep.final_z = View{};
  sweep.d_z = 0;
  LinearAttentionArgs own = a;
  own.states = m.states;
  return launch_linear_attention<LinearExactChunks<Config>>(own, sweeps, stream);
}

/// The three backward sweeps, with the additions for decay, normaliser and shared heads.
inline LinearSweeps exact_backward_sweeps(const LinearAttentionArgs& a, const LinearExactMemory& m) {
  using Of = LinearNormaliser::Of;
  LinearSweeps all = backward_sweeps(a);
  auto& [for_q, for_k, for_v] = all.sweep;
  const int shared = static_cast<int>(a.h_v / a.h_qk), e = static_cast<int>(a.d_qk);
  for_q.v.shared = for_k.v.shared = for_v.q.shared = for_v.k.shared = shared;
  for (LinearSweep& sweep : all.sweep) {
    sweep.decay = a.decay;
    sweep.decay_moved = &sweep != &for_q;
  }
  for_q.normaliser = beside(Of::q, m, true);
  for_k.normaliser = beside(Of::k, m, true);
  for_v.normaliser = beside(Of::k, m, false);
  if (a.normalise) {
    for_q.d_z = for_k.d_z = e;
    for_q.initial_z = a.initial_z;
    for_k.initial_z = a.grad_final_z;
    for_k.final_z = a.grad_initial_z;
  }
  if (m.partials.tails != nullptr) {
    for_q.tails = m.partials.tails;
    for_q.tail_with = swapped(a.grad_final_state);
    for_q.tail_with_z = a.grad_final_z;
  }
  for_q.others_only = for_k.others_only = own_parts_are_added(a);
  if (m.partials.q == nullptr) return all;
  const std::int64_t row = a.h_v * a.d_qk;
  for (LinearSweep* sweep : {&for_q, &for_k}) {
    sweep->partial = true;
    sweep->slope = View{};
    sweep->o = {{sweep == &for_q ? m.partials.q : m.partials.k, {a.packed ? 0 : a.s * row, row, a.d_qk, 1}}};
  }
  return all;
}

template <class Config>
int launch_exact_backward(const LinearAttentionArgs& a, void* stream) {
  const LinearExactMemory m = LinearExactMemory::make(a, true);
  LinearAttentionArgs own = a;
  own.states = m.states;
  if (Config::kGeneral && a.normalise) {
    LinearSweeps forward = forward_sweeps(a);
    LinearSweep& sweep = forward.sweep[0];
    sweep.dot_with = a.grad_o;
    sweep.dots = m.dots;
    sweep.own_dots = m.own_dots;
    sweep.others_only = true;
    sweep.final = sweep.final_z = View{};
    if (const int error = launch_exact_forward<Config>(a, m, forward, stream); error != cudaSuccess) return error;
  }
  const int error = launch_linear_attention<LinearExactChunks<Config>>(own, exact_backward_sweeps(a, m), stream);
  if constexpr (Config::kGeneral) {
    const LinearNormaliser n = beside(LinearNormaliser::Of::q, m, true);
    if (error == cudaSuccess)
      return launch_linear_gradients<typename Config::Element>(a, m.partials, n, m.tokens, stream);
  }
  return error;
}

template <class Config, bool kBackward>
constexpr gpu::LinearAttentionKernel linear_attention_exact_kernel_of() {
  return linear_attention_kernel_of<Config>(
      [](const LinearAttentionArgs& a, void* stream) -> int {
        if constexpr (kBackward) return launch_exact_backward<Config>(a, stream);
        return launch_exact_forward<Config>(a, LinearExactMemory::make(a, false), forward_sweeps(a), stream);
      },
      kBackward ? 3 : 1);
}

}  // namespace falchion::sm80
