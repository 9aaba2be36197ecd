// tests/plan_gpu_test.cpp: what the plan decides for a GPU, as text. No GPU is needed: target.sm names the
// architecture. Here: Ampere's rows; Hopper's: plan_hopper_test.cpp.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

TEST(GpuPlan, WithoutRowsItIsRefusedWithEachReason) {
  if (has_any_gpu_row()) GTEST_SKIP() << "this build has GPU rows";
  const std::string story = explain(problem(1, 4096, 4096, 16, 16, 128), Pass::forward, hopper());
  EXPECT_NE(story.find("decision    refused (unsupported): no path for attention_forward bf16"), std::string::npos);
  EXPECT_NE(story.find("  sm90 bf16  this build has no such row (FALCHION_CUDA is off, or FALCHION_VARIANTS left it "
                       "out)\n"
                       "  sm80 bf16  this build has no such row (FALCHION_CUDA is off, or FALCHION_VARIANTS left it "
                       "out)\n"),
            std::string::npos)
      << story;
}

TEST(GpuPlan, Prefill) {
  NEEDS_SM80_ROWS();
  EXPECT_EQ(explain(problem(4, 4096, 4096, 16, 16, 128), Pass::forward, on(80)),
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
            "unaligned   operands that are not 16-byte aligned run on the row general d128\n"
            "paths\n"
            "  sm80 few bf16 d128  for at most 16 rows a K/V head, here are 4096\n"
            "  sm80 plain bf16     taken\n");
}

TEST(GpuPlan, HopperCanBeAskedForItToo) {
  NEEDS_SM80_ROWS();
  EXPECT_EQ(describe(decided(problem(4, 4096, 4096, 16, 16, 128), on(90, Backend::sm80))),
            "attention_forward sm80 plain bf16 d128 dv128 band full tile 128x64x128 group 1 grid 2048 splits 1 ws 0 B");
  EXPECT_EQ(decided(problem(4, 4096, 4096, 16, 16, 128), on(90, Backend::sm80)).gpu.walkers, 0);
}

TEST(GpuPlan, DecodePacksHeadsAndSplitsKeys) {
  NEEDS_SM80_ROWS();
  Plan plan;
  Attention a = problem(1, 1, 8192, 32, 8, 128);
  a.lse = true;
  ASSERT_TRUE(Plan::make(a, Pass::forward, hopper(), &plan));
  EXPECT_EQ(
      plan.describe(),
      "attention_forward sm80 few bf16 d128 dv128 band full tile 16x64x128 group 4 grid 512 splits 64 ws 1.06 MB");
  EXPECT_EQ(plan.workspace_bytes(), 64u * 32 * (128 + 2) * 4);
}

TEST(GpuPlan, FeaturesTakeTheGeneralRow) {
  NEEDS_SM80_ROWS();
  Attention a = problem(4, 1000, 1000, 16, 16, 100);
  a.score.softcap = 30;
  for (const Target& target : {on(80), on(90, Backend::sm80)}) {
    Plan plan;
    ASSERT_TRUE(Plan::make(a, Pass::forward, target, &plan));
    EXPECT_EQ(plan.describe().substr(0, 60), "attention_forward sm80 general bf16 d100 dv100 band full til");
  }
  a.d_qk = a.d_v = 128;
  const std::string story = explain(a, Pass::forward, on(80));
  EXPECT_NE(story.find("  sm80 plain bf16 d128  softcap needs a score row of sm90 or a general one\n"),
            std::string::npos)
      << story;
}

TEST(GpuPlan, NoSplitsWhereAPartCouldNotAnswer) {
  NEEDS_SM80_ROWS();
  for (const int sm : {80, 90}) {
    for (int which = 0; which < 3; ++which) {
      Attention a = problem(1, 1, 8192, 8, 8, 64);
      EXPECT_GT(decided(a, on(sm)).splits, 1);
      if (which == 0) a.row_max = true;
      if (which == 1) a.probabilities = true;
      if (which == 2) a.packed = true;
      EXPECT_EQ(decided(a, on(sm)).splits, 1);
    }
  }
}

TEST(GpuPlan, AGridOverTheLimitIsRefused) {
  NEEDS_GPU_ROWS();
  for (const int sm : {80, 90}) {
    Plan plan;
    const Status status = Plan::make(problem(1 << 20, 1 << 19, 1, 1, 1, 8), Pass::forward, on(sm), &plan);
    EXPECT_EQ(status.code, Code::unsupported);
    EXPECT_NE(status.why.find("over the grid's limit of 2147483647"), std::string::npos) << status.why;
  }
}

TEST(GpuPlan, RunningAPlanForAnotherMachineIsAStatus) {
  NEEDS_SM80_ROWS();
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
