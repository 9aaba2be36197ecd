// tests/backward_contract_test.cpp: tests each edge case that docs/contract.md names for the backward pass of
// attention. A case that needs nothing but a band, in bf16, takes the plain variants of a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "policy/dropout.hpp"
#include "support/gradients.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {
namespace {

using Bias = Case::Bias;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

class BackwardContract : public OnBackwardPaths {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackwardContract);  // A build may have no variants.
INSTANTIATE_TEST_SUITE_P(Paths, BackwardContract, ::testing::ValuesIn(built_paths(kAttentionBackward)), path_name);

Case small(const char* name) { return Case{name, 2, 4, 5, 4, 2, 8, 8}; }

void expect_all(const HostTensor& x, float value, const char* name) {
  x.for_each([&](auto i, auto j, auto k, auto l) { ASSERT_EQ(x.get(i, j, k, l), value) << name; });
}

// ---- The edge contract ----------------------------------------------------------------------------------------------

/// Rows 0 and 1 of 4 see none of 2 keys. Whatever their o and what comes from above hold, they add nothing.
TEST_P(BackwardContract, ARowThatSeesNoKey) {
  for (const auto& [dtype, plain] : {std::pair{DType::f32, false}, {DType::bf16, false}, {DType::bf16, true}}) {
    const Case band = Case{"empty_rows", 1, 4, 2, 2, 1, 8, 8}.causal();
    const Case row = plain ? band : Case(band).bias(Bias::f32).alibi();
    Wanted wanted{.grad_lse = true};
    if (!plain) wanted = {.grad_lse = true, .grad_bias = {1, 2, 4, 2}, .grad_alibi = {1, 1, 2, 1}};
    Gradients clean(row, dtype, wanted), spoilt(row, dtype, wanted);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 2; ++i) {
        ASSERT_EQ(clean.x.lse.get(0, h, i, 0), -kInf);
        spoilt.grad_lse.set(0, h, i, 0, kNan);
        for (std::int64_t d = 0; d < 8; ++d) {
          spoilt.grad_o.set(0, i, h, d, d % 2 == 0 ? kNan : kInf);
          spoilt.x.o.set(0, i, h, d, kNan);
        }
      }
    }
    clean.run(GetParam());
    spoilt.run(GetParam());
    expect_untouched(clean, spoilt);
    for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(spoilt.grad_q.get(0, 1, 0, d), 0);
    if (!plain) { EXPECT_EQ(spoilt.grad_bias.get(0, 0, 1, 0), 0); }
  }
}

/// An lse of -inf says that the row has seen nothing, also where the band lets it see keys: its o is that of no key.
TEST_P(BackwardContract, ARowWhoseLseIsMinusInfinity) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Gradients nothing(small("nothing"), dtype, {}), spoilt(small("spoilt"), dtype, {});
    for (std::int64_t h = 0; h < 4; ++h) {
      spoilt.x.lse.set(1, h, 2, 0, -kInf);
      for (std::int64_t d = 0; d < 8; ++d) {
        nothing.grad_o.set(1, 2, h, d, 0);  // what adds nothing either
        spoilt.x.o.set(1, 2, h, d, kNan);
      }
    }
    nothing.run(GetParam());
    spoilt.run(GetParam());
    expect_untouched(nothing, spoilt);
    for (std::int64_t h = 0; h < 4; ++h) EXPECT_EQ(spoilt.grad_q.get(1, 2, h, 5), 0);
  }
}

TEST_P(BackwardContract, NoKeysAndNoQueries) {
  for (const bool plain : {false, true}) {
    const auto make = [&](Case row, const Wanted& wanted) {
      return plain ? Gradients(row, DType::bf16) : Gradients(std::move(row).alibi(), DType::bf16, wanted);
    };
    Gradients no_keys = make(Case{"no_keys", 2, 3, 0, 2, 1, 8, 8}, {.grad_alibi = {1, 1, 2, 1}});
    no_keys.run(GetParam());
    expect_all(no_keys.grad_q, 0, "grad_q");
    expect_all(no_keys.grad_alibi, 0, "grad_alibi");
    Gradients no_queries = make(Case{"no_queries", 2, 0, 3, 2, 1, 8, 8}, {.grad_alibi = {1, 1, 2, 1}});
    no_queries.run(GetParam());
    expect_all(no_queries.grad_k, 0, "grad_k");
    expect_all(no_queries.grad_v, 0, "grad_v");
    expect_all(no_queries.grad_alibi, 0, "grad_alibi");
    Gradients no_heads = make(Case{"no_heads", 2, 3, 4, 0, 2, 8, 8}, {.grad_alibi = {1, 1, 0, 1}});
    no_heads.run(GetParam());
    expect_all(no_heads.grad_k, 0, "grad_k");
    expect_all(no_heads.grad_v, 0, "grad_v");
    Gradients no_batch = make(Case{"no_batch", 0, 3, 4, 2, 1, 8, 8}.bias(plain ? Bias::none : Bias::broadcast),
                              {.grad_bias = {1, 1, 1, 4}, .grad_alibi = {1, 1, 2, 1}});
    no_batch.run(GetParam());
    expect_all(no_batch.grad_bias, 0, "grad_bias");
    expect_all(no_batch.grad_alibi, 0, "grad_alibi");
  }
}

/// Keys 4 and 5 of a causal problem with 4 queries (top left) are seen by no query.
TEST_P(BackwardContract, KeysThatNobodySees) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Gradients all(Case{"keys", 1, 4, 6, 2, 1, 8, 8}.causal(Align::top_left), dtype, {});
    all.run(GetParam());
    for (std::int64_t j = 4; j < 6; ++j) {
      for (std::int64_t d = 0; d < 8; ++d) {
        EXPECT_EQ(all.grad_k.get(0, j, 0, d), 0);
        EXPECT_EQ(all.grad_v.get(0, j, 0, d), 0);
      }
    }
  }
}

/// Whether a row of a gradient of the first head has a NaN, which is not one that a GPU may leave where nothing is
/// seen.
bool has_nan(const Gradients& all, judge::Gradient which, std::int64_t row) {
  const HostTensor& x = gradient_of(all, which);
  for (std::int64_t d = 0; d < x.shape()[3]; ++d) {
    if (std::isnan(x.get(0, row, 0, d)) && !all.unseen_may_reach(which, {0, row, 0, d})) return true;
  }
  return false;
}

/// A NaN in what row 2 alone has reaches its own grad_q, and the gradients of the keys that it sees.
TEST_P(BackwardContract, NanOfARow) {
  using judge::Gradient;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const char* where : {"q", "o", "grad_o", "grad_lse", "lse"}) {
      SCOPED_TRACE(text(name(dtype), ", ", where));
      Gradients all(Case{"nan", 1, 4, 4, 1, 1, 8, 8}.causal(), dtype, {.grad_lse = true});
      const std::string at = where;
      if (at == "q") all.x.q.set(0, 2, 0, 3, kNan);
      if (at == "o") all.x.o.set(0, 2, 0, 3, kNan);
      if (at == "grad_o") all.grad_o.set(0, 2, 0, 3, kNan);
      if (at == "grad_lse") all.grad_lse.set(0, 0, 2, 0, kNan);
      if (at == "lse") all.x.lse.set(0, 0, 2, 0, kNan);
      all.run(GetParam());
      for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(has_nan(all, Gradient::q, i), i == 2) << "row " << i;
      for (std::int64_t j = 0; j < 4; ++j) {
        EXPECT_EQ(has_nan(all, Gradient::k, j), j <= 2) << "key " << j;
        EXPECT_EQ(has_nan(all, Gradient::v, j), j <= 2 && at != "grad_lse" && at != "o") << "key " << j;
      }
    }
  }
}

/// Rows 2 and 3 see key 2. A NaN in its k or v reaches their grad_q and its own grad_k. One in k makes their P of this
/// key NaN, and so its grad_v; the lse, which is given, and the P of other keys stay as they are.
TEST_P(BackwardContract, NanOfAKey) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool in_k : {true, false}) {
      SCOPED_TRACE(text(name(dtype), in_k ? ", in k" : ", in v"));
      Gradients all(Case{"nan", 1, 4, 4, 1, 1, 8, 8}.causal(), dtype, {});
      (in_k ? all.x.k : all.x.v).set(0, 2, 0, 3, kNan);
      all.run(GetParam());
      for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(std::isnan(all.grad_q.get(0, i, 0, 0)), i >= 2) << i;
      EXPECT_TRUE(std::isnan(all.grad_k.get(0, 2, 0, 0)));
      EXPECT_EQ(std::isnan(all.grad_v.get(0, 2, 0, 0)), in_k);
      EXPECT_FALSE(std::isnan(all.grad_v.get(0, 3, 0, 0)));
    }
  }
}

/// Rows 1, 2 and 3 score -inf at key 1, whose k holds an infinity; a bias of -inf hides it from row 3. Such a score is
/// no mask: P is 0, and 0 times a NaN of v is NaN.
TEST_P(BackwardContract, AScoreOfMinusInfinityIsNoMask) {
  for (const auto& [dtype, plain] : {std::pair{DType::f32, true}, {DType::f32, false}, {DType::bf16, true}}) {
    const Case band = Case{"infinite", 1, 4, 4, 1, 1, 8, 8}.causal();
    Gradients all(plain ? band : Case(band).bias(Bias::f32), dtype, plain ? Wanted{} : Wanted{.grad_bias{1, 1, 4, 4}});
    for (std::int64_t i = 0; i < 4; ++i) all.x.q.set(0, i, 0, 3, 1);
    all.x.k.set(0, 1, 0, 3, -kInf);
    if (!plain) all.x.bias.set(0, 0, 3, 1, -kInf);
    all.run_forward();
    all.x.v.set(0, 1, 0, 3, kNan);
    all.run(GetParam());
    for (std::int64_t i = 0; i < 4; ++i) {
      const bool sees = i >= 1 && (plain || i < 3);
      EXPECT_EQ(std::isnan(all.grad_q.get(0, i, 0, 0)), sees) << i;
      EXPECT_TRUE(plain || std::isnan(all.grad_bias.get(0, 0, i, 1)) == sees) << i;
      EXPECT_EQ(has_nan(all, judge::Gradient::k, i), i == 1) << i;
      EXPECT_FALSE(has_nan(all, judge::Gradient::v, i)) << i;
    }
  }
}

/// No query sees key 3: the band hides it, the mask, or a bias of -inf. Whatever it holds has no effect. On a GPU the
/// NaN of its k may reach grad_q.
TEST_P(BackwardContract, NanThatNobodySees) {
  const auto make = [](DType dtype, int hides, bool spoil) {
    Case row{"unseen", 1, 3, 4, 1, 1, 8, 8};
    if (hides == 0) row = std::move(row).causal(Align::top_left);
    if (hides == 1) row = std::move(row).mask();
    if (hides == 2) row = std::move(row).bias(Bias::f32);
    Gradients all(row, dtype, {});
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 4; ++j) {
        if (hides == 1) all.x.mask.set(0, 0, i, j, j < 3 ? 1 : 0);
        if (hides == 2) all.x.bias.set(0, 0, i, j, j < 3 ? 0 : -kInf);
      }
    }
    all.run_forward();
    for (std::int64_t d = 0; spoil && d < 8; ++d) {
      all.x.k.set(0, 3, 0, d, kNan);
      all.x.v.set(0, 3, 0, d, kInf);
    }
    all.run(GetParam());
    return all;
  };
  for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 2e-6}, {DType::bf16, 0.02}}) {
    for (const int hides : {0, 1, 2}) {
      const Gradients clean = make(dtype, hides, false), spoilt = make(dtype, hides, true);
      expect_untouched(clean, spoilt, tolerance);  // AMX does not compute rows with a NaN by its tiles
      for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(spoilt.grad_k.get(0, 3, 0, d), 0);
    }
  }
}

TEST_P(BackwardContract, GradientsPastF16) {
  Gradients all(small("large"), DType::f16, {});
  all.grad_o.for_each([&](auto i, auto j, auto k, auto l) { all.grad_o.set(i, j, k, l, 60000); });
  all.run(GetParam());
  int infinite = 0;
  all.grad_v.for_each(
      [&](auto i, auto j, auto k, auto l) { infinite += std::isinf(all.grad_v.get(i, j, k, l)) ? 1 : 0; });
  EXPECT_GT(infinite, 0);
}

/// With any_order sums of grad_q may come in any order on a GPU; ref and the CPU have one order in both cases. Two runs
/// could agree and be wrong, so both are judged.
TEST_P(BackwardContract, OnePlanGivesTheSameBitsEachTime) {
  for (const bool any_order : {false, true}) {
    for (const float dropout : {0.3F, 0.F}) {
      const auto run = [&](const char* name) {
        Gradients x(Case{name, 2, 200, 400, 4, 2, 16, 16}.dropout(dropout).causal(), DType::bf16, {});
        x.x.problem.any_order = any_order;
        const judge::GradientReference reference(x.x.problem, x.operands());
        x.run(GetParam());
        expect_judged(x, reference);
        return x;
      };
      const Gradients once = run("once"), again = run("again");
      expect_same("grad_k", once.grad_k, again.grad_k);
      expect_same("grad_v", once.grad_v, again.grad_v);
      if (!any_order || !GetParam().on_gpu()) expect_same("grad_q", once.grad_q, again.grad_q);
    }
  }
}

/// With p = 1 nothing of o is left, and the gradient of the lse goes on by itself.
TEST_P(BackwardContract, DropoutOfEverything) {
  Gradients with_lse(small("lse").dropout(1), DType::f32, {.grad_lse = true});
  with_lse.run(GetParam());
  expect_all(with_lse.grad_v, 0, "grad_v");
  float largest = 0;
  with_lse.grad_q.for_each(
      [&](auto i, auto j, auto k, auto l) { largest = std::max(largest, std::abs(with_lse.grad_q.get(i, j, k, l))); });
  EXPECT_GT(largest, 0.01f);
  Gradients without(small("none").dropout(1), DType::f32, {});
  without.run(GetParam());
  expect_all(without.grad_q, 0, "grad_q");
  expect_all(without.grad_k, 0, "grad_k");
}

/// A dropped key has no part in grad_v, whatever grad_o holds, and its V none in grad_q.
TEST_P(BackwardContract, NanInVOfADroppedKey) {
  Gradients all(Case{"dropped", 1, 1, 8, 1, 1, 8, 8}.dropout(0.5f), DType::f32, {});
  const DropoutMask dropout = DropoutMask::make(0.5f, all.x.rng.seed, all.x.rng.offset);
  int dropped = 0;
  for (std::int64_t j = 0; j < 8; ++j) {
    if (dropout.keep(0, 0, 0, j)) continue;
    ++dropped;
    for (std::int64_t d = 0; d < 8; ++d) all.x.v.set(0, j, 0, d, kNan);
  }
  ASSERT_GT(dropped, 0);
  all.run(GetParam());
  all.grad_q.for_each([&](auto i, auto j, auto k, auto l) { ASSERT_FALSE(std::isnan(all.grad_q.get(i, j, k, l))); });
  all.grad_k.for_each([&](auto i, auto j, auto k, auto l) { ASSERT_FALSE(std::isnan(all.grad_k.get(i, j, k, l))); });
  for (std::int64_t j = 0; j < 8; ++j) {
    if (!dropout.keep(0, 0, 0, j)) { EXPECT_EQ(all.grad_v.get(0, j, 0, 0), 0); }
  }
}

/// On a GPU the NaN may reach its column of grad_v of a dropped key.
TEST_P(BackwardContract, NanInGradOfADroppedKey) {
  Gradients all(Case{"dropped", 1, 1, 8, 1, 1, 8, 8}.dropout(0.5f), DType::f32, {});
  const DropoutMask dropout = DropoutMask::make(0.5f, all.x.rng.seed, all.x.rng.offset);
  all.grad_o.set(0, 0, 0, 3, kNan);
  all.run(GetParam());
  for (std::int64_t j = 0; j < 8; ++j) {
    EXPECT_EQ(has_nan(all, judge::Gradient::v, j), dropout.keep(0, 0, 0, j)) << j;
    EXPECT_EQ(all.grad_v.get(0, j, 0, 2) == 0, !dropout.keep(0, 0, 0, j)) << j;
  }
}

/// Where the softcap is saturated the score no longer depends on q and k.
TEST_P(BackwardContract, ASaturatedSoftcap) {
  Gradients all(small("cap").softcap(1e-3f).scale(100), DType::f32, {});
  all.run(GetParam());
  expect_all(all.grad_q, 0, "grad_q");
  expect_all(all.grad_k, 0, "grad_k");
}

TEST_P(BackwardContract, UnusedRowsAreLeftAloneOrZeroed) {
  for (const bool packed : {false, true}) {
    const auto row = [&] {
      return packed ? Case{"packed", 2, 6, 5, 4, 2, 8, 8}.packed({4, 3}, {5, 2})
                    : small("unused").used_q({2, 4}).used_k({5, 1}).first_k({1, 0});
    };
    for (const bool zero : {false, true}) {
      Gradients all(row(), DType::bf16, {.zero_unused = zero});
      all.run(GetParam());
      const auto check = [&](const char* name, const HostTensor& x, const auto& is_row) {
        x.for_each([&](auto b, auto s, auto h, auto d) {
          if (is_row(b, s)) {
            ASSERT_FALSE(x.is_poison(b, s, h, d)) << name;
          } else if (zero) {
            ASSERT_EQ(x.get(b, s, h, d), 0) << name;
          } else {
            ASSERT_TRUE(x.is_poison(b, s, h, d)) << name;
          }
        });
      };
      check("grad_q", all.grad_q, [&](auto b, auto s) { return all.is_row(b, s); });
      check("grad_k", all.grad_k, [&](auto b, auto s) { return all.is_key(b, s); });
      check("grad_v", all.grad_v, [&](auto b, auto s) { return all.is_key(b, s); });
    }
  }
}

/// The gradient of a plain sum of o is one number for all elements. On a GPU D is then summed in another order.
TEST_P(BackwardContract, AGradientFromAboveWithoutStrides) {
  Gradients all(small("sum"), DType::f32, {}), same(small("sum"), DType::f32, {});
  all.grad_o.for_each([&](auto i, auto j, auto k, auto l) { all.grad_o.set(i, j, k, l, 1); });
  all.run(GetParam());
  float one = 1;
  Operands operands = same.operands();
  operands.grad_o.data = &one;
  operands.grad_o.stride = {0, 0, 0, 0};
  const Status status = run_backward(backward_target(GetParam(), DType::f32), same.x.problem, operands);
  ASSERT_TRUE(status) << status.why;
  expect_all_near(all, same, GetParam().on_gpu() ? 2e-6 : 0);
}

/// One struct serves both passes: each looks at its own tensors alone.
TEST_P(BackwardContract, OneStructServesBothPasses) {
  Gradients all(small("both").causal(), DType::bf16, {});
  Plan plan;
  ASSERT_TRUE(Plan::make(all.x.problem, Pass::forward, Backend::ref, &plan));
  const Status status = plan.run(all.operands(), nullptr, 0);
  EXPECT_TRUE(status) << status.why;
  EXPECT_TRUE(all.grad_q.is_poison(0, 0, 0, 0));
}

// ---- One call, C ------------------------------------------------------------------------------------------

TEST(BackwardOneCall, TheGradientsThatAreGivenAreComputed) {
  Gradients planned(small("planned"), DType::f32, {}), called(small("called"), DType::f32, {});
  planned.run(host_target());  // the operands lie there
  Operands operands = called.operands();
  operands.grad_k = operands.grad_v = {};
  Status status = attention(operands);
  ASSERT_TRUE(status) << status.why;
  EXPECT_EQ(called.grad_q.get(1, 2, 3, 4), planned.grad_q.get(1, 2, 3, 4));
  EXPECT_TRUE(called.grad_k.is_poison(0, 0, 0, 0));
  operands = called.operands();
  operands.grad_v = {};
  status = attention(operands, {}, Backend::ref);
  EXPECT_EQ(status.why, "grad_v.shape[0] = 0, but the problem's is 2") << "grad_k and grad_v come together";
  operands = called.operands();
  operands.grad_o = {};
  Target nonsense;
  nonsense.cpu_level = "nonsense";
  EXPECT_EQ(attention(called.operands(), {}, nonsense).code, Code::unsupported) << "a level is not passed over";
  EXPECT_EQ(attention(operands, {}, Backend::ref).why, "grad_o.shape[0] = 0, but the problem's is 2");
}

TEST(BackwardC, TheSameAsInCpp) {
  const Wanted wanted{.grad_lse = true, .grad_bias = {1, 4, 1, 5}, .grad_alibi = {1, 1, 4, 1}};
  const auto row = [] { return small("c").bias(Bias::f32).alibi().causal(); };
  Gradients cpp(row(), DType::bf16, wanted), c(row(), DType::bf16, wanted);
  cpp.run();
  const fal_attention problem = to_c(c.x.problem);
  const fal_operands operands = to_c(c.operands());
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_plan_make(&problem, FAL_BACKWARD, &target, &plan), FAL_OK) << fal_why();
  EXPECT_EQ(fal_plan_run(plan, &operands, nullptr, 0, nullptr), FAL_OK) << fal_why();
  fal_plan_free(plan);
  for_each_gradient(cpp, c, expect_same);
}

}  // namespace
}  // namespace falchion::testing
