// tests/support/gradients.hpp: a case of attention with what its backward pass takes and writes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "falchion/falchion.hpp"
#include "judge/attention_backward.hpp"
#include "problem/device_copy.hpp"
#include "support/instance.hpp"
#include "support/paths.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {

/// A suite whose tests run the backward pass on each path of this build, ref among them.
class OnBackwardPaths : public ::testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    if (const std::string why_not = GetParam().why_not(); !why_not.empty()) GTEST_SKIP() << why_not;
  }
};
inline std::string path_name(const ::testing::TestParamInfo<Path>& info) { return info.param.name(); }

/// The path as a target; a type that this build does not have there is computed by the definition.
inline Target backward_target(const Path& path, DType dtype) {
  return path.has(dtype, kAttentionBackward) ? path.target() : Target(Backend::ref);
}

/// A plan of the backward pass with its workspace, which holds NaN before the first run and then what the last run left
/// there. The operands lie in the host's memory. On a GPU each run copies them to the device and its outputs back.
class BackwardRuns {
 public:
  Status make(const Target& target, const Attention& problem);
  const Plan& plan() const { return plan_; }
  bool on_gpu() const;
  /// `whole` lists allocations that a GPU gets as a whole, with their gaps and their poison
  /// (tools/problem/device_copy.hpp). A byte that is written behind the workspace of a GPU's plan makes the run fail.
  Status run(const Operands& operands, const std::vector<cuda::Bytes>& whole = {});

 private:
  Status run_on_gpu(const Operands& operands, const std::vector<cuda::Bytes>& whole);

  Attention problem_;
  Plan plan_;
  std::unique_ptr<Workspace> on_host_;
  cuda::Memory on_device_;
};

/// Runs the backward pass once, in a workspace that holds NaN.
inline Status run_backward(const Target& target, const Attention& problem, const Operands& operands) {
  BackwardRuns runs;
  if (Status made = runs.make(target, problem); !made) return made;
  return runs.run(operands);
}

/// What a test asks the backward pass for, besides the gradients of q, k and v.
struct Wanted {
  bool grad_lse = false;
  Shape grad_bias{};   // of all zeroes: none is wanted
  Shape grad_alibi{};  // the same
  Shape grad_sinks{};  // the same
  Grads grads = Grads::rounded;
  bool zero_unused = false;
  std::uint8_t frozen = 0;
};

/// An instance whose forward pass has run, random gradients of its outputs, and poisoned gradients of its inputs. Rows
/// that belong to no sequence hold NaN in what is read.
struct Gradients {
  Instance x;  // run() sets its shares_tiles.
  HostTensor grad_o, grad_lse, grad_q, grad_k, grad_v, grad_bias, grad_alibi, grad_sinks;

  Gradients(const Case& row, DType dtype, const Wanted& wanted = {}, std::uint64_t seed = 1)
      : x(make_instance(row, dtype, seed)) {
    Attention& a = x.problem;
    run_forward();
    a.grad_lse = wanted.grad_lse;
    a.grads = wanted.grads;
    a.zero_unused = wanted.zero_unused;
    a.frozen = wanted.frozen;
    a.grad_bias = wanted.grad_bias != Shape{};
    a.grad_alibi = wanted.grad_alibi != Shape{};
    a.grad_sinks = wanted.grad_sinks != Shape{};
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
    if (a.grad_sinks) grad_sinks = HostTensor(DType::f32, wanted.grad_sinks);
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
    all.grad_sinks = grad_sinks.view();
    return all;
  }
  /// The allocations of all tensors.
  std::vector<cuda::Bytes> whole() const {
    std::vector<const HostTensor*> all = x.tensors();
    for (const HostTensor* tensor :
         {&grad_o, &grad_lse, &grad_q, &grad_k, &grad_v, &grad_bias, &grad_alibi, &grad_sinks})
      all.push_back(tensor);
    std::vector<cuda::Bytes> out;
    for (const HostTensor* tensor : all) out.push_back({tensor->memory(), tensor->memory_bytes()});
    return out;
  }
  void run(BackwardRuns* runs) {
    x.shares_tiles = runs->on_gpu();
    const Status done = runs->run(operands(), whole());
    ASSERT_TRUE(done) << done.why;
  }
  void run(const Target& target = Backend::ref) {
    BackwardRuns runs;
    const Status made = runs.make(target, x.problem);
    ASSERT_TRUE(made) << made.why;
    run(&runs);
  }
  /// The path `best` of a GPU must not give way to the CPU.
  void run(const Path& path) {
    BackwardRuns runs;
    const Status made = runs.make(backward_target(path, x.problem.dtype), x.problem);
    ASSERT_TRUE(made) << made.why;
    ASSERT_EQ(runs.on_gpu(), path.on_gpu() && path.has(x.problem.dtype, kAttentionBackward)) << runs.plan().describe();
    run(&runs);
  }
  /// Whether the last run was one on a GPU where a NaN or Inf that is in the operands now may have reached this
  /// element, although its row and its key do not see each other (docs/contract.md, "NaN, Inf in a pair that does not
  /// see each other").
  bool unseen_may_reach(judge::Gradient which, const Shape& at) const {
    return x.shares_tiles && judge::unseen_may_reach(x.problem, operands(), which, at);
  }
  /// For a test that has changed an input.
  void run_forward() {
    Plan plan;
    ASSERT_TRUE(Plan::make(x.problem, Pass::forward, Backend::ref, &plan));
    const Status done = plan.run(x.operands(), nullptr, 0);
    ASSERT_TRUE(done) << done.why;
  }

  bool is_row(std::int64_t batch, std::int64_t row) const { return is_in(&Instance::q_rows, batch, row); }
  bool is_key(std::int64_t batch, std::int64_t row) const { return is_in(&Instance::k_rows, batch, row); }

 private:
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

/// One of its gradients, by the judge's name for it.
inline const HostTensor& gradient_of(const Gradients& x, judge::Gradient which) {
  const HostTensor* const all[] = {&x.grad_q, &x.grad_k, &x.grad_v, &x.grad_bias, &x.grad_alibi, &x.grad_sinks};
  return *all[static_cast<std::size_t>(which)];
}
inline constexpr judge::Gradient kEachGradient[] = {judge::Gradient::q,     judge::Gradient::k,
                                                    judge::Gradient::v,     judge::Gradient::bias,
                                                    judge::Gradient::alibi, judge::Gradient::sinks};
/// Checks each gradient by the tolerance rule.
inline void expect_judged(const Gradients& x, const judge::GradientReference& reference) {
  for (const judge::Gradient which : kEachGradient) {
    if (!reference.has(which)) continue;
    const judge::ErrorReport report = reference.check(which, gradient_of(x, which).view(), x.x.shares_tiles);
    EXPECT_TRUE(report.passed()) << report.why;
  }
}

/// Checks that what is frozen changes no bit of the rest, as long as the plan takes the same variant. Only on a GPU,
/// and only where k and v are frozen, may it take another one; then the rest must keep the tolerance rule. make(frozen)
/// returns the same problem each time.
void expect_frozen_as_full(const Target& target, const std::function<Gradients(std::uint8_t)>& make);

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
  visit("grad_sinks", x.grad_sinks, y.grad_sinks);
}
inline void fill(HostTensor* x, float value) {
  x->for_each([&](auto i, auto j, auto k, auto l) { x->set(i, j, k, l, value); });
}
inline void expect_near(const char* name, const HostTensor& x, const HostTensor& y, double tolerance) {
  x.for_each(
      [&](auto i, auto j, auto k, auto l) { ASSERT_NEAR(x.get(i, j, k, l), y.get(i, j, k, l), tolerance) << name; });
}
/// Of all gradients that both have.
inline void expect_all_near(const Gradients& x, const Gradients& y, double tolerance) {
  for_each_gradient(
      x, y, [&](const char* name, const HostTensor& a, const HostTensor& b) { expect_near(name, a, b, tolerance); });
}
inline void expect_same(const char* name, const HostTensor& x, const HostTensor& y) {
  x.for_each([&](auto i, auto j, auto k, auto l) { ASSERT_EQ(x.get(i, j, k, l), y.get(i, j, k, l)) << name; });
}
/// Of all gradients of `spoilt`, whose operands hold NaN where no row sees it: they are those of `clean`, except where
/// a NaN may reach its column on a GPU. There a NaN, and nothing else, passes.
inline void expect_untouched(const Gradients& clean, const Gradients& spoilt, double tolerance = 0) {
  for (const judge::Gradient which : kEachGradient) {
    const HostTensor &x = gradient_of(clean, which), &y = gradient_of(spoilt, which);
    if (x.view().data == nullptr || y.view().data == nullptr) continue;
    x.for_each([&](auto i, auto j, auto k, auto l) {
      const float value = y.get(i, j, k, l);
      if (std::isnan(value) && spoilt.unseen_may_reach(which, {i, j, k, l})) return;
      ASSERT_NEAR(x.get(i, j, k, l), value, tolerance) << judge::kGradientNames[static_cast<std::size_t>(which)];
    });
  }
}

}  // namespace falchion::testing
