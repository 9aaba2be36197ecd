// src/cpu/linear_attention/gradient.hpp: the numbers of each token that the forward sweep of the backward pass leaves
// for the backward sweep, and the gradients that are computed from these alone.
#pragma once

#include "cpu/linear_attention/state.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// For each token and value head one float of dG and, with normalise, one each of 1 / n, dn and `own`, the factor of
/// the token's own k in dq and of its own q in dk. These arrays follow the records.
class TokenGradients {
 public:
  explicit TokenGradients(const LinearAttentionArgs& a) : a_(a) {
    float* p = a.states == nullptr ? nullptr : a.states + Records{a}.total();
    if (p == nullptr) return;  // only sizes are computed
    const std::int64_t each = a.normalise ? a.h_v * a.b * a.s : 0;
    inverse_ = p;
    normaliser_ = p + each;
    own_ = p + 2 * each;
    decay_ = p + 3 * each;
  }
  static std::int64_t floats(const LinearAttentionArgs& a) { return a.h_v * a.b * a.s * (a.normalise ? 4 : 1); }

  float* decay(const Walk& walk, std::int64_t i, std::int64_t h) const { return decay_ + index(walk, i, h); }
  float* inverse(const Walk& walk, std::int64_t i, std::int64_t h) const { return inverse_ + index(walk, i, h); }
  float* normaliser(const Walk& walk, std::int64_t i, std::int64_t h) const { return normaliser_ + index(walk, i, h); }
  float* own(const Walk& walk, std::int64_t i, std::int64_t h) const { return own_ + index(walk, i, h); }

 private:
  std::int64_t index(const Walk& walk, std::int64_t i, std::int64_t h) const {
    return (h * a_.b + walk.batch) * a_.s + walk.row(i);
  }
  const LinearAttentionArgs& a_;
  float *inverse_ = nullptr, *normaliser_ = nullptr, *own_ = nullptr, *decay_ = nullptr;
};

/// Stores tokens [first, first + n) of dq or dk, which is the gradient of phi(x) times phi'(x).
/// For elu + 1, phi'(x) is min(phi(x), 1).
template <class T>
void store_gradients(const LinearAttentionArgs& a, const View& out, const Walk& walk, std::int64_t first,
                     std::int64_t n, std::int64_t head, const Rows& phi, Matrix gradient) {
  for (std::int64_t i = 0; i < n; ++i) {
    float* row = gradient.row(i);
    float* slope = phi.m.row(i);
    for (std::int64_t c = 0; c < phi.width && a.elu; c += kLanes) {
      const Floats x = load(slope + c);
      store(hn::Mul(load(row + c), hn::IfThenElse(hn::Gt(x, splat(1.f)), splat(1.f), x)), row + c);
    }
    store_row<T>(walk.at<typename T::Bits>(out, first + i, head), row, 1, phi.width);
  }
}

/// Transposes R^T into R (d_qk, d_v).
inline void transpose_state(const LinearAttentionArgs& a, const State& state, State* turned) {
  turned->zero = state.zero;
  if (state.zero) return;
  for (std::int64_t m = 0; m < a.d_v; m += 16) {
    for (std::int64_t e = 0; e < a.d_qk; e += 16)
      transpose_16x16(state.m.row(m) + e, state.m.ld, turned->m.row(e) + m, turned->m.ld);
  }
}

/// <S, dS> + <z, dz> of value head h. S^T and z are the final ones without the last token's contribution.
inline float along_final_state(const LinearAttentionArgs& a, std::int64_t b, std::int64_t h, const State& state,
                               const float* z) {
  const StateRef grad = StateRef::of(a.grad_final_state, a.grad_final_z, b, h);
  double sum = 0;
  for (std::int64_t e = 0; e < a.d_qk && grad.s != nullptr; ++e) {
    for (std::int64_t m = 0; m < a.d_v; ++m) sum += double{grad.at(e, m)} * state.m.row(m)[e];
  }
  for (std::int64_t e = 0; e < a.d_qk && grad.z != nullptr; ++e) sum += double{grad.z[e * grad.z_row]} * z[e];
  return static_cast<float>(sum);
}

/// dg is the sum of dG from a token to the last one. The gradient of a decay by head is the sum of dg over its tokens,
/// always in the same order.
inline void store_decay_gradients(const LinearAttentionArgs& a) {
  const TokenGradients tokens(a);
  const View& out = a.grad_decay;
  if (out.data == nullptr) return;  // the decay is by token, and there is no token
  for_each_worker(a, a.h_v, [&](int, Counter& next) {
    for (std::int64_t h; (h = next.take()) < a.h_v;) {
      double total = 0;
      for (std::int64_t b = 0; b < a.b; ++b) {
        LinearItem item = LinearItem::of(a, b, h, 0);
        item.end = item.length;
        const Walk walk = item.forwards(a);
        double sum = 0;
        for (std::int64_t i = walk.count - 1; i >= 0; --i) {
          sum += *tokens.decay(walk, i, h);
          total += sum;
          if (!a.decay_by_head) *walk.at<float>(out, i, h) = static_cast<float>(sum);
        }
      }
      if (a.decay_by_head) static_cast<float*>(out.data)[h * out.stride[2]] = static_cast<float>(total);
    }
  });
}

}  // namespace falchion::cpu::FALCHION_LEVEL
