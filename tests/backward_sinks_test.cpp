// tests/backward_sinks_test.cpp: the gradient of attention sinks in the corners that docs/contract.md names. That it is
// the derivative: backward_derivative_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "support/gradients.hpp"

namespace falchion::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

class BackwardSinks : public OnBackwardPaths {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackwardSinks);  // A build may have no variants.
INSTANTIATE_TEST_SUITE_P(Paths, BackwardSinks, ::testing::ValuesIn(built_paths(kAttentionBackward)), path_name);

Wanted wanted(std::int64_t b, std::int64_t h_q) { return {.grad_lse = true, .grad_sinks = {b, 1, h_q, 1}}; }

/// The order of the sums depends on how many sequences there are and how long they are.
TEST_P(BackwardSinks, OfFewAndOfManySequences) {
  const Case all[] = {
      Case{"one", 1, 700, 40, 2, 1, 64, 64}.sinks(),
      Case{"three", 3, 130, 40, 4, 2, 64, 64}.sinks_by_batch().causal(Align::top_left),
      Case{"many", 70, 5, 9, 4, 2, 32, 32}.sinks_by_batch().causal(),
      Case{"wide", 2, 40, 70, 2, 1, 192, 192}.sinks().causal(),
      Case{"packed", 5, 70, 50, 4, 2, 64, 64}.sinks_by_batch().packed({70, 0, 1, 33, 64}, {40, 3, 0, 50, 7})};
  for (const Case& row : all) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool by_batch : {false, true}) {
        SCOPED_TRACE(text(row.name, " ", name(dtype), by_batch ? ", by batch" : ""));
        Gradients x(row, dtype, wanted(by_batch ? row.b : 1, row.h_q));
        x.run(GetParam());
        expect_judged(x, judge::GradientReference(x.x.problem, x.operands()));
      }
    }
  }
}

TEST_P(BackwardSinks, AreSummedOverTheSequencesThatShareThem) {
  const Case row = Case{"shared", 3, 20, 30, 4, 2, 32, 32}.sinks();
  Gradients whole(row, DType::f32, wanted(1, 4)), each(row, DType::f32, wanted(3, 4));
  whole.run(GetParam());
  each.run(GetParam());
  for (std::int64_t h = 0; h < 4; ++h) {
    const float sum =
        each.grad_sinks.get(0, 0, h, 0) + each.grad_sinks.get(1, 0, h, 0) + each.grad_sinks.get(2, 0, h, 0);
    EXPECT_NEAR(whole.grad_sinks.get(0, 0, h, 0), sum, 1e-5);
  }
}

/// A row that sees no key has the sink as its LSE, and hands all of grad_lse on to it.
TEST_P(BackwardSinks, OfRowsThatSeeNoKey) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Gradients x(Case{"no_keys", 2, 6, 0, 4, 2, 64, 64}.sinks(), dtype, wanted(1, 4));
    x.run(GetParam());
    for (std::int64_t h = 0; h < 4; ++h) {
      float sum = 0;
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t i = 0; i < 6; ++i) sum += x.grad_lse.get(b, h, i, 0);
      EXPECT_NEAR(x.grad_sinks.get(0, 0, h, 0), sum, 1e-5);
    }
  }
}

/// The same beside rows that see keys, in each size of tile: rows above a diagonal, and a sequence without keys.
TEST_P(BackwardSinks, OfRowsThatSeeNoKeyAmongOthers) {
  for (const std::int64_t d : {64, 128, 192, 256}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(text("d ", d, " ", name(dtype)));
      for (const Case& row : {Case{"causal", 2, 140, 75, 4, 2, d, d}.sinks().causal(),
                              Case{"used", 2, 70, 90, 4, 2, d, d}.sinks().used_k({0, 90}),
                              Case{"far", 2, 70, 90, 4, 2, d, d}.sinks().causal(Align::at, -1000)}) {
        SCOPED_TRACE(row.name);
        Gradients x(row, dtype, wanted(2, 4));
        x.run(GetParam());
        expect_judged(x, judge::GradientReference(x.x.problem, x.operands()));
        for (std::int64_t h = 0; h < 4 && row.name == std::string("used"); ++h) {
          float sum = 0;
          for (std::int64_t i = 0; i < 70; ++i) sum += x.grad_lse.get(0, h, i, 0);
          EXPECT_NEAR(x.grad_sinks.get(0, 0, h, 0), sum, 2e-5);
        }
      }
    }
  }
}

TEST_P(BackwardSinks, WithoutRowsOrSequencesAreZero) {
  for (const Case& row : {Case{"no_queries", 2, 0, 3, 2, 1, 64, 64}, Case{"no_batch", 0, 3, 4, 2, 1, 64, 64}}) {
    Gradients x(Case(row).sinks(), DType::bf16, wanted(1, 2));
    x.run(GetParam());
    for (std::int64_t h = 0; h < 2; ++h) EXPECT_EQ(x.grad_sinks.get(0, 0, h, 0), 0) << row.name;
  }
}

/// A row whose lse is -inf counts for nothing, whatever it holds, and a sink of -inf has a gradient of 0.
TEST_P(BackwardSinks, OfMinusInfinityAndOfRowsWhoseLseIs) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Case row = Case{"x", 1, 40, 50, 2, 1, 64, 64}.sinks();
    Gradients clean(row, dtype, wanted(1, 2)), spoilt(row, dtype, wanted(1, 2));
    for (std::int64_t h = 0; h < 2; ++h) {
      clean.x.lse.set(0, h, 7, 0, -kInf);
      spoilt.x.lse.set(0, h, 7, 0, -kInf);
      spoilt.grad_lse.set(0, h, 7, 0, kNan);
      for (std::int64_t d = 0; d < 64; ++d) spoilt.x.o.set(0, 7, h, d, kNan);
    }
    for (Gradients* x : {&clean, &spoilt}) {
      x->x.sinks.set(0, 0, 1, 0, -kInf);
      x->run(GetParam());
    }
    EXPECT_TRUE(std::isfinite(clean.grad_sinks.get(0, 0, 0, 0)));
    EXPECT_EQ(clean.grad_sinks.get(0, 0, 0, 0), spoilt.grad_sinks.get(0, 0, 0, 0));
    EXPECT_EQ(clean.grad_sinks.get(0, 0, 1, 0), 0);
  }
}

/// NaN in what a row has reaches the gradient of its head and of no other.
TEST_P(BackwardSinks, NanOfARowReachesItsHead) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Gradients x(Case{"x", 1, 40, 50, 4, 2, 64, 64}.sinks(), dtype, wanted(1, 4));
    x.grad_lse.set(0, 2, 11, 0, kNan);
    x.run(GetParam());
    for (std::int64_t h = 0; h < 4; ++h) EXPECT_EQ(std::isnan(x.grad_sinks.get(0, 0, h, 0)), h == 2);
  }
}

TEST_P(BackwardSinks, AloneAsBesideAllOthers) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_frozen_as_full(backward_target(GetParam(), dtype), [&](std::uint8_t frozen) {
      Wanted all = wanted(1, 4);
      all.frozen = frozen;
      return Gradients(Case{"frozen", 2, 50, 60, 4, 2, 64, 64}.sinks().causal(), dtype, all);
    });
  }
}

TEST_P(BackwardSinks, AreAddedToWhatIsThere) {
  const Case row = Case{"added", 2, 20, 30, 4, 2, 64, 64}.sinks();
  Gradients once(row, DType::bf16, wanted(1, 4));
  Wanted accumulated = wanted(1, 4);
  accumulated.grads = Grads::accumulate;
  Gradients added(row, DType::bf16, accumulated);
  for (HostTensor* x : {&added.grad_q, &added.grad_k, &added.grad_v, &added.grad_sinks}) fill(x, 3);
  once.run(GetParam());
  added.run(GetParam());
  for (std::int64_t h = 0; h < 4; ++h)
    EXPECT_NEAR(added.grad_sinks.get(0, 0, h, 0), once.grad_sinks.get(0, 0, h, 0) + 3, 1e-5);
}

TEST(BackwardSinksRefusals, AGradientOfSinksThatAreNotThere) {
  Attention a = make_instance(Case{"x", 1, 8, 8, 2, 2, 16, 16}, DType::bf16).problem;
  a.grad_sinks = true;
  Plan plan;
  const Status status = Plan::make(a, Pass::backward, {}, &plan);
  EXPECT_EQ(status.code, Code::invalid);
  EXPECT_EQ(status.why, "grad_sinks without sinks: there are no sinks to have a gradient");
}

}  // namespace
}  // namespace falchion::testing
