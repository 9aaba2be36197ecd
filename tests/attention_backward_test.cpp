// tests/attention_backward_test.cpp: runs the backward pass of each case of cases.def on every path of this build in
// every dtype and judges the gradients by the tolerance rule (src/judge/attention_backward.hpp). Then it tests what
// kernels promise of their bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "api/data_of.hpp"
#include "base/divide.hpp"
#include "judge/attention_backward.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "support/compare.hpp"
#include "support/gradients.hpp"
#include "support/paths.hpp"

namespace falchion::testing {
namespace {

/// What case number `index` asks for besides its own features: each way to write a gradient comes up with each feature.
Wanted wanted_of(const Case& row, std::size_t index) {
  constexpr Grads kGrads[] = {Grads::rounded, Grads::f32, Grads::accumulate};
  Wanted wanted{.grad_lse = index % 2 == 1, .grads = kGrads[index % 3]};
  wanted.zero_unused = wanted.grads != Grads::accumulate && index % 4 < 2;
  if (row.bias_ == Case::Bias::broadcast) wanted.grad_bias = {1, 1, 1, row.s_k};
  if (row.bias_ == Case::Bias::same) wanted.grad_bias = {row.b, 1, row.s_q, row.s_k};
  if (row.bias_ == Case::Bias::f32) wanted.grad_bias = {row.b, row.h_q, row.s_q, row.s_k};
  if (row.options.alibi) wanted.grad_alibi = {row.slopes_by_batch_ ? row.b : 1, 1, row.h_q, 1};
  if (row.options.sinks) wanted.grad_sinks = {row.slopes_by_batch_ ? row.b : 1, 1, row.h_q, 1};
  return wanted;
}
Case case_of(std::size_t index) {
  Case row = cases()[index];
  row.options.lse = true;                              // the backward pass reads it
  std::int64_t total = row.lengths_q.empty() ? 0 : 3;  // rows of no sequence, which a GPU's workspace holds too
  for (const std::int32_t length : row.lengths_q) total += length;
  if (total > row.b * row.s_q) row.s_q = ceil_div(total, row.b);
  return row;
}

/// Gives each gradient what a run finds there: poison, or numbers where the run adds to what is there.
void prepare(Gradients& x) {
  std::uint64_t seed = 40;
  for (const judge::Gradient which : kEachGradient) {
    HostTensor gradient = gradient_of(x, which);  // another view of the same memory
    if (gradient.view().data == nullptr) continue;
    gradient.fill_poison();
    if (x.x.problem.grads == Grads::accumulate) gradient.fill_normal(seed++);
  }
}

/// The inputs and the gradients that they must give. They are computed once and serve all paths.
struct Prepared {
  Gradients x;
  judge::GradientReference reference;
  Prepared(const Case& row, DType dtype, const Wanted& wanted, std::uint64_t seed)
      : x(row, dtype, wanted, seed), reference((prepare(x), x.x.problem), x.operands()) {}
};
Prepared& prepared(std::size_t index, DType dtype) {
  static std::map<std::pair<std::size_t, DType>, std::unique_ptr<Prepared>> all;
  std::unique_ptr<Prepared>& one = all[{index, dtype}];
  const Case row = case_of(index);
  if (one == nullptr) one = std::make_unique<Prepared>(row, dtype, wanted_of(row, index), 100 + index);
  return *one;
}

/// Checks each gradient, and that what belongs to no row is as it was.
void expect_right(Prepared& all) {
  expect_judged(all.x, all.reference);
  if (all.x.x.problem.grads == Grads::accumulate) return;
  for (const judge::Gradient which : kEachGradient) {
    if (!all.reference.has(which)) continue;
    const char* name = judge::kGradientNames[static_cast<std::size_t>(which)];
    EXPECT_TRUE(written_whole(name, gradient_of(all.x, which),
                              [&](auto b, auto s, auto, auto) { return all.reference.is_row(which, b, s); }));
  }
}

/// The cases of a level share a test, so that ctest starts one process for each level and dtype and not for each case.
class AttentionBackward : public ::testing::TestWithParam<std::tuple<Path, DType>> {
 protected:
  void SetUp() override {
    const auto& [path, dtype] = GetParam();
    if (const std::string why_not = path.why_not(); !why_not.empty()) GTEST_SKIP() << path.name() << ": " << why_not;
    if (!path.has(dtype, kAttentionBackward))
      GTEST_SKIP() << path.name() << " " << name(dtype) << ": this build has no such variant";
  }
  const Path& path() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(AttentionBackward, Cases) {
  for (std::size_t i = 0; i < cases().size(); ++i) {
    SCOPED_TRACE(cases()[i].name);
    Prepared& all = prepared(i, dtype());
    prepare(all.x);
    all.x.run(path());
    expect_right(all);
  }
}

/// With one thread there is one part of the keys where three threads have several, so grad_q is summed in another
/// order.
TEST_P(AttentionBackward, OneThread) {
  if (path().on_gpu()) GTEST_SKIP() << "a GPU's plan counts no threads";
  for (std::size_t i = 0; i < cases().size(); i += 5) {
    SCOPED_TRACE(cases()[i].name);
    Prepared& all = prepared(i, dtype());
    prepare(all.x);
    all.x.run(path().target(1));
    expect_right(all);
  }
}

/// Where threads outnumber the heads the keys are cut into parts, each with its own sum of grad_q.
TEST_P(AttentionBackward, FewHeadsAreCutIntoParts) {
  Prepared all(Case{"parts", 1, 100, 1000, 2, 1, 32, 32}.causal(), dtype(), {.grad_lse = true}, 5);
  const Target target = path().target(4);
  Plan plan;
  ASSERT_TRUE(Plan::make(all.x.x.problem, Pass::backward, target, &plan));
  if (path().backend == Backend::cpu) { EXPECT_GE(data_of(plan)->attention().backward.parts, 4); }
  all.x.run(target);
  expect_right(all);
}

/// A plan gives the same bits each time, whatever its workspace held. The rows without features are those of the
/// variants that have none.
TEST_P(AttentionBackward, OnePlanGivesTheSameBitsEachTime) {
  for (const bool few_heads : {false, true}) {
    for (const bool plain : {false, true}) {
      const auto make = [&] {
        const Case row = Case{"bits", 2, 150, 600, 4, few_heads ? 1 : 2, 40, 24}.causal();
        if (plain) return Gradients(row, dtype());
        return Gradients(Case(row).alibi().bias(Case::Bias::same), dtype(),
                         {.grad_bias = {1, 4, 1, 600}, .grad_alibi = {1, 1, 4, 1}});
      };
      Gradients once = make(), again = make();
      BackwardRuns runs;
      ASSERT_TRUE(runs.make(path().target(), once.x.problem));
      once.run(&runs);
      for (int run = 0; run < 3; ++run) {
        again.run(&runs);  // its workspace holds what the last run left
        for_each_gradient(once, again, expect_same);
      }
    }
  }
}

/// any_order leaves the order of the sums of grad_q alone open: all other gradients have the same bits in each run. On
/// the CPU it changes nothing at all.
TEST_P(AttentionBackward, AnyOrderLeavesOtherGradientsTheirBits) {
  const Case row = path().on_gpu() ? Case{"order", 2, 300, 900, 4, 2, 64, 64}.causal()
                                   : Case{"order", 2, 150, 400, 2, 1, 32, 32}.causal();
  Prepared once(row, dtype(), {}, 1), again(row, dtype(), {}, 1);
  once.x.x.problem.any_order = again.x.x.problem.any_order = true;
  once.x.run(path());
  again.x.run(path());
  expect_right(once);
  expect_right(again);
  expect_same("grad_k", once.x.grad_k, again.x.grad_k);
  expect_same("grad_v", once.x.grad_v, again.x.grad_v);
  if (path().on_gpu()) return;
  Gradients ordered(row, dtype());
  ordered.run(path());
  for_each_gradient(once.x, ordered, expect_same);
}

/// A factor of 2 changes no digit, through all products.
TEST_P(AttentionBackward, TwiceTheGradientFromAbove) {
  if (dtype() == DType::f16) GTEST_SKIP() << "small numbers of f16 have fewer digits";
  for (const float softcap : {3.F, 0.F}) {
    const auto row = [&] { return Case{"twice", 1, 100, 300, 4, 2, 64, 48}.causal().softcap(softcap); };
    const Wanted wanted{.grad_lse = true};
    Gradients once(row(), dtype(), wanted), twice(row(), dtype(), wanted);
    const auto doubled = [](HostTensor& x) {
      x.for_each([&](auto i, auto j, auto k, auto l) { x.set(i, j, k, l, 2 * x.get(i, j, k, l)); });
    };
    doubled(twice.grad_o);
    doubled(twice.grad_lse);
    once.run(path());
    twice.run(path());
    for_each_gradient(once, twice, [](const char* name, const HostTensor& x, const HostTensor& y) {
      x.for_each([&](auto i, auto j, auto k, auto l) { ASSERT_EQ(2 * x.get(i, j, k, l), y.get(i, j, k, l)) << name; });
    });
  }
}

TEST_P(AttentionBackward, FrozenAsFull) {
  for (const bool plain : {false, true}) {
    expect_frozen_as_full(path().target(1), [&](std::uint8_t frozen) {
      const Case row = Case{"frozen", 2, 70, 290, 4, 2, 72, 40}.window(100, 20);
      return plain ? Gradients(row, dtype(), {.frozen = frozen})
                   : Gradients(Case(row).alibi(), dtype(), {.grad_alibi = {1, 1, 4, 1}, .frozen = frozen});
    });
  }
}

/// Sequences of a packed batch have the bits of separate calls.
TEST_P(AttentionBackward, PackedSequencesAreSeparateCalls) {
  const std::vector<std::int32_t> lengths_q{130, 1, 60}, lengths_k{300, 40, 65};
  Gradients packed(Case{"packed", 3, 130, 300, 6, 2, 40, 40}.packed(lengths_q, lengths_k).causal(), dtype());
  packed.run(path().target(1));
  for (std::int64_t b = 0; b < 3; ++b) {
    const Instance::Rows q = packed.x.q_rows(b), k = packed.x.k_rows(b);
    Gradients one(Case{"one", 1, q.length, k.length, 6, 2, 40, 40}.causal(), dtype());
    const auto copy = [](const HostTensor& from, std::int64_t begin, HostTensor& to) {
      to.for_each([&](auto i, auto s, auto h, auto d) { to.set(i, s, h, d, from.get(0, begin + s, h, d)); });
    };
    copy(packed.x.q, q.begin, one.x.q);
    copy(packed.x.k, k.begin, one.x.k);
    copy(packed.x.v, k.begin, one.x.v);
    copy(packed.x.o, q.begin, one.x.o);
    copy(packed.grad_o, q.begin, one.grad_o);
    one.x.lse.for_each(
        [&](auto, auto h, auto i, auto) { one.x.lse.set(0, h, i, 0, packed.x.lse.get(0, h, q.begin + i, 0)); });
    one.run(path().target(1));
    for (const auto& [from, begin, own] : {std::tuple{&packed.grad_q, q.begin, &one.grad_q},
                                           {&packed.grad_k, k.begin, &one.grad_k},
                                           {&packed.grad_v, k.begin, &one.grad_v}}) {
      HostTensor part = own->like();
      copy(*from, begin, part);
      expect_same("a gradient", part, *own);
    }
  }
}

/// The workspace holds b * s_q packed rows of queries; a sequence may be longer than s_q, and keys may be any number. A
/// GPU counts the three rows of no sequence too, since lengths lie on the device.
TEST_P(AttentionBackward, MorePackedRowsThanTheWorkspaceHolds) {
  if (path().backend == Backend::ref) GTEST_SKIP() << "the definition has no workspace";
  Prepared longer(Case{"longer", 2, 40, 150, 2, 1, 16, 16}.packed({70, 3}, {200, 90}), dtype(), {}, 5);
  longer.x.x.problem.s_k = 30;  // the forward pass takes no more than b * s_k keys
  longer.x.run(path());
  expect_right(longer);
  Gradients more(Case{"more", 2, 40, 50, 2, 1, 16, 16}.packed({70, 11}, {50, 50}), dtype());
  const Status status = run_backward(path().target(), more.x.problem, more.operands());
  EXPECT_EQ(status.code, Code::invalid);
  EXPECT_EQ(status.why, path().on_gpu() ? "q.shape[1] = 84: the packed rows are over b * s_q = 80: the workspace has "
                                          "no place for more"
                                        : "cu_seqlens_q[2] = 81 is over b * s_q = 80: s_q is the longest length "
                                          "allowed");
}

/// grad_o may have any strides, on its last axis too. On a GPU other strides may take another variant, whose sums have
/// another order.
TEST_P(AttentionBackward, AnyStridesOfGradO) {
  const auto row = [] { return Case{"strides", 2, 40, 50, 4, 2, 24, 24}; };
  Gradients dense(row(), dtype()), other(row(), dtype());
  const judge::GradientReference reference(dense.x.problem, dense.operands());
  other.grad_o = HostTensor(dtype(), other.x.o.shape(), Layout::transposed);
  other.grad_o.for_each(
      [&](auto i, auto j, auto k, auto l) { other.grad_o.set(i, j, k, l, dense.grad_o.get(i, j, k, l)); });
  dense.run(path());
  other.run(path());
  expect_judged(other, reference);
  if (!path().on_gpu()) for_each_gradient(dense, other, expect_same);
}

/// Each way to sum grad_bias, where a K/V head has few, some and many query heads, and to add it to what is there.
TEST_P(AttentionBackward, GradBiasSummedOverAnyAxes) {
  for (const auto& [h_q, h_k] : {std::pair<std::int64_t, std::int64_t>{2, 2}, {6, 2}, {5, 1}}) {
    for (unsigned summed = 0; summed < 16; ++summed) {
      const auto extent = [&](unsigned axis, std::int64_t all) { return (summed >> axis & 1U) != 0 ? 1 : all; };
      const Wanted wanted{.grad_bias = {extent(0, 2), extent(1, h_q), extent(2, 37), extent(3, 50)},
                          .grads = summed % 3 == 0 ? Grads::accumulate : Grads::rounded};
      SCOPED_TRACE(text("h_q ", h_q, ", summed ", summed));
      Prepared all(Case{"bias", 2, 37, 50, h_q, h_k, 16, 16}.bias(Case::Bias::f32).first_k({0, 7}).causal(), dtype(),
                   wanted, 3);
      all.x.run(path());
      expect_right(all);
    }
  }
}

/// A worker owns columns of the bias. With left padding its last key is not the last one of 32 in its block.
TEST_P(AttentionBackward, GradBiasBesideLeftPadding) {
  Gradients x(Case{"padded", 2, 5, 300, 2, 1, 8, 8}.bias(Case::Bias::f32).first_k({1, 13}), dtype(),
              {.grad_bias = {2, 1, 5, 300}});
  const judge::GradientReference reference(x.x.problem, x.operands());
  x.run(path());
  expect_judged(x, reference);
}

/// NaN, Inf and numbers that AMX cannot take apart, in rows and keys that others do not see. Where they may go is in
/// docs/contract.md, and the definition does as it says.
TEST_P(AttentionBackward, NumbersThatAreNotFinite) {
  const std::vector<Case> rows = {
      Case{"plain", 1, 150, 300, 2, 1, 40, 40},
      Case{"causal", 2, 150, 150, 2, 2, 40, 24}.causal(),
      Case{"window", 1, 100, 330, 6, 2, 64, 64}.window(30, 7),
      Case{"dropout", 1, 70, 90, 2, 2, 32, 32}.dropout(0.4F),
      Case{"mask", 1, 70, 90, 2, 2, 32, 32}.mask(),
      Case{"bias", 2, 70, 90, 2, 2, 32, 32}.bias(Case::Bias::f32).softcap(3),
      Case{"packed", 3, 70, 140, 4, 2, 40, 40}.packed({70, 1, 33}, {140, 40, 20}).causal().alibi()};
  const float special[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0x1p61F,
                           -std::numeric_limits<float>::infinity(), 0x1p-110F};
  for (std::uint64_t i = 0; i < rows.size(); ++i) {
    const Case& row = rows[i];
    for (std::uint64_t draw = 2 * i; draw < 2 * i + 2; ++draw) {
      SCOPED_TRACE(text(row.name, ", draw ", draw));
      Gradients x(row, dtype(), {.grad_lse = true}, 7 + draw);
      HostTensor* const inputs[] = {&x.x.q, &x.x.k, &x.x.v, &x.grad_o, &x.x.o, &x.x.lse, &x.grad_lse};
      for (std::uint64_t one = 0; one < 2; ++one) {
        HostTensor& to = *inputs[(draw + 3 * one) % 7];
        const Shape& n = to.shape();
        const auto at = [&](std::size_t axis) {
          return static_cast<std::int64_t>(random_uniform(90 + draw, 4 * one + axis) * static_cast<double>(n[axis]));
        };
        // f16 holds no such numbers, and only f32 is taken apart into parts that do not hold them.
        const float number = special[(draw + one) % (dtype() == DType::f32 && &to != &x.x.lse ? 5 : 2)];
        to.set(at(0), at(1), at(2), at(3), number);
      }
      Operands all = x.operands();
      const judge::GradientReference reference(x.x.problem, all);
      x.run(path());
      expect_judged(x, reference);
    }
  }
}

/// In f32 gradients may be so small that what is left of a number after its first bf16 part is none to AMX.
TEST_P(AttentionBackward, SmallGradients) {
  if (dtype() != DType::f32) GTEST_SKIP() << "only f32 is taken apart in this way";
  for (const float factor : {1e-12F, 1e-25F, 1e-31F, 1e25F}) {
    SCOPED_TRACE(factor);
    Gradients x(Case{"small", 1, 70, 140, 2, 1, 40, 40}.causal(), dtype());
    x.grad_o.for_each(
        [&](auto i, auto j, auto k, auto l) { x.grad_o.set(i, j, k, l, factor * x.grad_o.get(i, j, k, l)); });
    const judge::GradientReference reference(x.x.problem, x.operands());
    x.run(path());
    expect_judged(x, reference);
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionBackward);  // A build may have no variants.
INSTANTIATE_TEST_SUITE_P(Levels, AttentionBackward,
                         ::testing::Combine(::testing::ValuesIn(built_paths(kAttentionBackward)),
                                            ::testing::ValuesIn(kTypes)),
                         [](const auto& info) {
                           return text(std::get<0>(info.param).name(), "_", name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace falchion::testing
