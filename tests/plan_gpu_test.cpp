// tests/plan_gpu_test.cpp: checks as text what the plan decides for a GPU. No GPU is needed, because target.sm names
// the architecture. This file tests Ampere's variants, and plan_hopper_test.cpp tests Hopper's.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

/// Plan::make says what is missing, and explain() says what would run if it were not missing.
TEST(GpuPlan, WithoutVariantsItIsRefusedAndExplained) {
  if (has_any_gpu_variant()) GTEST_SKIP() << "this build has GPU variants";
  const char* missing = "this build has no such variant (FALCHION_CUDA is off, or FALCHION_VARIANTS left it out)";
  Plan plan;
  const Status status = Plan::make(problem(4, 4096, 4096, 16, 16, 128), Pass::forward, hopper(), &plan);
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_EQ(status.why, text("no path for attention_forward bf16; sm90 bf16: ", missing, "; sm80 bf16: ", missing));
  // The text between these two parts is checked in HopperPlan.Prefill.
  const std::string story = explain(problem(4, 4096, 4096, 16, 16, 128), Pass::forward, hopper());
  EXPECT_TRUE(story.starts_with(
      "not built   this build lacks the variant sm90 plain bf16 d128 (FALCHION_CUDA is off, or FALCHION_VARIANTS "
      "left it out), so Plan::make refuses; here is what a build that has it would do\n"
      "problem     attention_forward bf16: b 4"))
      << story;
  EXPECT_TRUE(story.ends_with("  sm90 plain bf16             would be taken\n")) << story;
}

/// Where neither a GPU nor an architecture is given, a back end is explained on the architecture that it is made for.
TEST(GpuPlan, ABackEndIsExplainedOnItsOwnArchitecture) {
  if (has_any_gpu_variant()) GTEST_SKIP() << "this build has GPU variants";
  const Attention a = problem(4, 4096, 4096, 16, 16, 128);
  EXPECT_EQ(explain(a, Pass::forward, Backend::sm90), explain(a, Pass::forward, on(90, Backend::sm90)));
  EXPECT_EQ(explain(a, Pass::forward, Backend::sm80), explain(a, Pass::forward, on(80, Backend::sm80)));
}

/// A problem that no build can run is refused for that reason, and not because this build lacks variants.
TEST(GpuPlan, RefusalsAreThoseOfABuildWithEveryVariant) {
  Attention a = problem(1, 64, 64, 8, 8, 128);
  a.bias = true;
  const std::string story = explain(a, Pass::forward, on(90, Backend::sm90));
  EXPECT_NE(story.find("decision    refused (unsupported): no path for attention_forward bf16; sm90 plain bf16 d128: "
                       "bias needs a general variant of sm80"),
            std::string::npos)
      << story;
  EXPECT_EQ(story.find("no such variant"), std::string::npos) << story;
}

/// The numbers are bytes, as in the code. variant_gpu.in asserts the same for each variant that is built.
TEST(GpuPlan, WhatVariantsNeed) {
  const struct {
    Backend backend;
    const char* level;
    DType dtype;
    int d, shared_bytes;
  } expected[] = {
      {Backend::sm80, "plain", DType::bf16, 128, (128 + 2 * 64) * 128 * 2},
      {Backend::sm80, "plain few", DType::f16, 64, (16 + 2 * 64) * 64 * 2},
      {Backend::sm80, "general", DType::f32, 128, (64 * 132 + 64 * 68 + 2 * 64 * 64) * 4},
      {Backend::sm90, "plain", DType::bf16, 128, (2 * 128 + 2 * 2 * 128) * 128 * 2 + 1024},
      {Backend::sm90, "plain mla", DType::bf16, 192, (128 * 192 + 2 * 128 * (192 + 128)) * 2 + 1024},
  };
  for (const auto& [backend, level, dtype, d, shared_bytes] : expected) {
    bool seen = false;
    for (const Variant& variant : listed_variants()) {
      if (variant.backend != backend || variant.name() != level || variant.dtype != dtype || variant.d != d) continue;
      if (!variant.is("attention_forward")) continue;
      EXPECT_EQ(variant.facts_as<gpu::AttentionFacts>().shared_bytes, shared_bytes)
          << name(backend) << " " << level << " d" << d;
      seen = true;
    }
    EXPECT_TRUE(seen) << name(backend) << " " << level << " d" << d;
  }
  for (const Variant& variant : listed_variants()) {
    if (!is_gpu(variant.backend)) continue;
    SCOPED_TRACE(text(variant.op, " ", variant.level, " d", variant.d));
    const auto look = [&](const auto& facts) {
      if constexpr (requires { facts.d; }) { EXPECT_EQ(facts.d, variant.d); }  // a GEMM has no head dim
      EXPECT_GT(facts.shared_bytes, 0);
      EXPECT_LE(facts.shared_bytes, 227 << 10);
    };
    if (variant.is("attention_forward")) {
      look(variant.facts_as<gpu::AttentionFacts>());
      EXPECT_GT(variant.facts_as<gpu::AttentionFacts>().rows, 0);
    } else if (variant.is("attention_backward")) {
      look(variant.facts_as<gpu::BackwardVariantFacts>());
      EXPECT_GT(variant.facts_as<gpu::BackwardVariantFacts>().rows, 0);
      EXPECT_GT(variant.facts_as<gpu::BackwardVariantFacts>().keys, 0);
      EXPECT_NE(variant.facts_as<gpu::BackwardVariantFacts>().workspace, nullptr);
    } else if (variant.is("gemm")) {
      look(variant.facts_as<gpu::GemmFacts>());
      EXPECT_GT(variant.facts_as<gpu::GemmFacts>().depth, 0);
    } else if (variant.is("norm")) {
      look(variant.facts_as<gpu::NormFacts>());
    } else if (variant.is("norm_backward")) {
      look(variant.facts_as<gpu::NormBackwardFacts>());
    } else if (variant.is("quantise")) {
      look(variant.facts_as<gpu::QuantiseFacts>());
      EXPECT_GE(variant.facts_as<gpu::QuantiseFacts>().most_threads, variant.facts_as<gpu::QuantiseFacts>().threads);
    } else {
      look(variant.facts_as<gpu::LinearVariantFacts>());
      EXPECT_GT(variant.facts_as<gpu::LinearVariantFacts>().chunk, 0);
      EXPECT_NE(variant.facts_as<gpu::LinearVariantFacts>().workspace, nullptr);
    }
  }
}

TEST(GpuPlan, Prefill) {
  EXPECT_EQ(story_of(problem(4, 4096, 4096, 16, 16, 128), on(80)),
            "problem     attention_forward bf16: b 4, s_q 4096, s_k 4096, h_q 16, h_k 16, d_qk 128, d_v 128\n"
            "band        full\n"
            "score       scale 0.0883883\n"
            "work        550 Gflop, 100 % of s_q x s_k seen; 268 MB if each tensor moves once: 2.05 kflop/B\n"
            "decision    sm80 plain\n"
            "device      sm_80: 108 SMs\n"
            "tiles       128 rows x 64 keys, head dims up to 128, 128 threads, 1 stage of K and V\n"
            "grid        2048 CTAs, 2 an SM: 10 waves, 94 % busy\n"
            "shared      65.5 kB a CTA\n"
            "workspace   0 B\n"
            "choices     a run takes the first that its operands fit\n"
            "  sm80 plain d128    16-byte aligned\n"
            "  sm80 general d128  any operands\n"
            "paths\n"
            "  sm80 plain few bf16 d128  it is for at most 16 rows for each K/V head, but here are 4096\n"
            "  sm80 plain bf16           taken\n");
}

/// Tiles are made for the 228 KB of shared memory that an SM of Hopper has. The others have 164 KB (sm_80) and 100 KB.
TEST(GpuPlan, AsManyCtasAnSmAsSharedMemoryHasRoomFor) {
  const auto ctas = [](int sm, std::int64_t rows, std::int64_t d) {
    return decided(problem(1, rows, 4096, 16, 16, d), on(sm, Backend::sm80)).gpu.ctas;
  };
  for (const auto& [sm, few_64, plain_128, plain_256] :
       {std::array{80, 8, 2, 1}, {86, 5, 1, 1}, {89, 5, 1, 1}, {90, 10, 2, 2}}) {
    EXPECT_EQ(ctas(sm, 1, 64), few_64) << sm;
    EXPECT_EQ(ctas(sm, 4096, 128), plain_128) << sm;
    EXPECT_EQ(ctas(sm, 4096, 256), plain_256) << sm;
  }
}

TEST(GpuPlan, HopperCanBeAskedForItToo) {
  EXPECT_EQ(describe(decided(problem(4, 4096, 4096, 16, 16, 128), on(90, Backend::sm80))),
            "attention_forward sm80 plain bf16 d128 dv128 band full tile 128x64x128 group 1 grid 2048 splits 1 ws 0 B");
  EXPECT_EQ(decided(problem(4, 4096, 4096, 16, 16, 128), on(90, Backend::sm80)).attention().walkers, 0);
}

TEST(GpuPlan, DecodePacksHeadsAndSplitsKeys) {
  Attention a = problem(1, 1, 8192, 32, 8, 128);
  a.lse = true;
  const PlanData plan = decided(a, on(90, Backend::sm80));
  EXPECT_EQ(describe(plan),
            "attention_forward sm80 plain few bf16 d128 dv128 band full tile 16x64x128 group 4 grid 512 splits 64 ws "
            "1.06 MB");
  EXPECT_EQ(plan.workspace, 64u * 32 * (128 + 2) * 4);
}

TEST(GpuPlan, FeaturesTakeTheGeneralVariant) {
  Attention a = problem(4, 1000, 1000, 16, 16, 100);
  a.score.softcap = 30;
  for (const Target& target : {on(80), on(90, Backend::sm80)}) {
    EXPECT_EQ(describe(decided(a, target)).substr(0, 60),
              "attention_forward sm80 general bf16 d100 dv100 band full til");
  }
  a.d_qk = a.d_v = 128;
  const std::string story = story_of(a, on(80));
  EXPECT_NE(story.find("  sm80 plain bf16 d128  softcap needs a score variant of sm90 or a general one\n"),
            std::string::npos)
      << story;
}

TEST(GpuPlan, NoSplitsWhereAPartCouldNotAnswer) {
  for (const int sm : {80, 90}) {
    for (int which = 0; which < 3; ++which) {
      Attention a = problem(1, 1, 8192, 8, 8, 64);
      EXPECT_GT(decided(a, on(sm, Backend::sm80)).attention().splits, 1);
      if (which == 0) a.row_max = true;
      if (which == 1) a.probabilities = true;
      if (which == 2) a.packed = true;
      EXPECT_EQ(decided(a, on(sm, Backend::sm80)).attention().splits, 1);
    }
  }
}

TEST(GpuPlan, AGridOverTheLimitIsRefused) {
  for (const int sm : {80, 90}) {
    PlanData plan;
    const Status status = plan_on_gpu(problem(1 << 20, 1 << 19, 1, 1, 1, 8), on(sm), &plan);
    EXPECT_EQ(status.code, Code::unsupported);
    EXPECT_NE(status.why.find("over the grid's limit of 2147483647"), std::string::npos) << status.why;
  }
}

TEST(GpuPlan, RunningAPlanForAnotherMachineIsAStatus) {
  NEEDS_SM80_VARIANTS();
  Plan plan;
  ASSERT_TRUE(Plan::make(problem(1, 1, 1, 1, 1, 8), Pass::forward, on(80), &plan));
  std::uint16_t x[8] = {};
  Operands operands;
  operands.q = operands.k = operands.v = Tensor::dense(x, DType::bf16, {1, 1, 1, 8});
  std::uint16_t o[8] = {};
  operands.o = Tensor::dense(o, DType::bf16, {1, 1, 1, 8});
  const Status status = plan.run(operands, nullptr, 0);
  EXPECT_EQ(status.code, Code::device) << status.why;
}

}  // namespace
}  // namespace falchion::testing
