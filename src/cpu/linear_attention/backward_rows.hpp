// src/cpu/linear_attention/backward_rows.hpp: the memory of the backward sweeps of linear attention on the CPU: the
// rows of a chunk and their loads, the states of the heads, and the sums of the gradients. The sweeps themselves, and
// the letters, are in backward.hpp.
#pragma once

#include "cpu/linear_attention/gradient.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The memory of one worker. An item is a head of q and k with all value heads that share it. So one worker sums their
/// parts of dq and dk, always in the same order.
template <class T, class Products>
class LinearBackwardRows {
 public:
  LinearBackwardRows(const LinearAttentionArgs& a, Arena& arena)
      : a_(a), group_(a.h_v / a.h_qk), records_{a}, tokens_(a), chunk_(arena, max(a.d_qk, a.d_v + 1)) {
    for (Rows* x : {&q_, &k_}) *x = {Matrix::take(arena, kChunk, a.d_qk), a.d_qk};
    for (Rows* x : {&v_, &do_, &outer_}) *x = {Matrix::take(arena, kChunk, a.d_v + 1), a.d_v};
    for (float** x : {&factor_, &term_, &own_}) *x = arena.take<float>(kChunk);
    for (Matrix* x : {&out_, &sum_}) *x = Matrix::take(arena, kChunk, max(a.d_qk, a.d_v));
    turned_.m = Matrix::take(arena, a.d_qk, a.d_v);
    z_ = Matrix::take(arena, 2 * group_, a.d_qk);
    states_ = arena.take<State>(group_);
    for (std::int64_t j = 0; j < group_; ++j) {
      const Matrix m = Matrix::take(arena, a.d_v + 1, a.d_qk);
      if (states_ != nullptr) states_[j] = {m};
    }
  }

 protected:
  bool has_decay() const { return a_.decay.data != nullptr; }
  bool has_final() const { return has_decay() && a_.grad_final_state.data != nullptr; }
  float* own() const { return has_decay() ? own_ : nullptr; }

  // ---- the states ------------------------------------------------------------------------------------------------
  // These are S^T (d_v, d_qk), and R^T with r as an extra row. Only products with an extra column may touch that row,
  // so in the forward sweep z is kept apart, in z_.
  void start(const LinearItem& item, const View& s, const View& z) {
    for (std::int64_t j = 0; j < group_; ++j) {
      const StateRef ref = records_.start(item, item.head * group_ + j, s, z);
      ref.transposed().load(a_.d_v, a_.d_qk, &states_[j]);
      ref.load_z(a_.d_qk, states_[j].m.row(a_.d_v));
    }
  }
  void clear_state(State* state) const {
    StateRef{}.load(a_.d_v, a_.d_qk, state);
    StateRef{}.load_z(a_.d_qk, state->m.row(a_.d_v));
  }
  void store_state(const State& state, const StateRef& to) const {
    to.transposed().store(a_.d_v, a_.d_qk, state);
    if (a_.normalise) to.store_z(a_.d_qk, state.m.row(a_.d_v));
  }
  /// d(initial state) = e^(g_0) R_0. For an empty sequence it is d(final state).
  void store_initial(const LinearItem& item, const Walk& walk, std::int64_t h, State& state) {
    if (has_decay() && walk.count > 0 && !state.zero) {
      const float fade = static_cast<float>(::exp(decay_at(a_, walk, walk.count - 1, h)));
      for (std::int64_t r = 0; r <= a_.d_v; ++r) {
        for (std::int64_t c = 0; c < a_.d_qk; ++c) state.m.row(r)[c] *= fade;
      }
    }
    store_state(state, StateRef::of(a_.grad_initial_state, a_.grad_initial_z, item.b, h));
  }

  // ---- the rows of a chunk -----------------------------------------------------------------------------------------
  void clear(Matrix m, std::int64_t first, std::int64_t end) const {
    for (std::int64_t t = first; t < end; ++t) std::memset(m.row(t), 0, static_cast<std::size_t>(m.ld) * sizeof(float));
  }
  double start_chunk(const Walk& walk, std::int64_t i, std::int64_t n, std::int64_t h, int late) {
    const double sum = load_decay(a_, walk, i, n, h, late, f_);
    chunk_.start(has_decay(), f_, n);
    return sum;
  }
  bool plain() const { return !a_.elu && !a_.normalise && !has_decay(); }  // only the products read the inputs
  void load_keys(const Walk& walk, std::int64_t i, std::int64_t n, std::int64_t h) {
    if (plain()) {
      load_operand<T, Products>(a_.q, walk, i, n, h, &q_);
      load_operand<T, Products>(a_.k, walk, i, n, h, &k_);
    } else {
      load_rows<T, Products>(a_.q, walk, i, n, h, a_.elu, &q_);
      load_rows<T, Products>(a_.k, walk, i, n, h, a_.elu, &k_);
    }
  }
  void load_values(const View& x, const Walk& walk, std::int64_t i, std::int64_t n, std::int64_t h, Rows* out) {
    plain() ? load_operand<T, Products>(x, walk, i, n, h, out) : load_rows<T, Products>(x, walk, i, n, h, false, out);
  }
  void fetch(const View& x, const Walk& walk, std::int64_t i, std::int64_t h, std::int64_t width, bool to_write) {
    fetch_rows<T>(x, walk, i, kChunk, h, width, to_write, &chunk_.upcoming());
  }
  /// Prefetches what the worker needs after value head j of the group in chunk i.
  void fetch_next(const Walk& walk, std::int64_t i, std::int64_t head, std::int64_t j) {
    if (++j == group_) {
      j = 0;
      i += kChunk;
      fetch(a_.q, walk, i, head, a_.d_qk, false);
      fetch(a_.k, walk, i, head, a_.d_qk, false);
    }
    const std::int64_t h = head * group_ + j;
    fetch(a_.v, walk, i, h, a_.d_v, false);
    fetch(a_.grad_o, walk, i, h, a_.d_v, false);
  }
  /// x with an extra column, which holds 1 beside v and dn beside do.
  Rows with_column(Rows x) const {
    x.width = a_.d_v + (a_.normalise ? 1 : 0);
    return x;
  }
  template <class Value>
  void set_column(Rows* x, std::int64_t n, Value value) const {
    for (std::int64_t t = 0; t < n && a_.normalise; ++t) x->m.row(t)[a_.d_v] = value(t);
  }
  /// Without a normaliser there is only one factor, the scale, and in f32 it may be multiplied in first. Then outer_
  /// (a) replaces do_.
  bool one_factor() const { return !Products::kBf16 && !a_.normalise; }
  /// Computes outer = a = scale do / n, with scale dn in the extra column, factor = scale / n and term = scale dn.
  void load_outer(const Walk& walk, std::int64_t i, std::int64_t n, std::int64_t h) {
    load_rows<T, Products>(a_.grad_o, walk, i, n, h, false, &outer_);
    for (std::int64_t t = 0; t < kChunk; ++t) {
      const bool divided = a_.normalise && t < n;
      factor_[t] = a_.scale * (divided ? *tokens_.inverse(walk, i + t, h) : 1);
      term_[t] = divided ? a_.scale * *tokens_.normaliser(walk, i + t, h) : 0;
    }
    for (std::int64_t t = 0; t < n; ++t) {
      float* row = outer_.m.row(t);
      for (std::int64_t c = 0; c < a_.d_v; c += kLanes) store(hn::Mul(load(row + c), splat(factor_[t])), row + c);
      outer_.spoiled |= factor_[t] - factor_[t] != 0;
    }
    set_column(&outer_, n, [&](std::int64_t t) { return term_[t]; });
  }

  /// Collects the blocks of a product into whole rows of `width` columns and then calls use(first, end, rows).
  template <class Use>
  auto whole_rows(std::int64_t width, Use use) const {
    return [this, width, use](std::int64_t first, std::int64_t end, std::int64_t c, std::int64_t cols, Matrix block) {
      if (cols == width) return use(first, end, block);
      // Whole vectors are copied, since dot() reads whole vectors: a block holds 0 past its last column, while out_ is
      // undefined there.
      const auto bytes = static_cast<std::size_t>(round_up(cols, kLanes)) * sizeof(float);
      for (std::int64_t t = first; t < end; ++t) std::memcpy(out_.row(t) + c, block.row(t - first), bytes);
      if (c + cols == width) use(first, end, Matrix{out_.row(first), out_.ld});
    };
  }

  const LinearAttentionArgs& a_;
  std::int64_t group_;
  Records records_;
  TokenGradients tokens_;
  CausalChunk<Products> chunk_;
  Rows q_, k_, v_, do_, outer_;
  float *factor_, *term_, *own_;
  Matrix out_, sum_, z_;  // z_: one row for each value head, then one for each without the last token's own part
  State turned_, *states_;
  double f_[kChunk] = {};
};

}  // namespace falchion::cpu::FALCHION_LEVEL
