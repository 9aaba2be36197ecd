// tests/backward_laws_test.cpp: tests the laws that gradients of attention obey, whoever computes them.
// tests/backward_derivative_test.cpp shows that those of the definition are the derivatives.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "support/gradients.hpp"

namespace falchion::testing {
namespace {

using Bias = Case::Bias;

Case small(const char* name) { return Case{name, 2, 4, 5, 4, 2, 8, 8}; }

void multiply(HostTensor* x, float factor) {
  x->for_each([&](auto i, auto j, auto k, auto l) { x->set(i, j, k, l, factor * x->get(i, j, k, l)); });
}
/// Gradients are linear in what comes from above, and a factor of 2 changes no digit.
TEST(BackwardLaws, TwiceTheGradientFromAboveIsTwiceEachGradient) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Wanted wanted{.grad_lse = true, .grad_bias = {1, 4, 4, 5}};
    Gradients once(small("once").bias(Bias::f32).causal(), dtype, wanted);
    Gradients twice(small("twice").bias(Bias::f32).causal(), dtype, wanted);
    multiply(&twice.grad_o, 2);
    multiply(&twice.grad_lse, 2);
    once.run();
    twice.run();
    for_each_gradient(once, twice, [](const char* name, const HostTensor& x, const HostTensor& y) {
      x.for_each([&](auto i, auto j, auto k, auto l) { ASSERT_EQ(2 * x.get(i, j, k, l), y.get(i, j, k, l)) << name; });
    });
  }
}

/// To add a number to all scores of a row moves its lse by that number, and nothing else.
TEST(BackwardLaws, TheGradientsOfARowsScoresSumToThatOfItsLse) {
  Gradients all(small("row").bias(Bias::f32), DType::f32, {.grad_lse = true, .grad_bias = {2, 4, 4, 5}});
  all.run();
  all.grad_lse.for_each([&](auto b, auto h, auto i, auto) {
    double sum = 0;
    for (std::int64_t j = 0; j < 5; ++j) sum += all.grad_bias.get(b, h, i, j);
    ASSERT_NEAR(sum, all.grad_lse.get(b, h, i, 0), 5e-6);
  });
}

/// q and k enter by their products alone: what q grows by k may shrink by. P V is linear in V.
TEST(BackwardLaws, ProductsWithTheOperandsAgree) {
  Gradients all(small("products").causal().softcap(2), DType::f32, {});
  all.run();
  const auto product = [](const HostTensor& x, const HostTensor& y) {
    double sum = 0;
    x.for_each([&](auto i, auto j, auto k, auto l) { sum += double{x.get(i, j, k, l)} * y.get(i, j, k, l); });
    return sum;
  };
  EXPECT_NEAR(product(all.x.q, all.grad_q), product(all.x.k, all.grad_k), 2e-5);
  EXPECT_NEAR(product(all.x.v, all.grad_v), product(all.x.o, all.grad_o), 2e-5);
}

/// Keys in two parts, with the o and lse of all of them: the gradients of q add, and those of the keys are the same.
/// This is a step of ring attention.
TEST(BackwardLaws, PartsOfTheKeysUnderTheMergedLse) {
  const Case row = small("whole");
  Gradients whole(row, DType::f32, {.grad_lse = true});
  whole.run();
  const auto part = [&](std::int64_t from, std::int64_t length) {
    Operands all = whole.operands();
    for (Tensor* t : {&all.k, &all.v, &all.grad_k, &all.grad_v}) {
      const bool is_k = t == &all.k || t == &all.grad_k;
      const HostTensor& own = t == &all.k ? whole.x.k : t == &all.v ? whole.x.v : is_k ? whole.grad_k : whole.grad_v;
      t->data = static_cast<float*>(t->data) + own.offset(0, from, 0, 0);
      t->shape[1] = length;
    }
    return all;
  };
  Attention problem = whole.x.problem;
  HostTensor sums = whole.grad_q.like(), k_before = whole.grad_k.like();
  k_before.for_each([&](auto i, auto j, auto k, auto l) { k_before.set(i, j, k, l, whole.grad_k.get(i, j, k, l)); });
  sums.for_each([&](auto i, auto j, auto k, auto l) { sums.set(i, j, k, l, 0); });
  problem.grads = Grads::accumulate;
  whole.grad_k.for_each([&](auto i, auto j, auto k, auto l) { whole.grad_k.set(i, j, k, l, 0); });
  for (const auto& [from, length] : {std::pair{0, 2}, {2, 3}}) {
    Operands all = part(from, length);
    all.grad_q = sums.view();
    problem.s_k = length;
    Plan plan;
    ASSERT_TRUE(Plan::make(problem, Pass::backward, Backend::ref, &plan));
    const Status status = plan.run(all, nullptr, 0);
    ASSERT_TRUE(status) << status.why;
  }
  sums.for_each(
      [&](auto i, auto j, auto k, auto l) { ASSERT_NEAR(sums.get(i, j, k, l), whole.grad_q.get(i, j, k, l), 1e-6); });
  k_before.for_each([&](auto i, auto j, auto k, auto l) {
    ASSERT_EQ(k_before.get(i, j, k, l), whole.grad_k.get(i, j, k, l)) << "the merged lse gives the same probabilities";
  });
}

TEST(BackwardLaws, WhatIsFrozenDoesNotChangeTheRest) {
  Gradients full(small("full"), DType::bf16, {}), no_q(small("no_q"), DType::bf16, {.frozen = 1});
  Gradients no_kv(small("no_kv"), DType::bf16, {.frozen = 2});
  for (Gradients* x : {&full, &no_q, &no_kv}) x->run();
  const auto expect_same = [](const char* name, const HostTensor& x, const HostTensor& y) {
    x.for_each([&](auto i, auto j, auto k, auto l) { ASSERT_EQ(x.get(i, j, k, l), y.get(i, j, k, l)) << name; });
  };
  expect_same("grad_q", full.grad_q, no_kv.grad_q);
  expect_same("grad_k", full.grad_k, no_q.grad_k);
  expect_same("grad_v", full.grad_v, no_q.grad_v);
}

TEST(BackwardLaws, GradientsAreRoundedOrF32OrAdded) {
  const Case row = small("grads").causal();
  Gradients rounded(row, DType::bf16, {}), wide(row, DType::bf16, {.grads = Grads::f32});
  Gradients added(row, DType::bf16, {.grads = Grads::accumulate});
  for (HostTensor* x : {&added.grad_q, &added.grad_k, &added.grad_v})
    x->for_each([&](auto i, auto j, auto k, auto l) { x->set(i, j, k, l, 3); });
  for (Gradients* x : {&rounded, &wide, &added}) x->run();
  for_each_gradient(rounded, wide, [](const char* name, const HostTensor& x, const HostTensor& y) {
    x.for_each([&](auto i, auto j, auto k, auto l) {
      ASSERT_EQ(x.get(i, j, k, l), f32_from_bf16(bf16_from_f32(y.get(i, j, k, l)))) << name;
    });
  });
  for_each_gradient(wide, added, [](const char* name, const HostTensor& x, const HostTensor& y) {
    x.for_each(
        [&](auto i, auto j, auto k, auto l) { ASSERT_NEAR(x.get(i, j, k, l) + 3, y.get(i, j, k, l), 1e-6) << name; });
  });
}

}  // namespace
}  // namespace falchion::testing
