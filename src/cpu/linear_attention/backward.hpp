// src/cpu/linear_attention/backward.hpp: causal linear attention, backward, on the CPU. It runs the recurrence of
// chunk.hpp three times with other tensors in its roles, and keeps no state but the running one.
// Write o = u / n with n = scale q.z + eps. Then du = do / n and dn = -(do.u) / n^2. R is the gradient of the state S,
// and r that of z.
//   forwards   dQ: x_t = S_t do_t,  do_t.u_t = scale q_t.x_t,  dq_t = scale (x_t / n_t + dn_t z_t)
//   backwards  dK: R_t = e^(g_(t+1)) R_(t+1) + q_t a_t^T,  a = scale du,  dk_t = R_t v_t + r_t,  dV: dv_t = R_t^T k_t
// r is computed as one more row of R^T; for that v gets one more element, which is 1. With G, the sum of g so far,
//   dG_t = q_t.dq_t - k_t.dk_t (at the last token also + <S, dS> + <z, dz> of the final state),
//   dg_t = the sum of dG from token t on.
// A token's own contribution (of t to t, and of the last token to the final state) is in both terms of these
// differences, so it is left out: for g = -15 everything else is 3e-7 of it and would be lost in rounding. With the
// normaliser o is nearly v there, so a token's own part of dq and dk, which has the factor do.(v - o), is computed from
// u and n without the token.
#pragma once

#include <type_traits>

#include "cpu/linear_attention/backward_rows.hpp"
#if FALCHION_TILES
  #include "cpu/blocks/products_amx.hpp"
#endif

namespace falchion::cpu::FALCHION_LEVEL {

/// One worker, with both of its sweeps.
template <class T, class Products>
class LinearBackwardWorker : public LinearBackwardRows<T, Products> {
  using Base = LinearBackwardRows<T, Products>;

 public:
  using Base::Base;

  /// Computes dq, and the numbers of each token that the backward sweep needs.
  void forwards(const LinearItem& item) {
    const Walk walk = item.forwards(a_);
    start(item, a_.initial_state, a_.initial_z);
    for (std::int64_t j = 0; j < group_; ++j)
      records_.start(item, item.head * group_ + j, a_.initial_state, a_.initial_z).load_z(a_.d_qk, z_.row(j));
    for (std::int64_t i = 0; i < walk.count; i += kChunk) {
      const std::int64_t n = min(kChunk, walk.count - i);
      load_keys(walk, i, n, item.head);
      clear(sum_, 0, n);
      for (std::int64_t j = 0; j < group_; ++j) {
        const std::int64_t h = item.head * group_ + j;
        load_values(a_.v, walk, i, n, h, &v_);
        load_operand<T, Products>(a_.grad_o, walk, i, n, h, &do_);
        start_chunk(walk, i, n, h, 0);
        chunk_.upcoming().start();
        if (j + 1 == group_) fetch(a_.grad_q, walk, i, item.head, a_.d_qk, true);
        fetch_next(walk, i, item.head, j);
        // x_t = S_t do_t, which gives dq_t
        chunk_.outputs(n, do_, {nullptr, nullptr, own()}, v_, k_, do_, states_[j],
                       whole_rows(a_.d_qk, [&](std::int64_t first, std::int64_t end, Matrix x) {
                         query_gradients(walk, i, first, end, h, j, x);
                       }));
        const bool last = i + n == walk.count;
        const bool final = last && item.last && has_final();
        if (final) clear(v_.m, n - 1, n);  // along_final_state() takes the state without the last token's own part
        if (!last || final) chunk_.update(n, v_, k_, &states_[j]);  // S^T += V^T K
      }
      store_gradients<T>(a_, a_.grad_q, walk, i, n, item.head, q_, sum_);
    }
    for (std::int64_t j = 0; j < group_ && item.last && walk.count > 0 && has_final(); ++j) {
      const std::int64_t h = item.head * group_ + j;
      *tokens_.decay(walk, walk.count - 1, h) += along_final_state(a_, item.b, h, states_[j], z_.row(group_ + j));
    }
  }

  /// Computes dk, dv and the gradient of the state that the item starts with.
  void backwards(const LinearItem& item) {
    const Walk walk = item.backwards(a_);
    start(item, a_.grad_final_state, a_.grad_final_z);
    for (std::int64_t i = 0; i < walk.count; i += kChunk) {
      const std::int64_t n = min(kChunk, walk.count - i);
      load_keys(walk, i, n, item.head);
      clear(sum_, 0, n);
      for (std::int64_t j = 0; j < group_; ++j) {
        const std::int64_t h = item.head * group_ + j;
        State& state = states_[j];
        load_values(a_.v, walk, i, n, h, &v_);
        set_column(&v_, n, [](std::int64_t) { return 1.F; });
        if (!one_factor()) load_operand<T, Products>(a_.grad_o, walk, i, n, h, &do_);
        load_outer(walk, i, n, h);
        start_chunk(walk, i, n, h, 1);
        chunk_.upcoming().start();
        fetch(a_.grad_v, walk, i, h, a_.d_v, true);
        if (j + 1 == group_) fetch(a_.grad_k, walk, i, item.head, a_.d_qk, true);
        fetch_next(walk, i, item.head, j);
        const auto dk_of_rows = whole_rows(a_.d_qk, [&](std::int64_t first, std::int64_t end, Matrix dk) {
          key_gradients(item, walk, i, first, end, h, dk);
        });
        // dk_t = R_t v_t + r_t
        one_factor() ? chunk_.outputs(n, v_, {nullptr, nullptr, own()}, outer_, q_, v_, state, dk_of_rows)
                     : chunk_.outputs(n, v_, {factor_, term_, own()}, do_, q_, with_column(v_), state, dk_of_rows);
        transpose_state(a_, state, &turned_);
        // dv_t = R_t^T k_t
        chunk_.outputs(n, k_, q_, outer_, turned_,
                       [&](std::int64_t first, std::int64_t end, std::int64_t c, std::int64_t cols, Matrix dv) {
                         for (std::int64_t t = first; t < end; ++t)
                           store_row<T>(walk.at<typename T::Bits>(a_.grad_v, i + t, h) + c, dv.row(t - first), 1, cols);
                       });
        chunk_.update(n, with_column(outer_), q_, &state);  // R^T += A^T Q
      }
      store_gradients<T>(a_, a_.grad_k, walk, i, n, item.head, k_, sum_);
    }
    if (!item.first) return;
    for (std::int64_t j = 0; j < group_; ++j) store_initial(item, walk, item.head * group_ + j, states_[j]);
  }

  /// Writes the sum of one segment alone to its records: of the state, or with `backwards` of its gradient.
  void sum(const LinearItem& item, bool backwards) {
    const Walk walk = backwards ? item.backwards(a_) : item.forwards(a_);
    for (std::int64_t j = 0; j < group_; ++j) {
      const std::int64_t h = item.head * group_ + j;
      double fade = 0;
      clear_state(&states_[j]);
      for (std::int64_t i = 0; i < walk.count && !(backwards ? item.first : item.last); i += kChunk) {
        const std::int64_t n = min(kChunk, walk.count - i);
        load_rows<T, Products>(backwards ? a_.q : a_.k, walk, i, n, item.head, a_.elu, &k_);
        if (backwards) {
          load_outer(walk, i, n, h);
        } else {
          load_rows<T, Products>(a_.v, walk, i, n, h, false, &outer_);
          set_column(&outer_, n, [](std::int64_t) { return 1.F; });
        }
        fade += start_chunk(walk, i, n, h, backwards ? 1 : 0);
        chunk_.upcoming().start();
        fetch(backwards ? a_.q : a_.k, walk, i + n, item.head, a_.d_qk, false);
        fetch(backwards ? a_.grad_o : a_.v, walk, i + n, h, a_.d_v, false);
        chunk_.update(n, with_column(outer_), k_, &states_[j]);
      }
      const StateRef record = records_.at(item.b, h, item.segment);
      store_state(states_[j], record);
      records_.fade(record) = static_cast<float>(::exp(fade));
    }
  }

 private:
  // ---- the outputs -------------------------------------------------------------------------------------------------
  // dq of tokens [first, end) of the chunk that starts with token i, from value head j of the group.
  void query_gradients(const Walk& walk, std::int64_t i, std::int64_t first, std::int64_t end, std::int64_t h,
                       std::int64_t j, Matrix rows) {
    for (std::int64_t t = first; t < end; ++t) {
      const float* x = rows.row(t - first);
      if (has_decay()) {
        faded_query_gradient(walk, i, t, h, j, x);
        continue;
      }
      float *z = z_.row(j), inverse = 1;
      if (a_.normalise) {
        add_to_z(z, 1, 1, k_.m.row(t), a_.d_qk);
        const float* q = q_.m.row(t);
        inverse = 1 / (a_.scale * dot(q, z, a_.d_qk) + a_.eps);
        const float dn = -a_.scale * dot(q, x, a_.d_qk) * inverse * inverse;
        *tokens_.inverse(walk, i + t, h) = inverse;
        *tokens_.normaliser(walk, i + t, h) = dn;
        add_to_z(sum_.row(t), 1, a_.scale * dn, z, a_.d_qk);
      }
      add_to_z(sum_.row(t), 1, a_.scale * inverse, x, a_.d_qk);
    }
  }
  /// The same for token t if there is a decay. x is without the token's own part, and so is z until k is added. That
  /// part of dq is own k, where own = do.v comes from the scores. With a normaliser own becomes do.(v - o) / n, because
  /// dn has a part of the token itself; where o is nearly v, do.v and do.o would cancel, so it is not computed from
  /// them.
  void faded_query_gradient(const Walk& walk, std::int64_t i, std::int64_t t, std::int64_t h, std::int64_t j,
                            const float* x) {
    const float *q = q_.m.row(t), *k = k_.m.row(t);
    float* z = z_.row(j);
    float* dq = sum_.row(t);
    float along = a_.scale * dot(q, x, a_.d_qk);
    float inverse = 1;
    float own = own_[t];
    if (a_.normalise) {
      scale_row(z, chunk_.decay().each(t), a_.d_qk, z);
      if (i + t + 1 == walk.count) scale_row(z, 1, a_.d_qk, z_.row(group_ + j));
      const float qz = a_.scale * dot(q, z, a_.d_qk), qk = a_.scale * dot(q, k, a_.d_qk);
      inverse = 1 / (qz + qk + a_.eps);
      const float dn = -(along + qk * own) * inverse * inverse;
      own = ((qz + a_.eps) * own - along) * inverse * inverse;
      *tokens_.inverse(walk, i + t, h) = inverse;
      *tokens_.normaliser(walk, i + t, h) = dn;
      *tokens_.own(walk, i + t, h) = a_.scale * own;
      along = along * inverse + dn * qz;
      add_to_z(dq, 1, a_.scale * dn, z, a_.d_qk);
      add_to_z(z, 1, 1, k, a_.d_qk);
    }
    add_to_z(dq, 1, a_.scale * inverse, x, a_.d_qk);
    add_to_z(dq, 1, a_.scale * own, k, a_.d_qk);
    *tokens_.decay(walk, i + t, h) = along;
  }
  void key_gradients(const LinearItem& item, const Walk& walk, std::int64_t i, std::int64_t first, std::int64_t end,
                     std::int64_t h, Matrix dk) {
    for (std::int64_t t = first; t < end; ++t) {
      const float* row = dk.row(t - first);
      add_to_z(sum_.row(t), 1, 1, row, a_.d_qk);
      if (!has_decay()) continue;
      const float own = a_.normalise ? *tokens_.own(walk, i + t, h) : own_[t];
      add_to_z(sum_.row(t), 1, own, q_.m.row(t), a_.d_qk);
      // k.dk of the sequence's last token is only its own contribution to the final state.
      const bool last = item.last && i + t == 0;
      if (!last) *tokens_.decay(walk, i + t, h) -= dot(k_.m.row(t), row, a_.d_qk);
    }
  }

  using Base::a_, Base::group_, Base::records_, Base::tokens_, Base::chunk_, Base::states_, Base::turned_;
  using Base::clear, Base::start_chunk, Base::load_keys, Base::load_values, Base::load_outer;
  using Base::fetch, Base::fetch_next, Base::with_column, Base::set_column, Base::whole_rows;
  using Base::has_decay, Base::has_final, Base::one_factor, Base::own;
  using Base::q_, Base::k_, Base::v_, Base::do_, Base::outer_, Base::factor_, Base::term_, Base::own_;
  using Base::start, Base::clear_state, Base::store_state, Base::store_initial;
  using Base::sum_, Base::z_;
};

template <class T, class Products>
struct LinearBackward {
  using Worker = LinearBackwardWorker<T, Products>;
  using Scope = typename Products::Scope;
  struct ForwardsSum : Worker {
    using Worker::Worker;
    void run(const LinearItem& item) { Worker::sum(item, false); }
  };
  struct Forwards : Worker {
    using Worker::Worker;
    void run(const LinearItem& item) { Worker::forwards(item); }
  };
  struct BackwardsSum : Worker {
    using Worker::Worker;
    void run(const LinearItem& item) { Worker::sum(item, true); }
  };
  struct Backwards : Worker {
    using Worker::Worker;
    void run(const LinearItem& item) { Worker::backwards(item); }
  };

  static LinearMemory memory(const LinearAttentionArgs& a) {
    Arena arena(nullptr);
    Worker(a, arena);
    const std::int64_t floats = Records{a}.total() + TokenGradients::floats(a);
    return {arena.used(), static_cast<std::size_t>(floats) * sizeof(float)};
  }
  static void run(const LinearAttentionArgs& a) {
    if (a.segments > 1) {
      run_linear_items<ForwardsSum, Scope>(a, a.h_qk);
      prefix_over_segments(a, a.initial_state, a.initial_z, false);
    }
    run_linear_items<Forwards, Scope>(a, a.h_qk);
    if (a.segments > 1) {
      run_linear_items<BackwardsSum, Scope>(a, a.h_qk);
      prefix_over_segments(a, a.grad_final_state, a.grad_final_z, true);
    }
    run_linear_items<Backwards, Scope>(a, a.h_qk);
    if (a.decay.data != nullptr) store_decay_gradients(a);
  }
};

/// dg is a sum over all later tokens of differences whose terms cancel except for the rounding of their products. With
/// operands of one bf16 part (2^-9) its error grows with sqrt(s) and is a tenth of dg at s = 500. So with a decay the
/// products are those of f32.
template <class Plain, class Exact>
struct LinearBackwardByDecay {
  static LinearMemory memory(const LinearAttentionArgs& a) {
    const LinearMemory plain = Plain::memory(a), exact = Exact::memory(a);
    return {plain.scratch > exact.scratch ? plain.scratch : exact.scratch, exact.states};
  }
  static void run(const LinearAttentionArgs& a) { a.decay.data != nullptr ? Exact::run(a) : Plain::run(a); }
};

template <class T>
constexpr LinearAttentionKernel linear_attention_backward_kernel() {
#if FALCHION_TILES
  using Exact = LinearBackward<T, SimdProducts>;
  using Kernel =
      std::conditional_t<kParts<T> == 3, Exact, LinearBackwardByDecay<LinearBackward<T, AmxProducts<T>>, Exact>>;
#else
  using Kernel = LinearBackward<T, SimdProducts>;
#endif
  return {&Kernel::memory, &Kernel::run, kChunk};
}

}  // namespace falchion::cpu::FALCHION_LEVEL
