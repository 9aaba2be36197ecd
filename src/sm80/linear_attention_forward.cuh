// src/sm80/linear_attention_forward.cuh: linear attention, forward: one sweep over the tokens.
#pragma once

#include "sm80/linear_attention_chunks.cuh"
#include "sm80/linear_attention_launch.cuh"

namespace falchion::sm80 {

inline LinearSweeps forward_sweeps(const LinearAttentionArgs& a) {
  LinearSweeps all;
  LinearSweep& sweep = all.sweep[0];
  const int shared = static_cast<int>(a.h_v / a.h_qk);
  sweep.q = {a.q, shared, a.elu}, sweep.k = {a.k, shared, a.elu}, sweep.v = {a.v}, sweep.o = {a.o};
  sweep.decay = a.decay;
  sweep.initial = a.initial_state, sweep.final = a.final_state;
  sweep.initial_z = a.initial_z, sweep.final_z = a.final_z;
  sweep.d_qk = static_cast<int>(a.d_qk), sweep.d_v = static_cast<int>(a.d_v);
  sweep.d_z = a.normalise ? sweep.d_qk : 0;
  sweep.reverse = a.reverse, sweep.scale = a.scale, sweep.eps = a.eps;
  all.column_tiles = linear_column_tiles(a, false);
  return all;
}

template <class Element, int kD, LinearLevel level>
constexpr gpu::LinearAttentionKernel linear_attention_forward() {
  using Config = LinearAttentionConfig<Element, kD, level>;
  return linear_attention_row<Config>(
      [](const LinearAttentionArgs& a, void* stream) {
        return launch_linear_attention<LinearChunks<Config>>(a, forward_sweeps(a), stream);
      },
      1);
}

}  // namespace falchion::sm80
