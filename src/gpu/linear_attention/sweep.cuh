// src/gpu/linear_attention/sweep.cuh: describes linear attention as sweeps over the tokens. The forward pass is one
// sweep; the backward pass is three sweeps with the roles of the tensors exchanged.
#pragma once

#include <utility>

#include "args/gpu_linear_attention_args.hpp"
#include "base/host_device.hpp"
#include "tiles/linear_attention/columns.hpp"

namespace falchion::gpu {

/// The normaliser n of a sweep, whose P is then P_ts = fade (a_t b_s q_t . k_s + alpha_t beta_s). One of a and b is 1 /
/// n and the other is 1. Where a gradient passes through n, one of alpha and beta is dn and the other is 1; otherwise
/// both are 0.
struct LinearNormaliser {
  enum class Of { none, q, k };
  Of of = Of::none;
  const float* inverse = nullptr;   // (tokens, h_v) 1 / n
  const float* others = nullptr;    // (tokens, h_v) the share of n that is not the token's own: 1 - scale q . k / n
  const float* dots = nullptr;      // (tiles, tokens, h_v) parts of o . do without the token's own v; null: no gradient
  const float* own_dots = nullptr;  // (tiles, tokens, h_v) parts of v . do
  int tiles = 0;
  std::int64_t tokens = 0;  // tokens of all sequences together

  FALCHION_DEVICE bool any() const { return of != Of::none; }

  /// dn is -(o . do) / n, and own is do . (v - o) / n, the weight of a token's own k in its dq and of its own q in its
  /// dk. Where o is nearly v, the difference v - o would be lost in rounding, so own is computed as the difference of
  /// two terms of its own magnitude.
  struct OfToken {
    float dn, own;
  };
  FALCHION_DEVICE OfToken of_token(std::int64_t at, int heads) const {
    float dot = 0, own_dot = 0;
    for (int tile = 0; tile < tiles; ++tile) {
      const std::int64_t part = tile * tokens * heads + at;
      dot += dots[part];
      own_dot += own_dots[part];
    }
    const float rest = others[at];
    return {-(dot + (1 - rest) * own_dot) * inverse[at], (rest * own_dot - dot) * inverse[at]};
  }
};

/// One use of the operator o_j = scale phi(q_j)^T S_j with S_j = e^(g_j) S_(j-1) + phi(k_j) phi(v_j)^T. The letters are
/// those of its own q, k, v and o. Head h of the grid is head h / shared of a tensor.
struct LinearSweep {
  struct Rows16 {
    View x;
    int shared = 1;
    bool phi = false;
  };
  Rows16 q, k, v, o;
  View slope;           // o is multiplied by phi'(slope); null: it is not
  View decay;           // as in LinearAttentionCall; null: no decay
  View initial, final;  // (b, h, E, M) in this sweep's letters, f32; null: initial is 0, no final state is stored
  View initial_z, final_z;
  int d_qk = 0, d_v = 0;
  bool reverse = false;
  float scale = 1, initial_scale = 1, final_scale = 1, eps = 0;

  // The fields below, except d_z, are used only by variants with f32 between all products
  // (sm80/linear_attention/exact/kernel.cuh).
  int d_z = 0;               // length of z; 0 where there is none
  bool decay_moved = false;  // the decay of a token is that of the token before it in this sweep
  bool partial = false;      // o is in f32, and is summed later
  bool others_only = false;  // o of a token leaves out its own v
  LinearNormaliser normaliser;
  // If dots is set, o is not written. Instead the dot products of o with the rows of dot_with are written to dots, and
  // those of v to own_dots, both (column tiles, tokens, h_v).
  View dot_with;
  float *dots = nullptr, *own_dots = nullptr;
  // The final state, without the last token's own part, is multiplied by tail_with (b, h, E, M) and tail_with_z element
  // by element. The sums of these products are stored in tails (b, h_v, column tiles).
  View tail_with, tail_with_z;
  float* tails = nullptr;
};

struct LinearSweeps {
  LinearSweep sweep[3];
  int count = 1, column_tiles = 1;  // column_tiles is that of the sweep with the most columns
};

inline LinearSweeps forward_sweeps(const LinearAttentionArgs& a) {
  LinearSweeps all;
  LinearSweep& sweep = all.sweep[0];
  const int shared = static_cast<int>(a.h_v / a.h_qk);
  sweep.q = {a.q, shared, a.elu};
  sweep.k = {a.k, shared, a.elu};
  sweep.v = {a.v};
  sweep.o = {a.o};
  sweep.decay = a.decay;
  sweep.initial = a.initial_state;
  sweep.final = a.final_state;
  sweep.initial_z = a.initial_z;
  sweep.final_z = a.final_z;
  sweep.d_qk = static_cast<int>(a.d_qk);
  sweep.d_v = static_cast<int>(a.d_v);
  sweep.d_z = a.normalise ? sweep.d_qk : 0;
  sweep.reverse = a.reverse;
  sweep.scale = a.scale;
  sweep.eps = a.eps;
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
  all.count = 3;
  all.column_tiles = linear_column_tiles(a, true);
  auto& [for_q, for_k, for_v] = all.sweep;
  for_q.q = grad_o;
  for_q.k = v;
  for_q.v = k;
  for_q.o = {a.grad_q};
  for_q.initial = swapped(a.initial_state);
  for_k.q = v;
  for_k.k = grad_o;
  for_k.v = q;
  for_k.o = {a.grad_k};
  for_k.initial = swapped(a.grad_final_state);
  for_v.q = k;
  for_v.k = q;
  for_v.v = grad_o;
  for_v.o = {a.grad_v};
  for_v.initial = a.grad_final_state;
  for_v.final = a.grad_initial_state;
  for_q.d_qk = for_k.d_qk = m;
  for_q.d_v = for_k.d_v = e;
  for_v.d_qk = e;
  for_v.d_v = m;
  if (a.elu) {
    for_q.slope = a.q;
    for_k.slope = a.k;
  }
  for (LinearSweep& sweep : all.sweep) {
    sweep.scale = a.scale;
    sweep.reverse = a.reverse;
  }
  // These two carry R = sum of q dO^T, from the last token on, without the scale. So R is divided by the scale where it
  // enters and multiplied by it where it leaves.
  for (LinearSweep* sweep : {&for_k, &for_v}) {
    sweep->reverse = !a.reverse;
    sweep->initial_scale = 1 / a.scale;
    sweep->final_scale = a.scale;
  }
  return all;
}

}  // namespace falchion::gpu
