// tests/plan_sms_test.cpp: Target::sms: a plan for fewer SMs than the GPU has launches fewer CTAs. No GPU is needed,
// because target.sm names the architecture.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "support/gemm_args.hpp"
#include "support/gemm_plan.hpp"
#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

Target for_sms(int sms, int sm = 90) {
  Target target = on(sm);
  target.sms = sms;
  return target;
}

/// Plain tiles, tiles from a counter, packed rows, decode, and f32: no more CTAs than the SMs hold.
TEST(SmsPlan, AttentionHasNoMoreCtasThanTheyHold) {
  Attention plain = problem(4, 4096, 4096, 16, 16, 128), causal = plain, packed = plain, f32 = plain;
  causal.band = Band::causal(Align::top_left);
  packed.packed = true;
  f32.dtype = DType::f32;
  const Attention few = problem(8, 1, 65536, 32, 8, 128), one_head = problem(1, 1, 65536, 8, 1, 128);
  for (const Attention& a : {plain, causal, packed, f32, few, one_head}) {
    const PlanData all = decided(a, hopper());
    ASSERT_GE(all.attention().walkers, 128);
    for (const int sms : {1, 2, 7, 66, 100}) {
      const PlanData plan = decided(a, for_sms(sms));
      EXPECT_EQ(plan.variant, all.variant);
      EXPECT_GT(plan.attention().walkers, 0) << sms;
      EXPECT_LE(plan.attention().walkers, sms * plan.gpu.ctas) << sms;
      EXPECT_GT(plan.attention().walkers, sms * plan.gpu.ctas * 3 / 4 - 1) << sms;
    }
    for (const int sms : {0, 132, 133, 65535})
      EXPECT_EQ(decided(a, for_sms(sms)).attention().walkers, all.attention().walkers) << sms;
  }
}

/// At d 64 Hopper's backward pass is held to them, and at d 128 its CTAs have a tile each.
TEST(SmsPlan, TheBackwardPassAtHeadDim64HasNoMoreCtasThanTheyHold) {
  const auto walkers = [](const Attention& a, int sms) {
    return decided(a, for_sms(sms), Pass::backward).attention().walkers;
  };
  Attention a = problem(4, 4096, 4096, 16, 16, 64);
  EXPECT_EQ(walkers(a, 0), 132);
  EXPECT_EQ(walkers(a, 66), 66);
  EXPECT_EQ(walkers(problem(1, 1000, 1000, 2, 2, 64), 66), 16) << "8 tiles of keys of 2 heads";
  EXPECT_TRUE(decided(a, for_sms(66), Pass::backward).attention().counted);
  EXPECT_FALSE(decided(problem(1, 1000, 1000, 2, 2, 64), for_sms(66), Pass::backward).attention().counted);
  a.d_qk = a.d_v = 128;
  EXPECT_EQ(walkers(a, 66), 0);
}

/// Fewer SMs want fewer parts of the keys.
TEST(SmsPlan, PartsOfTheKeysFollow) {
  for (const int sm : {80, 90}) {
    Attention a = problem(1, 64, 16384, 8, 8, 128);
    a.band = Band::window(4000, 0, Align::bottom_right);
    const int all = decided(a, on(sm)).attention().splits, some = decided(a, for_sms(16, sm)).attention().splits;
    EXPECT_LT(some, all) << sm;
    EXPECT_GE(some, 1);
  }
}

TEST(SmsPlan, GemmHasNoMoreClustersThanTheyHold) {
  for (const std::int64_t m : {1, 16, 4096}) {
    const Gemm g = gemm(m, 8192, 8192);
    GemmOperands x;
    x.a = Tensor::dense(nullptr, DType::bf16, {1, m, 8192, 1});
    x.b = Tensor::dense(nullptr, DType::bf16, {1, 8192, 8192, 1});
    x.d = Tensor::dense(nullptr, DType::bf16, {1, m, 8192, 1});
    for (const int sms : {1, 2, 9, 66}) {
      const PlanData plan = decided(g, for_sms(sms));
      ASSERT_EQ(plan.backend, Backend::sm90);
      const gpu::GemmArgs args = to_gpu_gemm_args(plan, *plan.variant, x, nullptr);
      const int of_kind = plan.variant->facts_as<gpu::GemmFacts>().cluster;
      const int cluster = plan.variant->kind == VariantKind::few ? args.splits : of_kind;
      EXPECT_GE(args.walkers, 1);
      EXPECT_LE(args.walkers * cluster, std::max(sms, cluster)) << "m " << m << ", sms " << sms;
    }
  }
}

TEST(SmsPlan, Story) {
  const auto says = [](const Attention& a, const Target& target, const char* what) {
    const std::string story = story_of(a, target);
    EXPECT_NE(story.find(what), std::string::npos) << story;
  };
  const Attention few = problem(8, 1, 65536, 32, 8, 128);
  says(few, for_sms(100), "device      sm_90: 132 SMs, of which the plan uses 100\n");
  says(few, for_sms(100), "grid        96 CTAs, 1 an SM, 96 % busy: 12 groups of 8 CTAs, one per K/V head;");
  says(few, for_sms(0), "device      sm_90: 132 SMs\n");
  says(few, for_sms(50, 80),
       "device      sm_80: 108 SMs, of which the plan is for 50; its CTAs have a tile each, and go to any SM that is "
       "free\n");
}

}  // namespace
}  // namespace falchion::testing
