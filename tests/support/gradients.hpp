// tests/support/gradients.hpp: a case of attention with what its backward pass takes and writes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "falchion/falchion.hpp"
#include "support/instance.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {

/// What a test asks the backward pass for, besides the gradients of q, k and v.
struct Wanted {
  bool grad_lse = false;
  Shape grad_bias{};   // of all zeroes: none is wanted
  Shape grad_alibi{};  // the same
  Grads grads = Grads::rounded;
  bool zero_unused = false;
  std::uint8_t frozen = 0;
};

/// An instance whose forward pass has run, random gradients of its outputs, and poisoned gradients of its inputs. Rows
/// that belong to no sequence hold NaN in what is read.
struct Gradients {
  Instance x;
  HostTensor grad_o, grad_lse, grad_q, grad_k, grad_v, grad_bias, grad_alibi;

  Gradients(const Case& row, DType dtype, const Wanted& wanted = {}, std::uint64_t seed = 1)
      : x(make_instance(row, dtype, seed)) {
    Attention& a = x.problem;
    run(Pass::forward, x.operands());
    a.grad_lse = wanted.grad_lse;
    a.grads = wanted.grads;
    a.zero_unused = wanted.zero_unused;
    a.frozen = wanted.frozen;
    a.grad_bias = wanted.grad_bias != Shape{};
    a.grad_alibi = wanted.grad_alibi != Shape{};
    const Shape& o = x.o.shape();
    grad_o = HostTensor(dtype, o, row.layout_);
    fill(seed + 10, &grad_o);
    if (a.grad_lse) {
      grad_lse = HostTensor(DType::f32, {o[0], o[2], o[1], 1});
      grad_lse.fill_normal(seed + 11);
      grad_lse.for_each([&](auto b, auto h, auto i, auto) {
        if (!is_row(b, i)) grad_lse.set(b, h, i, 0, std::numeric_limits<float>::quiet_NaN());
      });
    }
    const DType out = wanted.grads == Grads::rounded ? dtype : DType::f32;
    const Layout layout = row.layout_ == Layout::reversed ? Layout::dense : row.layout_;
    if ((a.frozen & 1) == 0) grad_q = HostTensor(out, x.q.shape(), layout);
    if ((a.frozen & 2) == 0) grad_k = HostTensor(out, x.k.shape(), layout);
    if ((a.frozen & 2) == 0) grad_v = HostTensor(out, x.v.shape(), layout);
    if (a.grad_bias) grad_bias = HostTensor(DType::f32, wanted.grad_bias);
    if (a.grad_alibi) grad_alibi = HostTensor(DType::f32, wanted.grad_alibi);
  }

  Operands operands() const {
    Operands all = x.operands();
    all.grad_o = grad_o.view();
    all.grad_lse = grad_lse.view();
    all.grad_q = grad_q.view();
    all.grad_k = grad_k.view();
    all.grad_v = grad_v.view();
    all.grad_bias = grad_bias.view();
    all.grad_alibi = grad_alibi.view();
    return all;
  }
  void run() { run(Pass::backward, operands()); }
  /// For a test that has changed an input.
  void run_forward() { run(Pass::forward, x.operands()); }

  bool is_row(std::int64_t batch, std::int64_t row) const { return is_in(&Instance::q_rows, batch, row); }
  bool is_key(std::int64_t batch, std::int64_t row) const { return is_in(&Instance::k_rows, batch, row); }

 private:
  void run(Pass pass, const Operands& all) const {
    Plan plan;
    const Status made = Plan::make(x.problem, pass, Backend::ref, &plan);
    ASSERT_TRUE(made) << made.why;
    const Status done = plan.run(all, nullptr, 0);
    ASSERT_TRUE(done) << done.why;
  }
  bool is_in(Instance::Rows (Instance::*rows)(std::int64_t) const, std::int64_t batch, std::int64_t row) const {
    for (std::int64_t b = 0; b < x.problem.b; ++b) {
      const Instance::Rows r = (x.*rows)(b);
      if (r.batch == batch && row >= r.begin && row < r.begin + r.length) return true;
    }
    return false;
  }
  void fill(std::uint64_t seed, HostTensor* grad) const {
    grad->fill_normal(seed);
    grad->for_each([&](auto b, auto s, auto h, auto d) {
      if (!is_row(b, s)) grad->set(b, s, h, d, std::numeric_limits<float>::quiet_NaN());
    });
  }
};

/// Calls f(name, gradient of x, gradient of y) for each gradient that both have.
inline void for_each_gradient(const Gradients& x, const Gradients& y,
                              const std::function<void(const char*, const HostTensor&, const HostTensor&)>& f) {
  const auto visit = [&](const char* name, const HostTensor& a, const HostTensor& b) {
    if (a.view().data != nullptr && b.view().data != nullptr) f(name, a, b);
  };
  visit("grad_q", x.grad_q, y.grad_q);
  visit("grad_k", x.grad_k, y.grad_k);
  visit("grad_v", x.grad_v, y.grad_v);
  visit("grad_bias", x.grad_bias, y.grad_bias);
  visit("grad_alibi", x.grad_alibi, y.grad_alibi);
}
inline void fill(HostTensor* x, float value) {
  x->for_each([&](auto i, auto j, auto k, auto l) { x->set(i, j, k, l, value); });
}
inline void expect_same(const char* name, const HostTensor& x, const HostTensor& y) {
  x.for_each([&](auto i, auto j, auto k, auto l) { ASSERT_EQ(x.get(i, j, k, l), y.get(i, j, k, l)) << name; });
}

}  // namespace falchion::testing
