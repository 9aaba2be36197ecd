// src/ref/linear_attention.cpp: the definition of causal linear attention, forward and backward. It is naive on
// purpose: without chunks, one token after the other, and one column of the state after the other, since columns are
// independent:
//   S_j[:, m] = e^(g_j) S_(j-1)[:, m] + phi(k_j) v_j[m],    u_j[m] = scale phi(q_j)^T S_j[:, m].
// The normaliser's z is computed as an extra column, m = d_v, whose v is always 1.
#include "ref/linear_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ref/elements.hpp"

namespace falchion::ref {
namespace {

constexpr int kMaxHeadDim = 256;

/// The most tokens that one sequence can have here.
std::int64_t capacity(const LinearAttention& a) { return a.packed ? a.b * a.s : a.s; }

/// Cuts the workspace into slices. With a null base it only counts bytes.
struct Slices {
  double* base;
  std::int64_t used = 0;
  double* take(std::int64_t count) {
    used += count;
    return base == nullptr ? nullptr : base + (used - count);
  }
};

/// The slices of the workspace. Axis n counts tokens in the order of the recurrence. All but the first line are only
/// for the backward pass.
struct Memory {
  double *q, *k, *decay;          // phi(q), phi(k) (n, d_qk); e^g (n)
  double *states, *z, *dz;        // one column of S_(-1), S_0, ... (n + 1, d_qk); the divisor and its gradient (n)
  double *dq, *dk, *dg, *dgamma;  // the gradients of phi(q), phi(k) (n, d_qk), of g (n), of a decay by head (h_v)
  double* terms = nullptr;        // the caller's decay_terms

  static Memory make(const LinearAttention& a, Pass pass, Slices* slices) {
    const std::int64_t n = capacity(a), backward = pass == Pass::backward ? 1 : 0;
    Memory m{};
    m.q = slices->take(n * a.d_qk);
    m.k = slices->take(n * a.d_qk);
    m.decay = slices->take(n);
    m.states = slices->take(backward * (n + 1) * a.d_qk);
    m.z = slices->take(backward * n);
    m.dz = slices->take(backward * n);
    m.dq = slices->take(backward * n * a.d_qk);
    m.dk = slices->take(backward * n * a.d_qk);
    m.dg = slices->take(backward * n);
    m.dgamma = slices->take(backward * a.h_v);
    return m;
  }
};

/// One value head of one sequence, with its tokens j = 0, 1, ... in the order of the recurrence.
struct Head {
  const LinearAttention& a;
  const LinearOperands& x;
  const Memory& memory;
  double scale;
  Rows rows;
  std::int64_t b, h;

  std::int64_t tokens() const { return rows.length; }
  std::int64_t columns() const { return a.d_v + (a.normalise ? 1 : 0); }
  std::int64_t row(std::int64_t j) const { return rows.begin + (a.reverse ? rows.length - 1 - j : j); }
  std::int64_t h_qk() const { return h / (a.h_v / a.h_qk); }  // value heads share a head of q and k
  const double* q(std::int64_t j) const { return memory.q + j * a.d_qk; }
  const double* k(std::int64_t j) const { return memory.k + j * a.d_qk; }

  double get(const Tensor& t, std::int64_t j, std::int64_t head, std::int64_t d) const {
    return load(t, at(t, rows.batch, row(j), head, d));
  }
  void put(const Tensor& t, std::int64_t j, std::int64_t head, std::int64_t d, double value) const {
    store(t, at(t, rows.batch, row(j), head, d), value);
  }
  double v(std::int64_t j, std::int64_t m) const { return m == a.d_v ? 1 : get(x.v, j, h, m); }
  double phi(double t) const { return a.feature_map == FeatureMap::identity ? t : t > 0 ? t + 1 : std::exp(t); }
  double slope(double t) const { return a.feature_map == FeatureMap::identity || t > 0 ? 1 : std::exp(t); }

  /// Element e of column m of a state, or of z if m = d_v. It is 0 if the state is absent.
  double state(const Tensor& s, const Tensor& z, std::int64_t e, std::int64_t m, bool there) const {
    if (!there) return 0;
    return m == a.d_v ? load(z, at(z, b, h, e, 0)) : load(s, at(s, b, h, e, m));
  }
  void put_state(const Tensor& s, const Tensor& z, std::int64_t e, std::int64_t m, double value) const {
    m == a.d_v ? store(z, at(z, b, h, e, 0), value) : store(s, at(s, b, h, e, m), value);
  }

  void load_inputs() const {
    for (std::int64_t j = 0; j < tokens(); ++j) {
      for (std::int64_t e = 0; e < a.d_qk; ++e) {
        memory.q[j * a.d_qk + e] = phi(get(x.q, j, h_qk(), e));
        memory.k[j * a.d_qk + e] = phi(get(x.k, j, h_qk(), e));
      }
      memory.decay[j] = a.decay == Decay::none ? 1 : std::exp(get(x.decay, j, h, 0));
    }
  }
};

/// One column of the state, which is carried over the tokens.
struct Column {
  const Head& head;
  std::int64_t m;
  double s[kMaxHeadDim] = {};

  Column(const Head& of, std::int64_t column) : head(of), m(column) {
    for (std::int64_t e = 0; e < head.a.d_qk; ++e)
      s[e] = head.state(head.x.initial_state, head.x.initial_z, e, m, head.a.initial_state);
  }
  /// Adds token j to the state and returns u_j[m].
  double step(std::int64_t j) {
    const double decay = head.memory.decay[j], v = head.v(j, m);
    double u = 0;
    for (std::int64_t e = 0; e < head.a.d_qk; ++e) {
      s[e] = decay * s[e] + head.k(j)[e] * v;  // S_j = e^(g_j) S_(j-1) + k_j v_j^T
      u += head.q(j)[e] * s[e];                // u_j = scale q_j^T S_j
    }
    return head.scale * u;
  }
};

void forward(const Head& head) {
  const LinearAttention& a = head.a;
  // z comes last: if it is updated in place, every other column has read it by then.
  for (std::int64_t m = 0; m < head.columns(); ++m) {
    Column column(head, m), z(head, a.normalise ? a.d_v : m);
    for (std::int64_t j = 0; j < head.tokens(); ++j) {
      const double u = column.step(j);
      if (m == a.d_v) continue;
      head.put(head.x.o, j, head.h, m, a.normalise ? u / (z.step(j) + static_cast<double>(a.eps)) : u);
    }
    for (std::int64_t e = 0; a.final_state && e < a.d_qk; ++e)
      head.put_state(head.x.final_state, head.x.final_z, e, m, column.s[e]);
  }
}

/// The gradient of u_j[m], where o = u / z.
double gradient_of_u(const Head& head, std::int64_t j, std::int64_t m) {
  if (m == head.a.d_v) return head.memory.dz[j];
  const double gradient = head.get(head.x.grad_o, j, head.h, m);
  return head.a.normalise ? gradient / head.memory.z[j] : gradient;
}

double square(double x) { return x * x; }

/// The sum of the squares of token j's terms in column m. Its q has the terms du phi(q) e^g S_(j-1), and its k has the
/// terms r phi(k) v, where r = dL/dS_j comes from later tokens alone. For the last token, the final state replaces its
/// k.
double decay_terms(const Head& head, std::int64_t j, std::int64_t m, double du, const double* r) {
  const double* before = head.memory.states + j * head.a.d_qk;
  const double decay = head.memory.decay[j];
  const double v = head.v(j, m);
  const bool last = j == head.tokens() - 1;
  double sum = 0;
  for (std::int64_t e = 0; e < head.a.d_qk; ++e) {
    const double faded = decay * before[e];
    sum += square(du * head.q(j)[e] * faded) + square(r[e] * (last ? faded : head.k(j)[e] * v));
  }
  return sum;
}

/// Goes from the last token to the first, with r = dL/dS_j[:, m].
void backward_column(const Head& head, std::int64_t m) {
  const LinearAttention& a = head.a;
  const LinearOperands& x = head.x;
  const Memory& memory = head.memory;
  double r[kMaxHeadDim] = {};
  for (std::int64_t e = 0; e < a.d_qk; ++e) r[e] = head.state(x.grad_final_state, x.grad_final_z, e, m, a.final_state);
  for (std::int64_t j = head.tokens() - 1; j >= 0; --j) {
    const double* before = memory.states + j * a.d_qk;
    const double* after = before + a.d_qk;
    const double du = head.scale * gradient_of_u(head, j, m);
    const double v = head.v(j, m);
    const double decay = memory.decay[j];
    double dv = 0, dg = 0;
    if (memory.terms != nullptr)
      memory.terms[(head.rows.batch * x.q.shape[1] + head.row(j)) * a.h_v + head.h] += decay_terms(head, j, m, du, r);
    for (std::int64_t e = 0; e < a.d_qk; ++e) {
      memory.dq[j * a.d_qk + e] += du * after[e];  // dq_j += S_j du_j
      r[e] += du * head.q(j)[e];                   // R += q_j du_j^T
      memory.dk[j * a.d_qk + e] += r[e] * v;       // dk_j += R v_j
      dv += r[e] * head.k(j)[e];                   // dv_j = R^T k_j
      r[e] *= decay;                               // R of token j - 1
      dg += r[e] * before[e];                      // dg_j += <R, S_(j-1)>
    }
    memory.dg[j] += dg;
    if (m < a.d_v) head.put(x.grad_v, j, head.h, m, dv);
  }
  for (std::int64_t e = 0; a.initial_state && e < a.d_qk; ++e)
    head.put_state(x.grad_initial_state, x.grad_initial_z, e, m, r[e]);
}

/// Adds the head's part to dq and dk, which the heads of a group share, and writes the other gradients.
void backward(const Head& head) {
  const LinearAttention& a = head.a;
  const Memory& memory = head.memory;
  const std::int64_t n = head.tokens();
  Column z(head, a.normalise ? a.d_v : 0);
  for (std::int64_t j = 0; j < n; ++j) {
    memory.z[j] = a.normalise ? z.step(j) + static_cast<double>(a.eps) : 1;
    memory.dz[j] = memory.dg[j] = 0;
  }
  // z comes last, because every other column adds to its gradient.
  for (std::int64_t m = 0; m < head.columns(); ++m) {
    Column column(head, m);
    std::copy_n(column.s, a.d_qk, memory.states);
    for (std::int64_t j = 0; j < n; ++j) {
      const double u = column.step(j);
      std::copy_n(column.s, a.d_qk, memory.states + (j + 1) * a.d_qk);
      if (m < a.d_v && a.normalise) memory.dz[j] -= gradient_of_u(head, j, m) * u / memory.z[j];
    }
    backward_column(head, m);
  }
  for (std::int64_t j = 0; j < n; ++j) {
    memory.dgamma[head.h] += memory.dg[j];
    if (a.decay == Decay::token) head.put(head.x.grad_decay, j, head.h, 0, memory.dg[j]);
  }
}

/// Calls body(head) for each value head of each sequence, the heads that share q and k one after the other.
template <class Body>
void for_each_head(const LinearAttention& a, const LinearOperands& x, const Memory& memory, const Body& body) {
  const double scale = a.scale != 0 ? static_cast<double>(a.scale) : 1 / std::sqrt(static_cast<double>(a.d_qk));
  for (std::int64_t b = 0; b < a.b; ++b) {
    const std::int32_t* cu = a.packed ? x.cu_seqlens : nullptr;
    const Rows rows = rows_of(b, cu, nullptr, std::min(x.q.shape[1], capacity(a)));
    for (std::int64_t h = 0; h < a.h_v; ++h) {
      const Head head{.a = a, .x = x, .memory = memory, .scale = scale, .rows = rows, .b = b, .h = h};
      head.load_inputs();
      body(head);
    }
  }
}

}  // namespace

std::size_t linear_attention_workspace(const LinearAttention& a, Pass pass) noexcept {
  Slices slices{nullptr};
  Memory::make(a, pass, &slices);
  return static_cast<std::size_t>(slices.used) * sizeof(double);
}

void linear_attention_forward(const LinearAttention& a, const LinearOperands& x, void* workspace) noexcept {
  Slices slices{static_cast<double*>(workspace)};
  for_each_head(a, x, Memory::make(a, Pass::forward, &slices), forward);
}

void linear_attention_backward(const LinearAttention& a, const LinearOperands& x, void* workspace,
                               double* decay_terms) noexcept {
  Slices slices{static_cast<double*>(workspace)};
  Memory memory = Memory::make(a, Pass::backward, &slices);
  memory.terms = decay_terms;
  const std::int64_t shared = a.h_qk > 0 ? a.h_v / a.h_qk : 1;
  std::fill_n(memory.dgamma, a.h_v, 0.0);
  for_each_head(a, x, memory, [&](const Head& head) {
    const std::int64_t n = head.tokens() * a.d_qk;
    if (head.h % shared == 0) {
      std::fill_n(memory.dq, n, 0.0);
      std::fill_n(memory.dk, n, 0.0);
    }
    backward(head);
    for (std::int64_t i = 0; head.h % shared == shared - 1 && i < n; ++i) {
      const std::int64_t j = i / a.d_qk, e = i % a.d_qk;
      head.put(x.grad_q, j, head.h_qk(), e, memory.dq[i] * head.slope(head.get(x.q, j, head.h_qk(), e)));
      head.put(x.grad_k, j, head.h_qk(), e, memory.dk[i] * head.slope(head.get(x.k, j, head.h_qk(), e)));
    }
  });
  for (std::int64_t h = 0; a.decay == Decay::head && h < a.h_v; ++h)
    store(x.grad_decay, at(x.grad_decay, 0, 0, h, 0), memory.dgamma[h]);
}

}  // namespace falchion::ref
