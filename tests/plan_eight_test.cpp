// tests/plan_eight_test.cpp: what the plan decides for Hopper where q has 8 bits. No GPU is needed, because target.sm
// names the architecture.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "plan/attention.hpp"
#include "support/choices.hpp"
#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

Attention int8_problem(int d, DType dtype_v = DType::bf16) {
  Attention a = problem(4, 4096, 4096, 16, 4, d);
  a.dtype = DType::i8;
  a.dtype_v = dtype_v;
  a.q_scale = a.k_scale = true;
  a.k_scale_rows = 128;
  return a;
}

TEST(EightPlan, Int8ScoresByHeadDimAndTypeOfV) {
  const std::pair<int, const char*> expected[] = {{16, "64"},   {64, "64"},   {80, "128"},
                                                  {128, "128"}, {192, "256"}, {256, "256"}};
  for (const auto& [d, most] : expected) {
    EXPECT_EQ(variant_of(int8_problem(d), hopper()), text("sm90 int8_scores bf16 ", most)) << d;
    EXPECT_EQ(variant_of(int8_problem(d, DType::f16), hopper()), text("sm90 int8_scores f16 ", most)) << d;
  }
}

/// The fastest kernel for q of 8 bits has none beside it for few rows, so it takes those as well.
TEST(EightPlan, Int8ScoresHasWhatTheDefinitionAllows) {
  Attention all[] = {int8_problem(128), int8_problem(128), int8_problem(128), int8_problem(128),
                     int8_problem(128), int8_problem(128), int8_problem(128)};
  all[0].band = {-1, 0, Align::bottom_right};
  all[1].band = {100, 50, Align::bottom_right};
  all[2].score.softcap = 30;
  all[3].lse = all[3].sinks = true;
  all[4].packed = true;
  all[5].used_q = all[5].used_k = true;
  all[6].s_q = 1;
  for (const Attention& a : all) EXPECT_EQ(variant_of(a, hopper()), "sm90 int8_scores bf16 128");
}

TEST(EightPlan, PartsOfTheKeysBeginWithATile) {
  Attention a = int8_problem(128);
  a.split_keys = 256;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 int8_scores bf16 128");
  a.split_keys = 192;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 int8_scores bf16 256") << "whose tiles have 64 keys";
  const std::string why = explain(a, Pass::forward, hopper());
  EXPECT_NE(why.find("it is for split_keys that are a multiple of 128, but here they are 192"), std::string::npos)
      << why;
  Attention of_64 = int8_problem(64);
  of_64.split_keys = 192;
  EXPECT_EQ(variant_of(of_64, hopper()), "sm90 int8_scores bf16 64");
  // split_keys is a multiple of 64, so the variant for the largest head dim must take each.
  for (const Variant& v : listed_variants()) {
    if (!is_gpu(v.backend) || !v.features.has(Feature::bytes_of_q) || v.d < 256) continue;
    EXPECT_EQ(64 % v.facts_as<gpu::AttentionFacts>().keys, 0) << v.level << ": nothing takes parts of 64 keys";
  }
}

/// Kind eight of sm80 takes every problem, and on Hopper what its own kinds do not take, or cannot move.
TEST(EightPlan, KindEightTakesTheRest) {
  const std::string odd = variant_of(int8_problem(72), on(90, Backend::sm90));
  EXPECT_NE(odd.find("a head dim that is no multiple of 16 needs"), std::string::npos) << odd;
  EXPECT_EQ(variant_of(int8_problem(72), hopper()), "sm80 eight bf16 128");
  for (const int d : {1, 64, 72, 128, 130, 256}) {
    const int most = d <= 64 ? 64 : d <= 128 ? 128 : 256;
    EXPECT_EQ(variant_of(int8_problem(d, DType::f16), on(80)), text("sm80 eight f16 ", most)) << d;
    EXPECT_EQ(variant_of(int8_problem(d, DType::e4m3), on(80)), text("sm80 eight i8 ", most)) << d;
    Attention fp8 = int8_problem(d);
    fp8.dtype = DType::e4m3;
    fp8.dtype_v = DType::as_q;
    EXPECT_EQ(variant_of(fp8, on(80)), text("sm80 eight e4m3 ", most)) << d;
  }
  Attention parts = int8_problem(256);
  parts.split_keys = 64;
  EXPECT_EQ(variant_of(parts, on(80)), "sm80 eight bf16 256");
}

TEST(EightPlan, OperandsThatTmaCannotMove) {
  alignas(16) static std::uint8_t data[64];
  const auto taken = [](const PlanData& plan, const Operands& x) { return taken_for(plan, layout_of(plan, x)); };
  for (const Target& target : {hopper(), on(90, Backend::sm90)}) {
    for (const DType dtype_v : {DType::e4m3, DType::bf16}) {
      const PlanData plan = decided(int8_problem(128, dtype_v), target);
      Operands good;
      good.q = Tensor::dense(data, DType::i8, {4, 4096, 16, 128});
      good.k = Tensor::dense(data, DType::i8, {4, 4096, 4, 128});
      good.v = Tensor::dense(data, dtype_v, {4, 4096, 4, 128});
      good.o = Tensor::dense(data, DType::bf16, {4, 4096, 16, 128});
      EXPECT_EQ(taken(plan, good), dtype_v == DType::e4m3 ? "sm90 fp8" : "sm90 int8_scores");
      Operands x = good;
      x.q.data = data + 1;
      EXPECT_EQ(taken(plan, x), "sm80 eight unaligned");
      x = good;
      x.k.stride[2] = 0;  // All heads share one.
      EXPECT_EQ(taken(plan, x), "sm80 eight") << "a tensor map has no stride 0";
    }
  }
}

/// Without query heads h_k alone says how large the copy of V is.
TEST(EightPlan, MoreThanAnyMemoryHolds) {
  Attention a = int8_problem(128, DType::e4m3);
  a.b = 1 << 12;
  a.s_q = a.h_q = 0;
  a.s_k = 1 << 20;
  a.h_k = 2147483647;
  Plan made;
  const Status status = Plan::make(a, Pass::forward, on(90, Backend::sm90), &made);
  EXPECT_EQ(status.code, Code::invalid);
  EXPECT_NE(status.why.find("overflows: b = 4096, h_q = 0, h_k = 2147483647"), std::string::npos) << status.why;
}

/// Only Hopper's kernels cut the keys of packed rows.
TEST(EightPlan, Sm80CutsNoPackedKeys) {
  Attention a = int8_problem(128);
  a.b = a.h_q = a.h_k = 1;
  a.s_q = 64;
  a.s_k = 65536;
  PlanData plan = decided(a, on(80));
  EXPECT_GT(plan.attention().splits, 1);
  a.packed = true;
  plan = decided(a, on(80));
  EXPECT_EQ(plan.attention().splits, 1);
}

}  // namespace
}  // namespace falchion::testing
