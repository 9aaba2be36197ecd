// src/gpu/linear_attention_sweep.cuh: linear attention as sweeps over the tokens: the forward pass is one, the backward
// pass is three with the roles exchanged.
#pragma once

#include <utility>

#include "args/gpu_linear_attention_args.hpp"
#include "gpu/linear_attention_columns.hpp"

namespace falchion::gpu {

/// A normaliser n beside a sweep: P_ts = fade (a_t b_s q_t . k_s + alpha_t beta_s), where of a and b one is 1 / n and
/// the other 1; where a gradient passes through n, of alpha and beta one is dn and the other 1, else they are 0.
struct LinearNormaliser {
  enum class Of { none, q, k };
  Of of = Of::none;
  const float* inverse = nullptr;   // (tokens, h_v) 1 / n
  const float* others = nullptr;    // (tokens, h_v) the part of n that is not the token's own: 1 - scale q . k / n
  const float* dots = nullptr;      // (tiles, tokens, h_v) parts of o . do without the token's own v; null: no gradient
  const float* own_dots = nullptr;  // (tiles, tokens, h_v) parts of v . do
  int tiles = 0;
  std::int64_t tokens = 0;  // that there are, of all sequences

  __device__ __forceinline__ bool any() const { return of != Of::none; }

  /// dn = -(o . do) / n, and do . (v - o) / n: what a token's own k counts for in its dq, and its q in its dk. Where o
  /// is nearly v the difference itself would be lost; here both of its terms are as small as it is.
  struct OfToken {
    float dn, own;
  };
  __device__ __forceinline__ OfToken of_token(std::int64_t at, int heads) const {
    float dot = 0, own_dot = 0;
    for (int tile = 0; tile < tiles; ++tile) {
      const std::int64_t part = tile * tokens * heads + at;
      dot += dots[part], own_dot += own_dots[part];
    }
    const float rest = others[at];
    return {-(dot + (1 - rest) * own_dot) * inverse[at], (rest * own_dot - dot) * inverse[at]};
  }
};

/// o_j = scale phi(q_j)^T S_j, S_j = e^(g_j) S_(j-1) + phi(k_j) phi(v_j)^T: one use of the operator, in the letters of
/// its own q, k, v, o. A head of the grid is head h / shared of a tensor.
struct LinearSweep {
  struct Rows16 {
    View x;
    int shared = 1;
    bool phi = false;
  };
  Rows16 q, k, v, o;
  View slope;           // o is multiplied by phi'(slope); null: it is not
  View decay;           // as LinearAttentionCall's; null: none
  View initial, final;  // (b, h, E, M) in this sweep's letters, f32; null: 0, not wanted
  View initial_z, final_z;
  int d_qk = 0, d_v = 0;
  bool reverse = false;
  float scale = 1, initial_scale = 1, final_scale = 1, eps = 0;

  // Of the exact rows alone (linear_attention_exact.cuh).
  int d_z = 0;               // of z
  bool decay_moved = false;  // a token fades by what the token before it in this sweep has as its decay
  bool partial = false;      // o is f32
  bool others_only = false;  // a token's o is without its own v
  LinearNormaliser normaliser;
  View dot_with;                               // o is not written: its products with these rows are, and v's
  float *dots = nullptr, *own_dots = nullptr;  // (column tiles, tokens, h_v)
  View tail_with, tail_with_z;  // (b, h, E, M), what the state without the last token's own part is multiplied by,
  float* tails = nullptr;       // element by element, and summed: (b, h_v, column tiles)
};

struct LinearSweeps {
  LinearSweep sweep[3];
  int count = 1, column_tiles = 1;  // the latter of the sweep that has most
};

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

}  // namespace falchion::gpu
