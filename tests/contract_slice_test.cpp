// tests/contract_slice_test.cpp: a run may be a slice of a larger problem: a chunk of a prompt, or one step of a ring.
// Align::at says where its diagonal lies, and Rng::origin which part of the larger problem's dropout mask is its own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "policy/dropout.hpp"
#include "support/contract.hpp"
#include "support/gradients.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {
namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 30;

double limit_of(DType dtype) { return dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 4e-3 : 3e-2; }

/// Copies the rows of `from` from `row` on into all rows of `to`.
void copy_rows(const HostTensor& from, std::int64_t row, HostTensor* to) {
  to->for_each([&](auto b, auto s, auto h, auto d) { to->set(b, s, h, d, from.get(b, row + s, h, d)); });
}

/// The rows of `whole` from `row` on and the keys from `key` on, as many as `slice` has.
Instance slice_of(const Instance& whole, const Case& slice, std::int64_t row, std::int64_t key, DType dtype) {
  Instance x = make_instance(slice, dtype);
  copy_rows(whole.q, row, &x.q);
  copy_rows(whole.k, key, &x.k);
  copy_rows(whole.v, key, &x.v);
  return x;
}

TEST(Slice, AChunkOfAPromptIsItsRows) {
  on_every_path_and_named_hopper([](const Path& path, DType dtype) {
    Instance whole = make_instance(Case{"whole", 1, 150, 150, 4, 2, 64, 64}.causal(), dtype);
    ASSERT_TRUE(run(path, &whole));
    for (const std::int64_t row : {0, 1, 63, 100}) {
      Instance chunk = slice_of(whole, Case{"chunk", 1, 50, 150, 4, 2, 64, 64}.causal(Align::at, row), row, 0, dtype);
      ASSERT_TRUE(run(path, &chunk));
      EXPECT_TRUE(matches(chunk, Reference(chunk)));
      chunk.o.for_each([&](auto b, auto s, auto h, auto d) {
        ASSERT_NEAR(chunk.o.get(b, s, h, d), whole.o.get(b, row + s, h, d), limit_of(dtype)) << row << " " << s;
      });
    }
  });
}

/// The step of a ring has the keys of another device, which lie before, beside or behind its queries.
TEST(Slice, TheStepsOfARingMergeToTheWhole) {
  on_every_path_and_named_hopper([](const Path& path, DType dtype) {
    if (dtype != DType::f32) return;  // merge() takes parts in f32
    const Case row = Case{"whole", 1, 120, 120, 2, 1, 64, 64};
    for (const bool window : {false, true}) {
      Instance whole = make_instance(window ? Case(row).window(50, 10) : Case(row).causal(), dtype);
      ASSERT_TRUE(run(path, &whole));
      HostTensor o, lse;
      for (std::int64_t key = 0; key < 120; key += 40) {
        const Case part = Case{"step", 1, 40, 40, 2, 1, 64, 64};
        Instance step = slice_of(
            whole, window ? Case(part).window(50, 10, Align::at, 40 - key) : Case(part).causal(Align::at, 40 - key), 40,
            key, dtype);
        ASSERT_TRUE(run(path, &step));
        EXPECT_TRUE(matches(step, Reference(step)));
        if (key == 0) {
          o = step.o;
          lse = step.lse;
          continue;
        }
        HostTensor sum = o, sum_lse = lse;
        const Status merged = merge(o.view(), lse.view(), step.o.view(), step.lse.view(), sum.view(), sum_lse.view());
        ASSERT_TRUE(merged) << merged.why;
        o = sum;
        lse = sum_lse;
      }
      o.for_each([&](auto b, auto s, auto h, auto d) {
        ASSERT_NEAR(o.get(b, s, h, d), whole.o.get(b, 40 + s, h, d), limit_of(dtype)) << window << " " << s;
      });
    }
  });
}

TEST(Slice, CornersAreOffsetsToo) {
  on_every_path([](const Path& path, DType dtype) {
    for (const auto& [align, offset] : {std::pair{Align::top_left, 0}, {Align::bottom_right, -30}}) {
      Instance corner = make_instance(Case{"x", 2, 90, 60, 2, 1, 64, 64}.causal(align).row_max(), dtype);
      Instance at = make_instance(Case{"x", 2, 90, 60, 2, 1, 64, 64}.causal(Align::at, offset).row_max(), dtype);
      ASSERT_TRUE(run(path, &corner) && run(path, &at));
      at.o.for_each([&](auto b, auto s, auto h, auto d) { ASSERT_EQ(at.o.get(b, s, h, d), corner.o.get(b, s, h, d)); });
    }
  });
}

TEST(Slice, ADiagonalFarAwayShowsNoKeyOrAll) {
  planted(Case{"none", 1, 70, 90, 2, 1, 64, 64}.causal(Align::at, -kFar).row_max(), nothing, [](const Instance& x) {
    for (std::int64_t i = 0; i < 70; ++i) expect_empty(x, 0, i);
  });
  planted(Case{"all", 1, 70, 90, 2, 1, 64, 64}.causal(Align::at, kFar).row_max(), nothing, agreed);
  planted(Case{"left", 1, 70, 90, 2, 1, 64, 64}.window(5, 5, Align::at, kFar).row_max(), nothing,
          [](const Instance& x) {
            for (std::int64_t i = 0; i < 70; ++i) expect_empty(x, 0, i);
          });
  planted(Case{"one", 1, 70, 90, 2, 1, 64, 64}.causal(Align::at, -69).row_max(), nothing, [](const Instance& x) {
    for (std::int64_t i = 0; i < 69; ++i) expect_empty(x, 0, i);
    for (std::int64_t d = 0; d < 64; ++d) EXPECT_EQ(x.o.get(0, 69, 1, d), x.v.get(0, 0, 0, d));
  });
}

TEST(Slice, OffsetsThatAreRefused) {
  Attention a = small_problem();
  a.band = Band::causal(Align::bottom_right, 3);
  EXPECT_EQ(make(a).code, Code::invalid);
  EXPECT_EQ(make(a).why, "band.offset = 3 with band.align = bottom_right: only Align::at has an offset");
  for (const std::int64_t bad : {kFar + 1, -kFar - 1}) {
    a.band = Band::causal(Align::at, bad);
    EXPECT_EQ(make(a).code, Code::invalid) << bad;
    EXPECT_NE(make(a).why.find("band.offset = " + std::to_string(bad)), std::string::npos) << make(a).why;
  }
  a.band = Band::causal(Align::at, -kFar);
  EXPECT_EQ(make(a).code, Code::ok) << make(a).why;
}

/// When V is the identity, the zeros of O show which elements were dropped.
TEST(Slice, DropoutDrawsItsPartOfTheWholeMask) {
  for (const std::int64_t heads : {0, 7}) {
    planted(
        Case{"slice", 2, 30, 120, 4, 2, 32, 120}.dropout(0.4f),
        [&](Instance& x) {
          x.rng.origin = {3, heads == 0 ? 0 : 2, 501, 36, heads};
          x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, s == d ? 1 : 0); });
        },
        [&](const Instance& x) {
          const DropoutMask whole = DropoutMask::make(x.problem.dropout, x.rng.seed, x.rng.offset);
          const std::int64_t all = heads == 0 ? 4 : heads, first = heads == 0 ? 0 : 2;
          x.o.for_each([&](auto b, auto i, auto h, auto j) {
            const bool kept = whole.keep(0, (3 + b) * all + first + h, 501 + i, 36 + j);
            ASSERT_EQ(x.o.get(b, i, h, j) != 0, kept) << b << " " << i << " " << h << " " << j;
          });
        });
  }
}

class SliceBackward : public OnBackwardPaths {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SliceBackward);  // A build may have no variants.
INSTANTIATE_TEST_SUITE_P(Paths, SliceBackward, ::testing::ValuesIn(built_paths(kAttentionBackward)), path_name);

TEST_P(SliceBackward, DropoutDrawsItsPartOfTheWholeMask) {
  Gradients all(Case{"slice", 1, 1, 24, 2, 2, 8, 8}.dropout(0.5f), DType::f32, {});
  all.x.rng.origin = {2, 3, 40, 8, 6};
  all.run(GetParam());
  const DropoutMask whole = DropoutMask::make(0.5f, all.x.rng.seed, all.x.rng.offset);
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t j = 0; j < 24; ++j)
      EXPECT_EQ(all.grad_v.get(0, j, h, 2) != 0, whole.keep(0, 2 * 6 + 3 + h, 40, 8 + j)) << h << " " << j;
}

TEST(Slice, OriginsThatAreRefused) {
  Instance x = make_instance(Case{"x", 1, 4, 5, 2, 1, 8, 8}.dropout(0.5f), DType::f32);
  const auto why = [&](const Rng::Origin& origin) {
    x.rng.origin = origin;
    return attention(x.operands(), {.dropout = 0.5f}, Backend::ref).why;
  };
  EXPECT_EQ(why({-1, 0, 0, 0, 0}), "rng.origin.b = -1: it must be in [0, 4294967296]");
  EXPECT_EQ(why({0, 0, 0, 6, 0}), "rng.origin.j = 6: it must be a multiple of 4");
  EXPECT_EQ(why({0, 1, 0, 0, 0}),
            "rng.origin.h + h_q = 1 + 2 is over rng.origin.h_q = 2, the query heads of the larger problem");
  EXPECT_EQ(why({0, 0, std::int64_t{1} << 32, 0, 0}), "rng.origin.i = 4294967296: it must be in [0, 4294967292]");
  EXPECT_EQ(why({std::int64_t{1} << 31, 0, 0, 0, 8}),
            "(rng.origin.b + b) * rng.origin.h_q = (2147483648 + 1) * 8 is over the limit of 4294967296");
  EXPECT_EQ(why({4, 6, 40, 8, 8}), "");
}

TEST(Slice, TheCApiHasBoth) {
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 16, 16}.causal(Align::at, 7).dropout(0.5f), DType::f32);
  x.rng.origin = {1, 2, 3, 4, 8};
  const fal_attention problem = to_c(x.problem);
  EXPECT_EQ(problem.band.align, FAL_AT);
  EXPECT_EQ(problem.band.offset, 7);
  const fal_operands operands = to_c(x.operands());
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  ASSERT_EQ(fal_attention_run(&operands, &problem, &target, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, Reference(x)));
}

/// A plan that is kept for one offset does not serve another.
TEST(Slice, CallsWithOtherOffsetsHaveOtherPlans) {
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 16, 16}.causal(Align::at, 0), DType::f32);
  for (const std::int64_t offset : {7, -3, 7, 0}) {
    x.problem.band.offset = offset;
    for (const Backend backend : {Backend::ref, Backend::best}) {
      const Status status = attention(x.operands(), x.problem, backend);
      ASSERT_TRUE(status) << status.why;
      EXPECT_TRUE(matches(x, Reference(x))) << offset;
    }
  }
}

/// What was compiled with older headers has no origin, and a 0 where offset is now.
TEST(Slice, CallersOfTheCApiThatKnowNeither) {
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 16, 16}.causal().dropout(0.5f), DType::f32);
  fal_attention problem = to_c(x.problem);
  fal_operands operands = to_c(x.operands());
  operands.size = offsetof(fal_operands, origin);
  operands.origin = {-1, -1, -1, -1, -1};
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  ASSERT_EQ(fal_attention_run(&operands, &problem, &target, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, Reference(x)));
  problem.band.offset = 7;
  EXPECT_EQ(fal_attention_run(&operands, &problem, &target, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "band.offset = 7 with band.align = bottom_right: only Align::at has an offset");
  problem.band = {0, 0, FAL_ALIGN_UNSET, 7};  // otherwise the full band
  EXPECT_EQ(fal_attention_run(&operands, &problem, &target, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "band.offset = 7 with band.align = unset: only Align::at has an offset");
}

}  // namespace
}  // namespace falchion::testing
