// tests/linear_gpu_plan_test.cpp: tests which GPU variant a plan of linear attention takes and how it is cut, whatever
// variants this build has. No test here computes anything or needs a GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "plan/linear_attention.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "support/choices.hpp"
#include "support/paths.hpp"

namespace falchion::testing {
namespace {

class LinearGpuVariants : public ::testing::Test {
 protected:
  static LinearAttention problem(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
    LinearAttention a;
    a.b = b;
    a.h_qk = a.h_v = h;
    a.s = s;
    a.d_qk = a.d_v = d;
    return a;
  }
  static PlanData decide(const LinearAttention& a, int segments = 0, Pass pass = Pass::forward,
                         Backend backend = Backend::sm80) {
    Target target(backend);
    target.sm = 90;
    target.segments = segments;
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
  a.decay = Decay::none;
  a.feature_map = FeatureMap::elu_plus_one;
  EXPECT_EQ(level(a), "general");
  a.normalise = true;
  EXPECT_EQ(level(a), "normalise");
  EXPECT_EQ(level(problem(2, 8, 1024, 60)), "general");
  EXPECT_STREQ(for_any(decide(problem(2, 8, 1024, 64)))->level, "general");
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
      a = problem(2, 8, 1024, d);
      a.dtype = dtype;
      a.decay = Decay::head;
      EXPECT_EQ(level(a, Pass::backward), "exact");
      a.decay = Decay::none;
      a.normalise = true;
      EXPECT_EQ(level(a, Pass::backward), "exact");
      a.normalise = false;
      a.h_v = 16;
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
    ASSERT_NE(for_any(f32), nullptr);
    EXPECT_STREQ(for_any(f32)->level, "exact");
    a.dtype = DType::bf16;
    a.d_v = 128;
    a.initial_state = a.final_state = true;
    EXPECT_EQ(backend(a, pass), Backend::sm90);
    const PlanData plan = decide(problem(2, 8, 1024, 64), 0, pass, Backend::best);
    ASSERT_NE(for_any(plan), nullptr) << "what TMA cannot move has another variant";
    EXPECT_EQ(for_any(plan)->backend, Backend::sm80);
    EXPECT_NE(explain(plan).find("\n  sm80 general d64  any operands\n"), std::string::npos) << explain(plan);
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
      "  sm90 plain bf16 d64    the normaliser needs an exact variant of sm80\n"
      "  sm80 plain bf16 d64    the normaliser needs an exact variant of sm80\n"
      "  sm80 general bf16 d64  the normaliser needs an exact variant of sm80\n"
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
  EXPECT_EQ(of_sm90[0].reason, "it takes head dims up to 128, but the problem's largest is 256");
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

/// Each operand of a pass that a kernel moves 16 bytes at a time: with rows at other addresses, and with rows that
/// overlap, which TMA cannot load.
TEST_F(LinearGpuVariants, OperandsThatTheVariantCannotMove) {
  alignas(16) static std::uint16_t data[64];
  const Tensor dense = Tensor::dense(data, DType::bf16, {2, 64, 4, 64});
  using Moved = std::vector<Tensor LinearOperands::*>;
  using X = LinearOperands;
  const Moved of_pass[] = {{&X::q, &X::k, &X::v, &X::o},
                           {&X::q, &X::k, &X::v, &X::grad_o, &X::grad_q, &X::grad_k, &X::grad_v}};
  LinearAttention a = problem(2, 4, 64, 64);
  a.dtype = DType::bf16;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const PlanData of_sm90 = decide(a, 0, pass, Backend::sm90), of_sm80 = decide(a, 0, pass);
    const auto taken = [](const PlanData& plan, const X& x) { return taken_for(plan, layout_of(plan, x)); };
    const Moved& moved = of_pass[pass == Pass::forward ? 0 : 1];
    X good;
    for (Tensor X::*tensor : moved) good.*tensor = dense;
    EXPECT_EQ(taken(of_sm90, good), "sm90 plain");
    EXPECT_EQ(taken(of_sm80, good), "sm80 plain");
    for (Tensor X::*tensor : moved) {
      X x = good;
      (x.*tensor).data = data + 1;
      EXPECT_EQ(taken(of_sm90, x), "sm80 general unaligned");
      EXPECT_EQ(taken(of_sm80, x), "sm80 general unaligned");
      x = good;
      (x.*tensor).stride[1] = 32;
      EXPECT_EQ(taken(of_sm90, x), "sm80 general");
      EXPECT_EQ(taken(of_sm80, x), "sm80 plain");
    }
  }
}

}  // namespace
}  // namespace falchion::testing
