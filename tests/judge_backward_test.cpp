// tests/judge_backward_test.cpp: which gradients of attention the tolerance rule of src/judge lets through and which it
// must not (docs/contract.md, "The tolerance rule").
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "judge/attention_backward.hpp"
#include "support/gradients.hpp"
#include "support/random.hpp"

namespace falchion::testing {
namespace {

using judge::Gradient, judge::GradientReference;
using Bias = Case::Bias;

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
Wanted everything() { return {.grad_lse = true, .grad_bias = {1, 4, 20, 30}, .grad_alibi = {1, 1, 4, 1}}; }
Case large(const char* name) { return Case{name, 2, 20, 30, 4, 2, 24, 16}.causal().softcap(4).alibi().bias(Bias::f32); }

/// A computation as a kernel might do it, instead of the definition: in f32, with 16-bit P and 16-bit gradients of
/// scores.
void run_as_a_kernel(Gradients* all) {
  const DType dtype = all->x.problem.dtype;
  ref::attention_backward(all->x.problem, all->operands(), {.p = dtype, .single_precision = true, .ds = dtype});
}

HostTensor* tensor_of(Gradients* all, Gradient which) {
  HostTensor* const of[] = {&all->grad_q, &all->grad_k, &all->grad_v, &all->grad_bias, &all->grad_alibi};
  return of[static_cast<std::size_t>(which)];
}
constexpr Gradient kAll[] = {Gradient::q, Gradient::k, Gradient::v, Gradient::bias, Gradient::alibi};

/// The definition's own results pass, and so do those of a computation with the roundings of a kernel. An error of a
/// tenth in each element does not pass, nor does one element that is off by a twentieth of the largest.
TEST(JudgeBackward, RoundingsPassAndFaultsDoNot) {
  for (const DType dtype : kTypes) {
    Gradients all(large("x"), dtype, everything());
    const GradientReference judge(all.x.problem, all.operands());
    for (const bool as_a_kernel : {false, true}) {
      if (as_a_kernel) {
        run_as_a_kernel(&all);
      } else {
        all.run();
      }
      for (const Gradient which : kAll) {
        HostTensor& x = *tensor_of(&all, which);
        SCOPED_TRACE(text(name(dtype), " ", judge::kGradientNames[static_cast<std::size_t>(which)]));
        const auto check = [&] { return judge.check(which, x.view()); };
        EXPECT_TRUE(check().passed()) << check().why;
        float largest = 0;
        x.for_each([&](auto i, auto j, auto k, auto l) { largest = std::max(largest, std::abs(x.get(i, j, k, l))); });
        const float before = x.get(0, 0, 1, 0);
        x.set(0, 0, 1, 0, before + largest / 20);
        EXPECT_FALSE(check().passed()) << "one element is off by a twentieth of " << largest;
        x.set(0, 0, 1, 0, before);
        x.for_each([&](auto i, auto j, auto k, auto l) { x.set(i, j, k, l, 1.1F * x.get(i, j, k, l)); });
        EXPECT_FALSE(check().passed()) << "each is a tenth too large";
        x.for_each([&](auto i, auto j, auto k, auto l) { x.set(i, j, k, l, x.get(i, j, k, l) / 1.1F); });
        x.set(0, 0, 1, 0, std::numeric_limits<float>::quiet_NaN());
        EXPECT_FALSE(check().passed()) << "a NaN";
        x.set(0, 0, 1, 0, before);
      }
    }
  }
}

/// With one query and one key P is 1 and the naive computation makes no error at all. What is granted then lets a few
/// roundings pass, and the limit is where the report says.
TEST(JudgeBackward, TheLimitIsWhereTheReportSays) {
  for (const Case& row : {Case{"one", 1, 1, 1, 1, 1, 8, 8}, Case{"many", 1, 50, 60, 1, 1, 32, 32}}) {
    Gradients all(row, DType::f32, {});
    all.run();
    const GradientReference judge(all.x.problem, all.operands());
    const float right = all.grad_v.get(0, 0, 0, 0);
    const auto at = [&](double off) {
      all.grad_v.set(0, 0, 0, 0, static_cast<float>(right + off));
      return judge.check(Gradient::v, all.grad_v.view());
    };
    const judge::ErrorReport far = at(1);
    EXPECT_GT(far.granted, far.naive_error);
    EXPECT_LT(far.limit(), 2e-5);
    EXPECT_TRUE(at(0.8 * far.limit()).passed());
    EXPECT_FALSE(at(1.3 * far.limit()).passed());
  }
}

/// A gradient that is missing is missed, however large the number is that it should have been added to.
TEST(JudgeBackward, AnAdditionThatIsMissing) {
  Gradients all(large("x"), DType::bf16, {.grads = Grads::accumulate});
  fill(&all.grad_q, 1000);
  fill(&all.grad_k, 1000);
  fill(&all.grad_v, 1000);
  const GradientReference judge(all.x.problem, all.operands());
  EXPECT_FALSE(judge.check(Gradient::q, all.grad_q.view()).passed());
  all.run();
  EXPECT_TRUE(judge.check(Gradient::q, all.grad_q.view()).passed());
}

TEST(JudgeBackward, UnusedRowsThatMustBeZero) {
  Gradients all(Case{"x", 2, 6, 7, 2, 1, 8, 8}.used_q({4, 6}), DType::f32, {.zero_unused = true});
  const GradientReference judge(all.x.problem, all.operands());
  all.run();
  EXPECT_TRUE(judge.check(Gradient::q, all.grad_q.view()).passed());
  all.grad_q.set(0, 5, 0, 0, 1);
  EXPECT_FALSE(judge.check(Gradient::q, all.grad_q.view()).passed());
}

/// What is added is added to what is there.
TEST(JudgeBackward, GradientsThatAreAdded) {
  Gradients all(large("x"), DType::bf16, {.grads = Grads::accumulate});
  for (HostTensor* x : {&all.grad_q, &all.grad_k, &all.grad_v})
    x->for_each([&](auto i, auto j, auto k, auto l) { x->set(i, j, k, l, 3); });
  const GradientReference judge(all.x.problem, all.operands());
  all.run();
  for (const Gradient which : {Gradient::q, Gradient::k, Gradient::v})
    EXPECT_TRUE(judge.check(which, tensor_of(&all, which)->view()).passed());
  EXPECT_FALSE(judge.has(Gradient::bias));
  all.grad_q.for_each(
      [&](auto i, auto j, auto k, auto l) { all.grad_q.set(i, j, k, l, all.grad_q.get(i, j, k, l) - 3); });
  EXPECT_FALSE(judge.check(Gradient::q, all.grad_q.view()).passed());
}

/// Sets one element of a gradient to NaN and asks the judge, as if the result came from tensor cores or not.
bool may_be_nan(const GradientReference& judge, Gradients* all, Gradient which, const Shape& at, bool shares_tiles) {
  HostTensor& x = *tensor_of(all, which);
  const float before = x.get(at[0], at[1], at[2], at[3]);
  x.set(at[0], at[1], at[2], at[3], std::numeric_limits<float>::quiet_NaN());
  const bool passed = judge.check(which, x.view(), shares_tiles).passed();
  x.set(at[0], at[1], at[2], at[3], before);
  return passed;
}

/// The causal band hides key 5 from the queries before it. NaN in its column 3 of k may reach that column of their
/// grad_q on tensor cores, and nothing else; the same holds for q in grad_k and grad_o in grad_v, of keys that the
/// query does not see. On ref and on the CPU none of this may be.
TEST(JudgeBackward, ANanThatNobodySeesReachesItsColumnOnTensorCoresAlone) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    HostTensor Instance::*planted;  // none: grad_o
    Shape place;
    Gradient reaches;
    Shape unseen, seen, other_column, other_head;
  } table[] = {
      {&Instance::k, {0, 5, 0, 3}, Gradient::q, {0, 4, 1, 3}, {0, 6, 1, 3}, {0, 4, 1, 2}, {0, 4, 2, 3}},
      {&Instance::q, {0, 2, 1, 3}, Gradient::k, {0, 4, 0, 3}, {0, 1, 0, 3}, {0, 4, 0, 2}, {0, 4, 1, 3}},
      {nullptr, {0, 2, 1, 3}, Gradient::v, {0, 4, 0, 3}, {0, 1, 0, 3}, {0, 4, 0, 2}, {0, 4, 1, 3}},
  };
  for (const auto& row : table) {
    Gradients all(Case{"x", 2, 8, 8, 4, 2, 8, 8}.causal(), DType::bf16, {});
    HostTensor& planted = row.planted != nullptr ? all.x.*row.planted : all.grad_o;
    planted.set(row.place[0], row.place[1], row.place[2], row.place[3], nan);
    const GradientReference judge(all.x.problem, all.operands());
    all.run();
    const auto may = [&](const Shape& at, bool tiles) { return may_be_nan(judge, &all, row.reaches, at, tiles); };
    SCOPED_TRACE(judge::kGradientNames[static_cast<std::size_t>(row.reaches)]);
    EXPECT_TRUE(judge.check(row.reaches, tensor_of(&all, row.reaches)->view()).passed());
    EXPECT_TRUE(may(row.unseen, true));
    EXPECT_FALSE(may(row.unseen, false));
    EXPECT_FALSE(may(row.other_column, true));
    EXPECT_FALSE(may(row.other_head, true));
    Shape other_sequence = row.unseen;
    other_sequence[0] = 1;
    EXPECT_FALSE(may(other_sequence, true));
    HostTensor& x = *tensor_of(&all, row.reaches);
    EXPECT_TRUE(std::isnan(x.get(row.seen[0], row.seen[1], row.seen[2], row.seen[3]))) << "a pair that sees each other";
    x.set(row.seen[0], row.seen[1], row.seen[2], row.seen[3], 0);
    EXPECT_FALSE(judge.check(row.reaches, x.view(), true).passed()) << "there it must be NaN";
  }
}

/// A row whose lse is -inf sees no key, whatever it holds: on tensor cores NaN in its grad_o may reach that column of
/// grad_v, but never grad_bias.
TEST(JudgeBackward, ARowWithoutAnLseSeesNoKey) {
  Gradients all(Case{"x", 1, 6, 7, 2, 2, 8, 8}.bias(Bias::f32), DType::bf16, {.grad_bias = {1, 2, 6, 7}});
  all.x.lse.set(0, 1, 3, 0, -std::numeric_limits<float>::infinity());
  all.grad_o.set(0, 3, 1, 5, std::numeric_limits<float>::quiet_NaN());
  const GradientReference judge(all.x.problem, all.operands());
  all.run();
  EXPECT_TRUE(may_be_nan(judge, &all, Gradient::v, {0, 2, 1, 5}, true));
  EXPECT_FALSE(may_be_nan(judge, &all, Gradient::v, {0, 2, 1, 4}, true));
  EXPECT_FALSE(may_be_nan(judge, &all, Gradient::v, {0, 2, 0, 5}, true));
  EXPECT_FALSE(may_be_nan(judge, &all, Gradient::bias, {0, 1, 3, 2}, true));
}

/// An Inf in V of a key whose probability is too small for the types: what is Inf in the definition may be NaN. Where
/// the probability is larger it may not.
TEST(JudgeBackward, AnInfIsNanUnderAVanishingProbabilityAlone) {
  for (const float low : {-30.F, -100.F}) {  // P is 2^-43 and 2^-144
    Gradients all(Case{"x", 1, 1, 2, 1, 1, 4, 4}.bias(Bias::f32), DType::f32, {.grad_bias = {1, 1, 1, 2}});
    all.x.bias.set(0, 0, 0, 0, 0);
    all.x.bias.set(0, 0, 0, 1, low);
    all.run_forward();
    all.x.v.set(0, 1, 0, 0, std::numeric_limits<float>::infinity());
    all.grad_o.set(0, 0, 0, 0, 1);
    const GradientReference judge(all.x.problem, all.operands());
    all.run();
    EXPECT_TRUE(std::isinf(all.grad_bias.get(0, 0, 0, 1)));
    EXPECT_EQ(may_be_nan(judge, &all, Gradient::bias, {0, 0, 0, 1}, false), low < -70);
    EXPECT_FALSE(may_be_nan(judge, &all, Gradient::bias, {0, 0, 0, 0}, false));
  }
}

/// dS is 16 grad_o times 50 here. Past f16 it is Inf in a kernel on tensor cores, and what it is multiplied with
/// becomes Inf or NaN: rows of grad_q and grad_k, and no others. On the CPU and on ref it stays finite.
TEST(JudgeBackward, ADsPastF16OnTensorCoresAlone) {
  for (const float grad : {60.F, 100.F}) {  // dS is 48,000 and 80,000
    Gradients all(Case{"x", 1, 1, 2, 1, 1, 8, 16}, DType::f16, {.grads = Grads::f32});
    fill(&all.x.q, 0);  // so that each P is a half
    all.x.v.for_each([&](auto b, auto s, auto h, auto d) { all.x.v.set(b, s, h, d, s == 0 ? 100 : -100); });
    all.run_forward();
    fill(&all.grad_o, grad);
    const GradientReference judge(all.x.problem, all.operands());
    all.run();
    EXPECT_EQ(may_be_nan(judge, &all, Gradient::q, {0, 0, 0, 3}, true), grad == 100);
    EXPECT_EQ(may_be_nan(judge, &all, Gradient::k, {0, 1, 0, 3}, true), grad == 100);
    EXPECT_FALSE(may_be_nan(judge, &all, Gradient::v, {0, 1, 0, 3}, true));
    EXPECT_FALSE(may_be_nan(judge, &all, Gradient::q, {0, 0, 0, 3}, false));
  }
}

/// A score in the thousands that is too small by what tensor cores cut off in 14 steps of 16 products, all of one sign,
/// passes. One that has lost eight times as much does not. With one query grad_v is P times grad_o.
TEST(JudgeBackward, WhatTensorCoresCutOff) {
  Gradients all(Case{"x", 1, 1, 40, 1, 1, 214, 16}.scale(64), DType::f16, {.grads = Grads::f32});
  for (HostTensor* x : {&all.x.q, &all.x.k})
    x->for_each([&](auto i, auto j, auto k, auto l) { x->set(i, j, k, l, std::abs(x->get(i, j, k, l))); });
  all.run_forward();
  const GradientReference judge(all.x.problem, all.operands());
  for (const double steps : {14, 8 * 14}) {
    all.x.problem.score.scale = static_cast<float>(64 * (1 - steps * 0x1p-23));
    all.run();
    EXPECT_EQ(judge.check(Gradient::v, all.grad_v.view()).passed(), steps == 14);
  }
}

/// Where the softcap is saturated its derivative is the difference of two numbers near 1, so an error of a unit of f32
/// in tanh passes, and one of 64 units does not. With one query and one key grad_q is this derivative times k.
TEST(JudgeBackward, TheDerivativeOfASaturatedSoftcap) {
  Gradients all(Case{"x", 1, 1, 1, 1, 1, 8, 8}.softcap(0.5F), DType::f32, {});
  for (HostTensor* x : {&all.x.q, &all.x.k}) fill(x, 1);  // scale q.k is 2.8, and 5.7 in units of the softcap
  all.run_forward();
  fill(&all.x.o, 0);  // so that dP - D is not 0
  fill(&all.grad_o, 1);
  fill(&all.x.v, 1);
  const GradientReference judge(all.x.problem, all.operands());
  for (const double units : {1, 64}) {
    all.run();
    const double off = 2 * units * 0x1p-24 * 8 / std::sqrt(8.0);  // 1 - t^2 moves by twice as much as t
    all.grad_q.for_each([&](auto i, auto j, auto k, auto l) {
      all.grad_q.set(i, j, k, l, static_cast<float>(all.grad_q.get(i, j, k, l) + off));
    });
    EXPECT_EQ(judge.check(Gradient::q, all.grad_q.view()).passed(), units == 1);
  }
}

/// Gradients below 2^-126 may be flushed to 0, and those from 2^-122 on may not.
TEST(JudgeBackward, WhatIsFlushed) {
  for (const double size : {0x1p-130, 0x1p-122}) {
    Gradients all(Case{"x", 1, 1, 1, 1, 1, 8, 8}, DType::bf16, {});
    fill(&all.grad_o, static_cast<float>(size));
    const GradientReference judge(all.x.problem, all.operands());
    fill(&all.grad_v, 0);
    EXPECT_EQ(judge.check(Gradient::v, all.grad_v.view()).passed(), size < 0x1p-126);
  }
}

/// The same for an Inf that meets the derivative of the softcap: 4e-5 may not count as 0, and 1e-14 may.
TEST(JudgeBackward, AnInfIsNanUnderASaturatedSoftcapAlone) {
  for (const float key : {1.F, 3.F}) {
    Gradients all(Case{"x", 1, 1, 1, 1, 1, 8, 8}.softcap(0.5F), DType::f32, {});
    fill(&all.x.q, 1);
    fill(&all.x.k, key);
    all.run_forward();
    fill(&all.x.v, std::numeric_limits<float>::infinity());
    fill(&all.x.o, 0);
    fill(&all.grad_o, 1);
    const GradientReference judge(all.x.problem, all.operands());
    all.run();
    EXPECT_TRUE(std::isinf(all.grad_q.get(0, 0, 0, 0)));
    EXPECT_EQ(may_be_nan(judge, &all, Gradient::q, {0, 0, 0, 0}, false), key == 3);
  }
}

/// Rows of no sequence are not looked at, and all others are.
TEST(JudgeBackward, RowsOfNoSequence) {
  Gradients all(Case{"x", 2, 6, 7, 2, 1, 8, 8}.used_q({4, 6}).used_k({7, 2}), DType::f32, {});
  const GradientReference judge(all.x.problem, all.operands());
  all.run();
  EXPECT_TRUE(judge.is_row(Gradient::q, 0, 3));
  EXPECT_FALSE(judge.is_row(Gradient::q, 0, 4));
  EXPECT_FALSE(judge.is_row(Gradient::v, 1, 2));
  EXPECT_TRUE(judge.check(Gradient::q, all.grad_q.view()).passed()) << "rows 4 and 5 hold poison, which is NaN";
  EXPECT_TRUE(judge.check(Gradient::v, all.grad_v.view()).passed());
  all.grad_v.set(1, 1, 0, 0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(judge.check(Gradient::v, all.grad_v.view()).passed());
}

}  // namespace
}  // namespace falchion::testing
