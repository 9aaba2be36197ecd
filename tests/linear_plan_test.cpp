// tests/linear_plan_test.cpp: tests what a plan of linear attention decides, and compares describe() and explain() with
// golden text. No test here computes anything or needs a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

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
  linear.problem.b = 1, linear.problem.s = 4096, linear.problem.h_qk = 1, linear.problem.h_v = 2;
  linear.problem.d_qk = linear.problem.d_v = 64, linear.problem.scale = 0.125f;
  linear.problem.decay = Decay::token, linear.problem.normalise = linear.problem.final_state = true;
  linear.problem.feature_map = FeatureMap::elu_plus_one;
  linear.segments = 8, linear.segment = 512, linear.ctas = 2;
  plan.items = 2;
  return plan;
}

TEST(LinearDescribe, Golden) {
  PlanData plan = made_up();
  plan.backend = Backend::cpu, plan.variant = &kCpuVariant, plan.threads = 4;
  plan.linear().memory = {.scratch = 100000, .states = 200000}, plan.workspace = 600000;
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
  plan.backend = Backend::ref, plan.variant = nullptr;
  EXPECT_EQ(describe(plan), "linear_attention_forward ref bf16 d64 dv64 decay token normalised ws 600 kB");
}

TEST(LinearDescribe, GoldenOfAGpu) {
  PlanData plan = made_up();
  plan.operation = &operation_of(LinearAttention{}, Pass::backward);
  plan.pass = Pass::backward, plan.backend = Backend::sm80, plan.variant = &kGpuVariant;
  plan.gpu.unaligned = &kGpuVariant;
  plan.gpu.device = "NVIDIA H200", plan.gpu.sms = 132, plan.workspace = 600000;
  plan.linear().problem.reverse = true, plan.linear().problem.decay = Decay::head;
  plan.rejected = {{"sm90 bf16", "variants.def has no such variant yet: its kernels arrive in a later version"}};
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
            "  sm90 bf16        variants.def has no such variant yet: its kernels arrive in a later version\n"
            "  sm80 chunk bf16  taken\n");
}

TEST(LinearExplain, Refusals) {
  LinearAttention a;
  a.h_qk = 3, a.h_v = 4, a.d_qk = a.d_v = 8;
  EXPECT_EQ(explain(a, Pass::forward, {}), "decision    refused (invalid): h_v = 4 is not a multiple of h_qk = 3\n");
}

/// Checks the flops and bytes of b 8, h 16 and s 8192 in bf16.
TEST(LinearWork, FlopsAndBytes) {
  LinearAttention a;
  a.b = 8, a.s = 8192, a.h_qk = a.h_v = 16, a.d_qk = a.d_v = 64;
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
    a.b = b, a.h_qk = a.h_v = h, a.s = s, a.d_qk = a.d_v = 64, a.packed = packed;
    Target target(Backend::cpu);
    target.threads = threads, target.segments = segments, target.cpu_level = "generic";
    Plan plan;
    const Status status = Plan::make(a, Pass::forward, target, &plan);
    EXPECT_TRUE(status) << status.why;
    EXPECT_GE(plan.data()->linear().segment * plan.data()->linear().segments, s) << "every token has a segment";
    EXPECT_LT(plan.data()->linear().segment * (plan.data()->linear().segments - 1), std::max<std::int64_t>(s, 1))
        << "and every segment a token";
    return plan.data()->linear();
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

// ---- variants of the GPU, whatever this build has -------------------------------------------------------------------

class LinearGpuVariants : public ::testing::Test {
 protected:
  static LinearAttention problem(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
    LinearAttention a;
    a.b = b, a.h_qk = a.h_v = h, a.s = s, a.d_qk = a.d_v = d;
    return a;
  }
  static PlanData decide(const LinearAttention& a, int segments = 0, Pass pass = Pass::forward,
                         Backend backend = Backend::sm80) {
    Target target(backend);
    target.sm = 90, target.segments = segments;
    PlanData plan;
    const Status status = plan_problem(a, pass, target, &plan, true);
    EXPECT_TRUE(status) << status.why;
    return plan;
  }
  static std::string level(const LinearAttention& a, Pass pass = Pass::forward) {
    const PlanData plan = decide(a, 0, pass);
    return plan.variant != nullptr ? plan.variant->level : "none";
  }
};

TEST_F(LinearGpuVariants, FeaturesTakeTheirLevel) {
  LinearAttention a = problem(2, 8, 1024, 64);
  EXPECT_EQ(level(a), "plain");
  a.initial_state = a.final_state = a.reverse = true;
  EXPECT_EQ(level(a), "plain");
  a.decay = Decay::head;
  EXPECT_EQ(level(a), "general");
  a.decay = Decay::none, a.feature_map = FeatureMap::elu_plus_one;
  EXPECT_EQ(level(a), "general");
  a.normalise = true;
  EXPECT_EQ(level(a), "normalise");
  EXPECT_EQ(level(problem(2, 8, 1024, 60)), "general");
  EXPECT_EQ(decide(problem(2, 8, 1024, 64)).gpu.unaligned->level, std::string("general"));
}

TEST_F(LinearGpuVariants, WhatTheFastVariantsDoNotTakeGoesToTheExactOnes) {
  LinearAttention a = problem(2, 8, 1024, 64);
  a.dtype = DType::f32;
  EXPECT_EQ(level(a), "plain");
  EXPECT_EQ(level(a, Pass::backward), "plain");
  a.decay = Decay::token;
  EXPECT_EQ(level(a), "exact");
  a = problem(2, 8, 1024, 128);
  a.normalise = true;
  EXPECT_EQ(level(a), "exact") << "z beside a state of 128 columns does not fit";
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t d : {64, 128, 256}) {
      a = problem(2, 8, 1024, d), a.dtype = dtype;
      a.decay = Decay::head;
      EXPECT_EQ(level(a, Pass::backward), "exact");
      a.decay = Decay::none, a.normalise = true;
      EXPECT_EQ(level(a, Pass::backward), "exact");
      a.normalise = false, a.h_v = 16;
      EXPECT_EQ(level(a, Pass::backward), "exact");
    }
  }
}

TEST_F(LinearGpuVariants, HopperTakesPlainBf16AndF32AndSm80TheRest) {
  const auto backend = [](const LinearAttention& a, Pass pass) {
    const PlanData plan = decide(a, 0, pass, Backend::best);
    return plan.variant != nullptr ? plan.variant->backend : Backend::ref;
  };
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    LinearAttention a = problem(2, 8, 1024, 64);
    EXPECT_EQ(backend(a, pass), Backend::sm90);
    a.dtype = DType::f32;
    EXPECT_EQ(backend(a, pass), Backend::sm90);
    const PlanData f32 = decide(a, 0, pass, Backend::best);
    ASSERT_NE(f32.gpu.unaligned, nullptr);
    EXPECT_STREQ(f32.gpu.unaligned->level, "exact");
    a.dtype = DType::bf16;
    a.d_v = 128, a.initial_state = a.final_state = true;
    EXPECT_EQ(backend(a, pass), Backend::sm90);
    const PlanData plan = decide(problem(2, 8, 1024, 64), 0, pass, Backend::best);
    ASSERT_NE(plan.gpu.unaligned, nullptr) << "what TMA cannot move has another variant";
    EXPECT_EQ(plan.gpu.unaligned->backend, Backend::sm80);
    EXPECT_NE(explain(plan).find("or whose rows overlap, run on the variant general d64\n"), std::string::npos);
    for (const auto change :
         {+[](LinearAttention* x) { x->packed = true; }, +[](LinearAttention* x) { x->d_qk = 60; },
          +[](LinearAttention* x) { x->dtype = DType::f16; }, +[](LinearAttention* x) { x->decay = Decay::head; },
          +[](LinearAttention* x) { x->d_v = 256; }}) {
      LinearAttention other = problem(2, 8, 1024, 64);
      change(&other);
      EXPECT_EQ(backend(other, pass), Backend::sm80);
    }
  }
}

/// The sizes are chosen for the 132 SMs of an H200. A CTA with all columns of a head takes 1.4 times as long as each of
/// two CTAs with half of them.
TEST_F(LinearGpuVariants, ManyHeadsOfF32GetCtasWithAllTheirColumns) {
  const auto wide = [](std::int64_t heads, Pass pass, auto change) {
    LinearAttention a = problem(1, heads, 8192, 128);
    a.dtype = DType::f32;
    change(&a);
    return decide(a, 0, pass, Backend::sm90).linear().wide;
  };
  const auto as_it_is = [](LinearAttention*) {};
  EXPECT_EQ(wide(64, Pass::forward, as_it_is), 0) << "one wave of 128 CTAs";
  EXPECT_EQ(wide(66, Pass::forward, as_it_is), 0);
  EXPECT_EQ(wide(67, Pass::forward, as_it_is), 1) << "one longer wave instead of two";
  EXPECT_EQ(wide(72, Pass::forward, as_it_is), 1) << "kManyHeads of linear_contract_test.cpp";
  EXPECT_EQ(wide(72, Pass::backward, as_it_is), 3);
  EXPECT_EQ(wide(133, Pass::forward, as_it_is), 1) << "2.8 instead of 3";
  EXPECT_EQ(wide(22, Pass::backward, as_it_is), 0) << "one wave of 132";
  EXPECT_EQ(wide(32, Pass::backward, as_it_is), 3) << "1.4 instead of 2";
  EXPECT_EQ(wide(44, Pass::backward, as_it_is), 3) << "1.4, one wave of 132";
  EXPECT_EQ(wide(45, Pass::backward, as_it_is), 2) << "1.4 and 1 instead of 2.8, as with one";
  EXPECT_EQ(wide(64, Pass::backward, as_it_is), 2);
  EXPECT_EQ(wide(96, Pass::backward, as_it_is), 2) << "3.8: 72 SMs have two of the others after one, 60 one after two";
  EXPECT_EQ(wide(128, Pass::backward, as_it_is), 3) << "4.2 instead of 4.8";
  for (const auto change :
       {+[](LinearAttention* a) { a->initial_state = true; }, +[](LinearAttention* a) { a->final_state = true; },
        +[](LinearAttention* a) { a->d_v = 64; }, +[](LinearAttention* a) { a->d_qk = 96; },
        +[](LinearAttention* a) { a->dtype = DType::bf16; }}) {
    EXPECT_EQ(wide(67, Pass::forward, change), 0);
    EXPECT_EQ(wide(64, Pass::backward, change), 0);
  }
  LinearAttention a = problem(1, 64, 8192, 128);
  a.dtype = DType::f32;
  const PlanData plan = decide(a, 0, Pass::backward, Backend::sm90);
  EXPECT_EQ(plan.linear().ctas, 64 * (2 + 2));
  EXPECT_NE(describe(plan).find(" wide 2 "), std::string::npos) << describe(plan);
  EXPECT_NE(explain(plan).find("wide        128 CTAs, 1 an SM: 1 wave, each with all 128 columns of a head\n"
                               "grid        128 CTAs, 1 an SM: 1 wave\n"),
            std::string::npos)
      << explain(plan);
  EXPECT_EQ(decide(a, 2, Pass::backward, Backend::sm90).linear().wide, 0) << "segments were asked for";
}

TEST_F(LinearGpuVariants, AreExplainedByABuildWithoutThem) {
  const auto all = variants();
  if (std::any_of(all.begin(), all.end(),
                  [](const Variant& v) { return v.kernel_as<gpu::LinearAttentionKernel>() != nullptr; }))
    GTEST_SKIP() << "this build has some";
  LinearAttention a = problem(1, 2, 8192, 64);
  a.normalise = a.final_state = true;
  Target target(Backend::best);
  target.sm = 90;
  Plan plan;
  EXPECT_EQ(Plan::make(a, Pass::backward, target, &plan).code, Code::unsupported);
  EXPECT_EQ(
      explain(a, Pass::backward, target),
      "not built   this build lacks the variant sm80 exact bf16 d64 (FALCHION_CUDA is off, or FALCHION_VARIANTS left "
      "it out), so Plan::make refuses; here is what a build that has it would do\n"
      "problem     linear_attention_backward bf16: b 1, s 8192, h_qk 2, h_v 2, d_qk 64, d_v 64\n"
      "terms       scale 0.125, feature map identity, decay: none, normalised, eps 1e-06\n"
      "with        final state\n"
      "work        1.34 Gflop in chunks of 64; 14.7 MB if each tensor moves once: 91 flop/B\n"
      "decision    sm80 exact\n"
      "device      sm_90: 132 SMs\n"
      "chunks      64 tokens; the state of a head, 64 x 65 f32, goes along\n"
      "segments    22 of 384 tokens: 2 heads would leave SMs idle, so each segment's state is computed first and "
      "added up\n"
      "grid        132 CTAs, 1 an SM: 1 wave\n"
      "shared      151 kB a CTA, 256 threads\n"
      "workspace   10.9 MB\n"
      "paths\n"
      "  sm90 plain bf16 d64    the normaliser needs a normalise or exact variant\n"
      "  sm80 plain bf16 d64    the normaliser needs a normalise or exact variant\n"
      "  sm80 general bf16 d64  the normaliser needs a normalise or exact variant\n"
      "  sm80 exact bf16        would be taken\n");
  EXPECT_TRUE(explain(a, Pass::forward, Backend::sm80)
                  .starts_with("not built   this build lacks the variant sm80 normalise "
                               "bf16 d64 (FALCHION_CUDA is off"));
}

/// Where every variant of a back end is too small, the largest of them says so. Elsewhere it goes without saying.
TEST_F(LinearGpuVariants, TooLargeAHeadDimIsNamed) {
  const auto refusal = [](std::int64_t d, Backend backend) {
    Target target(backend);
    target.sm = 90;
    PlanData plan;
    EXPECT_EQ(plan_problem(problem(1, 2, 1024, d), Pass::forward, target, &plan, true).code,
              backend == Backend::sm90 ? Code::unsupported : Code::ok);
    return plan.rejected;
  };
  const std::vector<Rejected> of_sm90 = refusal(256, Backend::sm90);
  ASSERT_EQ(of_sm90.size(), 1U);
  EXPECT_EQ(of_sm90[0].path, "sm90 plain bf16 d128");
  EXPECT_EQ(of_sm90[0].reason, "head dims up to 128, the problem's largest is 256");
  EXPECT_TRUE(refusal(128, Backend::sm80).empty()) << "that d 64 is too small goes without saying";
}

TEST_F(LinearGpuVariants, FewHeadsAreCutIntoSegments) {
  EXPECT_EQ(decide(problem(8, 64, 2048, 64)).linear().segments, 1);
  EXPECT_EQ(decide(problem(1, 1, 64, 64)).linear().segments, 1) << "one chunk";
  const PlanData few = decide(problem(1, 1, 65536, 64));
  EXPECT_EQ(few.linear().segments, 128) << "8 chunks each, for 132 SMs";
  EXPECT_EQ(few.linear().parts, 1) << "512 tokens";
  EXPECT_EQ(few.linear().segment % few.variant->facts_as<gpu::LinearVariantFacts>().chunk, 0);
  EXPECT_GT(few.workspace, 0u);
  EXPECT_EQ(decide(problem(8, 64, 2048, 64), 4).linear().segments, 4);
  const PlanData half = decide(problem(4, 16, 8192, 64));
  EXPECT_EQ(half.linear().segments, 2) << "64 heads for 132 SMs";
  EXPECT_EQ(half.linear().parts, 4);
  EXPECT_EQ(decide(problem(4, 16, 64 * 33 * 2, 64)).linear().parts, 1) << "33 chunks are no two parts of 1024 tokens";
  EXPECT_EQ(decide(problem(4, 16, 64 * 32 * 2, 64)).linear().parts, 2);
  const auto hopper = [&](std::int64_t b, std::int64_t h, std::int64_t s, DType dtype, int segments = 0) {
    LinearAttention a = problem(b, h, s, 64);
    a.dtype = dtype;
    return decide(a, segments, Pass::forward, Backend::sm90).linear();
  };
  EXPECT_EQ(hopper(4, 16, 8192, DType::bf16).segments, 1) << "half of the SMs are enough";
  EXPECT_EQ(hopper(4, 16, 8192, DType::f32).segments, 2);
  EXPECT_EQ(hopper(4, 16, 8192, DType::f32).parts, 2) << "two CTAs, a part each";
  EXPECT_EQ(hopper(1, 16, 32768, DType::bf16).segments, 8);
  EXPECT_EQ(hopper(1, 16, 32768, DType::bf16).parts, 1) << "a CTA sums one part";
  EXPECT_EQ(hopper(1, 1, 32768, DType::bf16, 3).parts, 1) << "4 parts would be more than 3 CTAs";
  EXPECT_EQ(hopper(1, 1, 32768, DType::bf16, 2).parts, 2);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const std::int64_t s : {64, 130, 1000, 4096, 8192, 65536}) {
      for (int segments = 2; segments <= 20; ++segments) {
        const LinearPlan cut = hopper(1, 3, s, dtype, segments);
        EXPECT_LE((cut.segments - 1) * cut.parts, cut.segments) << s << " tokens in " << segments;
      }
    }
  }
  LinearAttention twelve = problem(1, 1, 32768, 64);
  twelve.dtype = DType::bf16;
  EXPECT_EQ(decide(twelve, 12, Pass::forward, Backend::sm90).workspace,
            14u * (64 * 64 * sizeof(float) + sizeof(std::uint64_t)))
      << "11 parts, 2 totals of 4, what segment 0 starts from; the number of a launch each";
  LinearAttention packed = problem(4, 2, 65536, 64);
  packed.packed = true;
  EXPECT_EQ(decide(packed).linear().segments, 1);
}

}  // namespace
}  // namespace falchion::testing
