// tests/quantise_api_test.cpp: the API of Quantise: what is refused and with which words, the one-call form, the C API,
// and how a GPU cuts blocks.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "falchion/falchion.h"
#include "support/quantise.hpp"
#include "support/to_c.hpp"
#include "tiles/quantise/sm80.hpp"

namespace falchion::testing {
namespace {

constexpr Quantise kGood{.dtype = DType::f32, .b = 2, .s = 10, .h = 3, .d = 8, .rows = 4};

Target on_ref() {
  Target out;
  out.backend = Backend::ref;
  return out;
}

TEST(QuantiseApi, AProblemIsRefusedWithWords) {
  struct Row {
    void (*change)(Quantise*);
    Code code;
    const char* why;
  };
  const Row rows[] = {
      {[](Quantise* q) { q->rows = -1; }, Code::invalid, "rows = -1: a size must be 0 or more"},
      {[](Quantise* q) { q->d = 0; }, Code::invalid, "d = 0: a head dim must be 1 to 256"},
      {[](Quantise* q) { q->d = 257; }, Code::unsupported, "d = 257 is over the limit of 256"},
      {[](Quantise* q) { q->h = std::int64_t{1} << 28; }, Code::invalid,
       "b * s * h = 2 * 10 * 268435456 is over the limit of 2147483647"},
      {[](Quantise* q) { q->dtype = DType::as_q; }, Code::invalid,
       "dtype = as_q (0): the type of x is unset; it must be f32, f16 or bf16"},
      {[](Quantise* q) { q->dtype = DType::e4m3; }, Code::invalid, "dtype = e4m3: x must be f32, f16 or bf16"},
      {[](Quantise* q) { q->dtype_y = DType::bf16; }, Code::invalid, "dtype_y = bf16: y must be e4m3 or i8"},
      {[](Quantise* q) { q->scale_given = q->powers_of_two = true; }, Code::invalid,
       "powers_of_two with scale_given: a scale that is given stays"},
      {[](Quantise* q) { q->mean_given = true; }, Code::invalid,
       "mean_given without smooth: smooth subtracts the mean"},
  };
  for (const Row& row : rows) {
    Quantise q = kGood;
    row.change(&q);
    Plan plan;
    const Status status = Plan::make(q, on_ref(), &plan);
    EXPECT_EQ(status.code, row.code) << row.why;
    EXPECT_NE(status.why.find(row.why), std::string::npos) << status.why;
  }
}

TEST(QuantiseApi, OperandsAreRefusedWithWords) {
  const QuantiseInstance x(kGood);
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, on_ref(), &plan));
  const auto refused = [&](const char* why, auto change) {
    QuantiseOperands o = x.operands();
    change(&o);
    const Status status = plan.run(o, nullptr, 0);
    EXPECT_EQ(status.code, Code::invalid) << why;
    EXPECT_NE(status.why.find(why), std::string::npos) << status.why;
  };
  refused("scale.shape[1] = 10, but the problem's is 3", [](auto* o) { o->scale.shape[1] = 10; });
  refused("scale.shape[0] = 1, but the problem's is 2", [](auto* o) { o->scale.shape[0] = 1; });
  refused("mean is given, but", [&](auto* o) { o->mean = x.mean.view(); });
  refused("y.dtype = i8", [](auto* o) { o->y.dtype = DType::i8; });
  refused("y overlaps x", [](auto* o) { o->y.data = o->x.data; });
}

TEST(QuantiseApi, OneCallTakesSizesFromItsTensors) {
  Quantise q = kGood;
  q.dtype_y = DType::i8;
  q.smooth = q.rotate = true;
  const QuantiseInstance one(q), other(q);
  Plan plan;
  ASSERT_TRUE(Plan::make(q, on_ref(), &plan));
  ASSERT_TRUE(plan.run(one.operands(), nullptr, 0));
  const Status status = quantise(other.operands(), {.rows = 4, .rotate = true}, on_ref());
  ASSERT_TRUE(status) << status.why;
  EXPECT_EQ(std::memcmp(one.y.memory(), other.y.memory(), one.y.memory_bytes()), 0);
  EXPECT_EQ(std::memcmp(one.scale.memory(), other.scale.memory(), one.scale.memory_bytes()), 0);
  EXPECT_NE(plan.describe().find("quantise ref f32 to i8 2x10x3x8 rows 4"), std::string::npos) << plan.describe();
}

TEST(QuantiseApi, CGivesTheSameBits) {
  Quantise q = kGood;
  q.smooth = q.rotate = q.powers_of_two = true;
  const QuantiseInstance one(q), other(q);
  ASSERT_TRUE(run_with({Backend::ref, ""}, q, one.operands()));
  fal_quantise c = fal_quantise_init();
  c.dtype = FAL_F32;
  c.b = q.b;
  c.s = q.s;
  c.h = q.h;
  c.d = q.d;
  c.rows = q.rows;
  c.smooth = c.rotate = c.powers_of_two = 1;
  const QuantiseOperands o = other.operands();
  const fal_quantise_operands operands{sizeof operands, to_c(o.x), to_c(o.mean), to_c(o.scale), to_c(o.y)};
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_quantise_plan_make(&c, nullptr, &plan), FAL_OK) << fal_why();
  ASSERT_EQ(fal_quantise_plan_run(plan, &operands, nullptr, 0, nullptr), FAL_OK) << fal_why();
  fal_plan_free(plan);
  EXPECT_EQ(std::memcmp(one.y.memory(), other.y.memory(), one.y.memory_bytes()), 0);
  EXPECT_NE(std::string(fal_quantise_explain(&c, nullptr, FAL_TEXT)).find("rotated in blocks of 8"), std::string::npos);
  EXPECT_EQ(fal_quantise_run(&operands, &c, nullptr, nullptr), FAL_OK) << fal_why();
}

TEST(QuantiseApi, ExplainSaysHowScalesAreMade) {
  const auto said = [](Quantise q) { return explain(q, on_ref()); };
  Quantise q = kGood;
  EXPECT_NE(said(q).find("x / scale; a scale for 4 tokens of a head\n"), std::string::npos) << said(q);
  for (const std::int64_t rows : {4, 0}) {
    q = kGood;
    q.rows = rows;
    const std::string scale = rows == 0 ? "a scale for a head" : "a scale for 4 tokens of a head";
    q.powers_of_two = true;
    EXPECT_NE(said(q).find(scale + ", a power of two\n"), std::string::npos) << said(q);
    q.powers_of_two = false;
    q.scale_given = true;
    EXPECT_NE(said(q).find(scale + ", given\n"), std::string::npos) << said(q);
  }
}

/// The threads of a piece hold all of it, and a block of the rotation lies in one warp.
TEST(QuantiseApi, ACutHoldsItsPiece) {
  for (std::int64_t d = 1; d <= 256; ++d)
    for (const std::int64_t rows : {1, 2, 3, 7, 16, 64, 127, 128, 129, 256, 1000, 100000})
      for (const bool given : {false, true})
        for (const bool rotate : {false, true}) {
          const gpu::QuantiseCut cut = sm80::quantise_cut(d, rows, given, rotate, d % 8 == 0);
          const std::int64_t a_row = (d + 7) / 8;
          EXPECT_GE(std::int64_t{cut.threads} * cut.chunks, cut.rows * a_row);
          EXPECT_TRUE(cut.threads <= sm80::kQuantiseMostThreads && (cut.threads & (cut.threads - 1)) == 0);
          if (rotate) { EXPECT_EQ(cut.threads % std::max<std::int64_t>((d & -d) / 8, 1), 0) << d << " " << rows; }
          EXPECT_TRUE(cut.rows == rows || (cut.rows < rows && cut.rows > 0 && cut.chunks == sm80::kQuantiseChunks));
          EXPECT_TRUE(cut.kept || !given);
        }
}

}  // namespace
}  // namespace falchion::testing
