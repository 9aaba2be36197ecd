// tests/linear_plan_test.cpp: tests what a plan of linear attention decides, and compares describe() and explain() with
// golden text. No test here computes anything or needs a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "api/data_of.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"
#include "support/paths.hpp"

namespace falchion::testing {
namespace {

constexpr cpu::LinearAttentionKernel kCpu{nullptr, nullptr, 64};
constexpr Variant kCpuVariant{.op = "linear_attention_forward",
                              .backend = Backend::cpu,
                              .level = "avx512",
                              .dtype = DType::bf16,
                              .kernel = &kCpu};
constexpr Variant kGpuVariant{
    .op = "linear_attention_backward",
    .backend = Backend::sm80,
    .level = "chunk",
    .dtype = DType::bf16,
    .d = 64,
    .facts = gpu::LinearVariantFacts{{.d = 64, .chunk = 64, .ctas = 2, .threads = 128, .shared_bytes = 98304}}};

/// Returns a plan as some machine might make it, so that the text does not depend on this machine.
PlanData made_up() {
  PlanData plan;
  ask(LinearAttention{}, Pass::forward, Target{}, &plan);
  LinearPlan& linear = plan.linear();
  linear.problem.b = 1;
  linear.problem.s = 4096;
  linear.problem.h_qk = 1;
  linear.problem.h_v = 2;
  linear.problem.d_qk = linear.problem.d_v = 64;
  linear.problem.scale = 0.125f;
  linear.problem.decay = Decay::token;
  linear.problem.normalise = linear.problem.final_state = true;
  linear.problem.feature_map = FeatureMap::elu_plus_one;
  linear.segments = 8;
  linear.segment = 512;
  linear.ctas = 2;
  plan.items = 2;
  return plan;
}

TEST(LinearDescribe, Golden) {
  PlanData plan = made_up();
  plan.backend = Backend::cpu;
  plan.variant = &kCpuVariant;
  plan.threads = 4;
  plan.linear().memory = {.scratch = 100000, .states = 200000};
  plan.workspace = 600000;
  EXPECT_EQ(
      describe(plan),
      "linear_attention_forward cpu avx512 bf16 d64 dv64 decay token normalised chunk 64 segments 8x512 threads 4 "
      "ws 600 kB");
  EXPECT_EQ(explain(plan),
            "problem     linear_attention_forward bf16: b 1, s 4096, h_qk 1, h_v 2, d_qk 64, d_v 64\n"
            "terms       scale 0.125, feature map elu + 1, decay: one number a token and head, normalised, eps 1e-06\n"
            "with        final state\n"
            "work        268 Mflop in chunks of 64; 3.21 MB if each tensor moves once: 84 flop/B\n"
            "decision    cpu avx512\n"
            "chunks      64 tokens; the state of a head, 64 x 65 f32, goes along\n"
            "segments    8 of 512 tokens: 2 heads would leave threads idle, so each segment's state is computed first "
            "and added up\n"
            "threads     4\n"
            "workspace   600 kB: states 200 kB, scratch 4 x 100 kB\n"
            "paths\n"
            "  cpu avx512 bf16  taken\n");
  plan.backend = Backend::ref;
  plan.variant = nullptr;
  EXPECT_EQ(describe(plan), "linear_attention_forward ref bf16 d64 dv64 decay token normalised ws 600 kB");
}

TEST(LinearDescribe, GoldenOfAGpu) {
  PlanData plan = made_up();
  plan.operation = &operation_of(LinearAttention{}, Pass::backward);
  plan.pass = Pass::backward;
  plan.backend = Backend::sm80;
  plan.variant = &kGpuVariant;
  plan.gpu.choices = {{&kGpuVariant, {}}};
  plan.gpu.device = "NVIDIA H200";
  plan.gpu.sms = plan.gpu.all_sms = 132;
  plan.gpu.ctas = 2;
  plan.workspace = 600000;
  plan.linear().problem.reverse = true;
  plan.linear().problem.decay = Decay::head;
  plan.rejected = {{"sm90 bf16", "Falchion has no kernel of it"}};
  EXPECT_EQ(describe(plan),
            "linear_attention_backward sm80 chunk bf16 d64 dv64 decay head normalised reverse chunk 64 segments 8x512 "
            "ws 600 kB");
  EXPECT_EQ(explain(plan),
            "problem     linear_attention_backward bf16: b 1, s 4096, h_qk 1, h_v 2, d_qk 64, d_v 64, from the last "
            "token to the first\n"
            "terms       scale 0.125, feature map elu + 1, decay: a constant a head, normalised, eps 1e-06\n"
            "with        final state\n"
            "work        671 Mflop in chunks of 64; 5.28 MB if each tensor moves once: 127 flop/B\n"
            "decision    sm80 chunk\n"
            "device      NVIDIA H200: 132 SMs\n"
            "chunks      64 tokens; the state of a head, 64 x 65 f32, goes along\n"
            "segments    8 of 512 tokens: 2 heads would leave SMs idle, so each segment's state is computed first and "
            "added up\n"
            "grid        16 CTAs, 2 an SM: 1 wave\n"
            "shared      98.3 kB a CTA, 128 threads\n"
            "workspace   600 kB\n"
            "paths\n"
            "  sm90 bf16        Falchion has no kernel of it\n"
            "  sm80 chunk bf16  taken\n");
}

TEST(LinearExplain, Refusals) {
  LinearAttention a;
  a.h_qk = 3;
  a.h_v = 4;
  a.d_qk = a.d_v = 8;
  EXPECT_EQ(explain(a, Pass::forward, {}), "decision    refused (invalid): h_v = 4 is not a multiple of h_qk = 3\n");
}

/// Checks the flops and bytes of b 8, h 16 and s 8192 in bf16.
TEST(LinearWork, FlopsAndBytes) {
  LinearAttention a;
  a.b = 8;
  a.s = 8192;
  a.h_qk = a.h_v = 16;
  a.d_qk = a.d_v = 64;
  EXPECT_EQ(linear_attention_bytes(a, Pass::forward), 536870912.);
  EXPECT_EQ(linear_attention_bytes(a, Pass::backward), 939524096.);
  EXPECT_NEAR(linear_attention_flops(a, Pass::forward, 64) / 1e9, 34, 0.5);
  EXPECT_NEAR(linear_attention_flops(a, Pass::backward, 64) / 1e9, 86, 0.5);
}

// ---- segments, on the level that every machine has ------------------------------------------------------------------

class LinearSegments : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Path{Backend::cpu, "generic"}.has(DType::bf16, kLinearForward))
      GTEST_SKIP() << "the variant linear_attention_forward cpu generic bf16 is not built";
  }
  static LinearPlan decide(std::int64_t b, std::int64_t h, std::int64_t s, int threads, int segments = 0,
                           bool packed = false) {
    LinearAttention a;
    a.b = b;
    a.h_qk = a.h_v = h;
    a.s = s;
    a.d_qk = a.d_v = 64;
    a.packed = packed;
    Target target(Backend::cpu);
    target.threads = threads;
    target.segments = segments;
    target.cpu_level = "generic";
    Plan plan;
    const Status status = Plan::make(a, Pass::forward, target, &plan);
    EXPECT_TRUE(status) << status.why;
    EXPECT_GE(data_of(plan)->linear().segment * data_of(plan)->linear().segments, s) << "every token has a segment";
    EXPECT_LT(data_of(plan)->linear().segment * (data_of(plan)->linear().segments - 1), std::max<std::int64_t>(s, 1))
        << "and every segment a token";
    return data_of(plan)->linear();
  }
};

TEST_F(LinearSegments, AsManyAsKeepThreadsBusy) {
  EXPECT_EQ(decide(1, 8, 4096, 4).segments, 1) << "heads are enough";
  EXPECT_EQ(decide(4, 16, 8192, 8).segments, 1);
  EXPECT_GE(decide(1, 1, 65536, 4).segments, 8);
  EXPECT_EQ(decide(1, 1, 64, 4).segments, 1) << "one chunk";
  EXPECT_EQ(decide(1, 1, 65536, 1).segments, 1);
  EXPECT_EQ(decide(1, 1, 65536, 4, 0, true).segments, 1) << "packed sequences stay whole";
  EXPECT_EQ(decide(1, 8, 4096, 4, 3).segments, 3) << "as asked for";
  EXPECT_EQ(decide(1, 0, 4096, 4).segments, 1);
}

}  // namespace
}  // namespace falchion::testing
