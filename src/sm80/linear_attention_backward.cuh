// src/sm80/linear_attention_backward.cuh: linear attention, backward: the same operator three times with the roles
// exchanged (arXiv:2006.16236, equations 13 to 15), side by side in one grid, so that they share what the L2 holds:
//   dQ = forward of (dO, V, K),   dK = backward in time of (V, dO, Q),   dV = backward in time of (K, Q, dO)
#pragma once

#include "sm80/linear_attention_chunks.cuh"
#include "sm80/linear_attention_launch.cuh"

namespace falchion::sm80 {

inline View swapped(View x) {
  std::swap(x.stride[2], x.stride[3]);
  return x;
}

inline LinearSweeps backward_sweeps(const LinearAttentionArgs& a) {
  using Rows16 = LinearSweep::Rows16;
  const Rows16 q{a.q, 1, a.elu}, k{a.k, 1, a.elu}, v{a.v}, grad_o{a.grad_o};
  const int e = static_cast<int>(a.d_qk), m = static_cast<int>(a.d_v);
  LinearSweeps all;
  all.count = 3, all.column_tiles = linear_column_tiles(a, true);
  auto& [for_q, for_k, for_v] = all.sweep;
  for_q.q = grad_o, for_q.k = v, for_q.v = k, for_q.o = {a.grad_q};
  for_q.initial = swapped(a.initial_state);
  for_k.q = v, for_k.k = grad_o, for_k.v = q, for_k.o = {a.grad_k};
  for_k.initial = swapped(a.grad_final_state);
  for_v.q = k, for_v.k = q, for_v.v = grad_o, for_v.o = {a.grad_v};
  for_v.initial = a.grad_final_state, for_v.final = a.grad_initial_state;
  for_q.d_qk = for_k.d_qk = m, for_q.d_v = for_k.d_v = e, for_v.d_qk = e, for_v.d_v = m;
  if (a.elu) for_q.slope = a.q, for_k.slope = a.k;
  for (LinearSweep& sweep : all.sweep) sweep.scale = a.scale, sweep.reverse = a.reverse;
  for (LinearSweep* sweep : {&for_k, &for_v}) {  // R = sum of q dO^T, from the last token on; dO has no scale yet
    sweep->reverse = !a.reverse;
    sweep->initial_scale = 1 / a.scale, sweep->final_scale = a.scale;
  }
  return all;
}

template <class Element, int kD, LinearLevel level>
constexpr gpu::LinearAttentionKernel linear_attention_backward() {
  using Config = LinearAttentionConfig<Element, kD, level>;
  return linear_attention_row<Config>(
      [](const LinearAttentionArgs& a, void* stream) {
        return launch_linear_attention<LinearChunks<Config>>(a, backward_sweeps(a), stream);
      },
      3);
}

}  // namespace falchion::sm80
