// tests/plan_hopper_test.cpp: checks as text what the plan decides for Hopper. No GPU is needed, because target.sm
// names the architecture.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/attention.hpp"
#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

// ---- Which variant --------------------------------------------------------------------------------------------------

TEST(HopperPlan, Prefill) {
  EXPECT_EQ(
      story_of(problem(4, 4096, 4096, 16, 16, 128), hopper()),
      "problem     attention_forward bf16: b 4, s_q 4096, s_k 4096, h_q 16, h_k 16, d_qk 128, d_v 128\n"
      "band        full\n"
      "score       scale 0.0883883\n"
      "work        550 Gflop, 100 % of s_q x s_k seen; 268 MB if each tensor moves once: 2.05 kflop/B\n"
      "decision    sm90 plain\n"
      "device      sm_90: 132 SMs\n"
      "tiles       128 rows x 128 keys, head dims up to 128, 384 threads, 2 stages of K and V\n"
      "grid        2048 tiles, walked by 132 CTAs, 1 an SM: 16 waves, 96 % busy\n"
      "shared      198 kB a CTA\n"
      "workspace   0 B\n"
      "unaligned   operands that are not 16-byte aligned, or whose rows overlap, run on the variant general d128\n"
      "paths\n"
      "  sm90 plain bf16  taken\n");
}

TEST(HopperPlan, PlainVariantsByHeadDim) {
  const std::pair<int, const char*> expected[] = {{8, "64"},    {64, "64"},   {72, "96"},   {96, "96"},   {104, "128"},
                                                  {128, "128"}, {136, "192"}, {192, "192"}, {200, "256"}, {256, "256"}};
  for (const auto& [d, most] : expected) {
    Attention a = problem(4, 4096, 4096, 16, 16, d);
    EXPECT_EQ(variant_of(a, hopper()), text("sm90 plain bf16 ", most)) << d;
    a.dtype = DType::f16;
    EXPECT_EQ(variant_of(a, hopper()), text("sm90 plain f16 ", most)) << d;
    a.score.softcap = 30;
    EXPECT_EQ(variant_of(a, hopper()), text("sm90 score f16 ", most)) << d;
  }
  Attention wide_v = problem(4, 4096, 4096, 16, 16, 64);
  wide_v.d_v = 128;
  EXPECT_EQ(variant_of(wide_v, hopper()), "sm90 plain bf16 128");
}

TEST(HopperPlan, PlainHasBandsLengthsAndLse) {
  std::vector<Attention> all(6, problem(4, 4096, 4096, 16, 4, 128));
  all[0].band = {-1, 0, Align::bottom_right};
  all[1].band = {-1, 0, Align::top_left};
  all[2].band = {100, 50, Align::bottom_right};
  all[3].packed = true;
  all[4].used_q = all[4].used_k = true;
  all[5].lse = true;
  for (const Attention& a : all) EXPECT_EQ(variant_of(a, hopper()), "sm90 plain bf16 128");
  Attention unknown = problem(4, 0, 0, 16, 4, 128);  // These are packed lengths without a hint.
  unknown.packed = true;
  EXPECT_EQ(variant_of(unknown, hopper()), "sm90 plain bf16 128");
}

TEST(HopperPlan, LatentAttentionHasAVariant) {
  const auto taken = [](std::int64_t d_qk, std::int64_t d_v) {
    Attention a = problem(4, 4096, 4096, 16, 16, d_qk);
    a.d_v = d_v;
    return variant_of(a, hopper());
  };
  EXPECT_EQ(taken(192, 128), "sm90 mla bf16 192");
  EXPECT_EQ(taken(136, 64), "sm90 mla bf16 192");
  EXPECT_EQ(taken(192, 136), "sm90 plain bf16 192");
  EXPECT_EQ(taken(128, 64), "sm90 plain bf16 128");
  EXPECT_EQ(taken(200, 128), "sm90 plain bf16 256");
}

TEST(HopperPlan, ScoresTakeTheScoreVariant) {
  Attention a = problem(4, 1000, 1000, 16, 16, 128);
  a.score.softcap = 30;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 score bf16 128");
  const std::string story = story_of(a, hopper());
  EXPECT_NE(story.find("  sm90 plain bf16 d128  softcap needs a score variant of sm90 or a general one\n"
                       "  sm90 score bf16       taken\n"),
            std::string::npos)
      << story;
  a.alibi = true;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 score bf16 128");
  a.score.softcap = 0;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 score bf16 128");
}

TEST(HopperPlan, FewRowsTakeTheVariantFewOfSm80) {
  EXPECT_EQ(variant_of(problem(1, 1, 8192, 32, 8, 128), hopper()), "sm80 few bf16 128");
  EXPECT_EQ(variant_of(problem(1, 4, 8192, 32, 8, 64), hopper()), "sm80 few bf16 64") << "16 rows a K/V head";
  EXPECT_EQ(variant_of(problem(1, 5, 8192, 32, 8, 64), hopper()), "sm90 brief bf16 64") << "20 rows a K/V head";
  EXPECT_EQ(variant_of(problem(1, 16, 8192, 8, 8, 192), hopper()), "sm80 few bf16 256");
  Attention capped = problem(1, 1, 8192, 32, 8, 128);
  capped.score.softcap = 30;
  EXPECT_EQ(variant_of(capped, hopper()), "sm80 general bf16 128") << "few has no softcap";
  const std::string story = story_of(problem(1, 1, 8192, 32, 8, 128), hopper());
  EXPECT_NE(story.find("  sm90 plain bf16 d128  it is for more than 16 rows for each K/V head, but here are 4\n"
                       "  sm90 score bf16 d128  it is for more than 16 rows for each K/V head, but here are 4\n"
                       "  sm80 few bf16         taken\n"),
            std::string::npos)
      << story;
}

TEST(HopperPlan, SmallGridsTakeTheBriefVariant) {
  EXPECT_EQ(variant_of(problem(1, 512, 512, 16, 16, 64), hopper()), "sm90 brief bf16 64");
  EXPECT_EQ(variant_of(problem(1, 512, 512, 33, 33, 64), hopper()), "sm90 brief bf16 64") << "66 tiles of 256 rows";
  EXPECT_EQ(variant_of(problem(1, 512, 512, 34, 34, 64), hopper()), "sm90 plain bf16 64");
  EXPECT_EQ(variant_of(problem(8, 197, 197, 12, 12, 64), hopper()), "sm90 plain bf16 64") << "96";
  EXPECT_EQ(variant_of(problem(1, 512, 512, 16, 16, 72), hopper()), "sm90 plain bf16 96") << "whose tiles are short";
  Attention a = problem(1, 512, 512, 16, 16, 64);
  a.score.softcap = 30;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 score bf16 64");
  a = problem(8, 0, 0, 16, 16, 64);
  a.packed = true;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 plain bf16 64") << "nobody knows how many";
  const std::string large = story_of(problem(4, 4096, 4096, 32, 32, 64), hopper());
  EXPECT_NE(large.find("  sm90 brief bf16 d64  it is for at most 66 tiles of 256 rows, but here are 2048\n"
                       "  sm90 plain bf16      taken\n"),
            std::string::npos)
      << large;
  const std::string small = story_of(problem(1, 512, 512, 16, 16, 64), hopper());
  EXPECT_NE(small.find("decision    sm90 brief\n"
                       "device      sm_90: 132 SMs\n"
                       "tiles       64 rows x 128 keys, head dims up to 64, 256 threads, 2 stages of K and V\n"),
            std::string::npos)
      << small;
}

TEST(HopperPlan, FeaturesTakeTheGeneralVariantOfSm80) {
  const struct {
    const char* reason;
    void (*set)(Attention*);
  } features[] = {{"bias", [](Attention* a) { a->bias = true; }},
                  {"mask", [](Attention* a) { a->mask = true; }},
                  {"dropout", [](Attention* a) { a->dropout = 0.1f; }},
                  {"row_max", [](Attention* a) { a->row_max = true; }},
                  {"probabilities", [](Attention* a) { a->probabilities = true; }},
                  {"a head dim that is no multiple of 8", [](Attention* a) { a->d_qk = 100; }},
                  {"a head dim that is no multiple of 8", [](Attention* a) { a->d_v = 127; }},
                  {"scale = 1e-31", [](Attention* a) { a->score.scale = 1e-31f; }}};
  for (const auto& [reason, set] : features) {
    Attention a = problem(4, 1024, 1024, 16, 16, 128);
    set(&a);
    EXPECT_EQ(variant_of(a, hopper()), "sm80 general bf16 128") << reason;
    const std::string story = story_of(a, hopper());
    for (const char* path : {"sm90 plain bf16 d128", "sm90 score bf16 d128", "sm80 plain bf16 d128"})
      EXPECT_NE(story.find(text("  ", path, "  ", reason, " needs a general variant of sm80\n")), std::string::npos)
          << story;
    a.score.softcap = 30;
    EXPECT_EQ(variant_of(a, hopper()), "sm80 general bf16 128") << reason << " with a softcap";
  }
}

// ---- How the variant runs -------------------------------------------------------------------------------------------

/// A box of TMA holds whole groups of heads. So groups whose size does not divide the rows of a tile are not packed.
TEST(HopperPlan, OnlyGroupsThatDivideATileArePacked) {
  const auto group = [](std::int64_t s_q, std::int64_t h_q, std::int64_t h_k, std::int64_t d) {
    return decided(problem(1, s_q, 4096, h_q, h_k, d), hopper()).attention().group;
  };
  EXPECT_EQ(group(32, 32, 8, 128), 4);
  EXPECT_EQ(group(32, 8, 1, 128), 8);
  EXPECT_EQ(group(32, 24, 8, 128), 1) << "3 in tiles of 128 rows";
  EXPECT_EQ(group(32, 71, 1, 128), 1);
  EXPECT_EQ(group(1, 256, 1, 128), 1) << "more heads than rows";
  EXPECT_EQ(group(4096, 32, 8, 128), 1) << "it would save nothing";
  EXPECT_EQ(decided(problem(1, 32, 4096, 24, 8, 128), on(90, Backend::sm80)).attention().group, 3) << "no boxes there";
}

TEST(HopperPlan, WhoDealsTheTiles) {
  const auto walkers = [](const Attention& a) { return decided(a, hopper()).attention().walkers; };
  const Attention full = problem(4, 4096, 4096, 16, 16, 128);
  EXPECT_EQ(walkers(full), 132) << "one an SM";
  EXPECT_EQ(walkers(problem(1, 1024, 1024, 15, 15, 128)), 120) << "no more than tiles";
  EXPECT_EQ(walkers(causal(8192, 128)), 132);
  EXPECT_EQ(walkers(causal(8193, 128)), 0) << "long bands: the hardware";
  EXPECT_EQ(walkers(problem(4, 16384, 16384, 16, 16, 128)), 132) << "without a band, however long";
  Attention x = full;
  x.packed = true;
  EXPECT_EQ(walkers(x), 132);
  x.s_q = 0;
  EXPECT_EQ(walkers(x), 132) << "a hint of nothing";
  x = full;
  x.packed = true;
  x.band = causal(1, 1).band;
  EXPECT_EQ(walkers(x), 0) << "nobody knows how long tiles are";
  x.s_q = x.s_k = 1024;
  x.b = 16;
  EXPECT_EQ(walkers(x), 131) << "many short ones even out";
  EXPECT_FALSE(decided(x, hopper()).attention().pairs);
  x.h_q = x.h_k = 2;
  EXPECT_EQ(walkers(x), 0) << "too few";
  x = causal(1024, 128);
  x.b = 16;
  x.used_k = true;
  EXPECT_EQ(walkers(x), 131) << "nor are used lengths known";
  x = full;
  x.used_q = true;
  EXPECT_EQ(walkers(x), 132);
  x = full;
  x.bias = true;
  EXPECT_EQ(walkers(x), 0) << "variants of sm80 have no walkers";
  x = causal(1024, 128);
  x.b = 1;
  x.h_q = x.h_k = 25;  // These are 25 x 8 tiles.
  EXPECT_EQ(walkers(x), 100) << "no more than pairs of tiles";
  x.h_q = x.h_k = 20;
  x.s_q = x.s_k = 1100;  // These are 20 x 9 tiles.
  EXPECT_EQ(walkers(x), 90) << "pairs across two heads";
  x = full;
  x.b = 0;
  EXPECT_EQ(walkers(x), 0);
  // These are 128 tiles, all of the same length.
  x = causal(8192, 128);
  x.b = 4;
  x.h_q = x.h_k = 32;
  x.s_q = 128;
  EXPECT_EQ(walkers(x), 0) << "each has an SM to itself";
  x.s_q = 1024;
  EXPECT_EQ(walkers(x), 132);
  EXPECT_FALSE(decided(x, hopper()).attention().pairs) << "no triangle";
  EXPECT_TRUE(decided(causal(8192, 128), hopper()).attention().pairs);
}

/// A grid of two waves always starts early, a smaller one only where a CTA has its SM for itself.
TEST(HopperPlan, WhatMayStartEarly) {
  const auto early = [](const Attention& a, const Target& target) { return decided(a, target).attention().early; };
  EXPECT_TRUE(early(problem(1, 128, 128, 4, 4, 128), hopper())) << "sm90 plain, one CTA an SM";
  EXPECT_TRUE(early(problem(4, 4096, 4096, 16, 16, 128), hopper()));
  EXPECT_FALSE(early(problem(1, 512, 512, 16, 16, 64), hopper())) << "sm90 brief, two CTAs an SM";
  const Target sm80_code = on(90, Backend::sm80);
  EXPECT_FALSE(early(problem(1, 128, 128, 4, 4, 128), sm80_code)) << "sm80 plain, several CTAs an SM";
  EXPECT_TRUE(early(problem(4, 4096, 4096, 16, 16, 128), sm80_code));
  EXPECT_FALSE(early(problem(4, 4096, 4096, 16, 16, 128), on(80))) << "Ampere cannot";
}

TEST(HopperPlan, SplitsKeys) {
  Attention a = problem(1, 128, 8192, 8, 8, 128);
  EXPECT_EQ(
      describe(decided(a, hopper())),
      "attention_forward sm90 plain bf16 d128 dv128 band full tile 128x128x128 group 1 grid 120 splits 15 ws 7.99 MB");
  EXPECT_EQ(decided(a, hopper()).attention().walkers, 120) << "walked too";
  a.packed = true;
  EXPECT_EQ(decided(a, hopper()).attention().splits, 1) << "partial results would have no place";
}

/// Operands that TMA cannot move run on the general variant of sm80.
TEST(HopperPlan, OperandsThatTmaCannotMove) {
  alignas(16) static std::uint16_t data[64];
  const PlanData of_sm90 = decided(problem(2, 64, 64, 4, 4, 128), hopper());
  const PlanData of_sm80 = decided(problem(2, 64, 64, 4, 4, 128), on(80));
  Operands good;
  good.q = good.k = good.v = good.o = Tensor::dense(data, DType::bf16, {2, 64, 4, 128});
  const auto taken = [](const PlanData& plan, const Operands& x) {
    const auto [variant, aligned] = gpu_variant(plan, x);
    return text(name(variant->backend), " ", variant->level, aligned ? "" : " unaligned");
  };
  EXPECT_EQ(taken(of_sm90, good), "sm90 plain");
  EXPECT_EQ(taken(of_sm80, good), "sm80 plain");
  Operands x = good;
  x.v.data = data + 1;
  EXPECT_EQ(taken(of_sm90, x), "sm80 general unaligned");
  x = good;
  x.k.stride[2] = 132;
  EXPECT_EQ(taken(of_sm90, x), "sm80 general unaligned");
  x = good;
  x.k.stride[2] = 0;  // All heads share one.
  EXPECT_EQ(taken(of_sm90, x), "sm80 general") << "a tensor map has no stride 0";
  EXPECT_EQ(taken(of_sm80, x), "sm80 plain");
  x = good;
  x.k.stride[1] = 64;  // The rows overlap.
  EXPECT_EQ(taken(of_sm90, x), "sm80 general");
  x = good;
  x.q.stride[1] = -512;
  EXPECT_EQ(taken(of_sm90, x), "sm80 general");
  x = good;
  x.k.stride[0] = std::int64_t{1} << 39;
  EXPECT_EQ(taken(of_sm90, x), "sm80 general") << "strides below 2^40 bytes";
  x = good;
  x.o.stride[1] = -512;
  EXPECT_EQ(taken(of_sm90, x), "sm90 plain") << "O is not written by TMA";
}

TEST(HopperPlan, Sm90IsRefusedElsewhere) {
  const Attention a = problem(4, 4096, 4096, 16, 16, 128);
  EXPECT_EQ(variant_of(a, on(90, Backend::sm90)), "sm90 plain bf16 128");
  EXPECT_EQ(variant_of(a, on(80, Backend::sm90)),
            "backend = sm90 with sm = 80: its kernels (wgmma, TMA) run on sm_90 alone");
  EXPECT_EQ(variant_of(a, on(100, Backend::sm90)),
            "backend = sm90 with sm = 100: its kernels (wgmma, TMA) run on sm_90 alone");
  // The answer is the same where another device is here.
  for (const int sm : {80, 100}) {
    PlanData plan;
    const Status status = plan_problem(a, Pass::forward, on(sm, Backend::sm90), &plan, true);
    EXPECT_EQ(status.code, Code::unsupported);
    const std::string reason = text("sm_", sm, " is sm_", sm, ", this is machine code of sm_90a");
    EXPECT_NE(status.why.find("sm90 plain bf16 d128: " + reason), std::string::npos) << status.why;
  }
  for (const int sm : {80, 86, 89, 100, 120}) EXPECT_EQ(variant_of(a, on(sm)), "sm80 plain bf16 128") << sm;
}

TEST(HopperPlan, Sm90IsRefusedWhatItHasNot) {
  Attention a = problem(4, 1024, 1024, 16, 16, 128);
  a.bias = true;
  EXPECT_EQ(
      variant_of(a, on(90, Backend::sm90)),
      "no path for attention_forward bf16; sm90 plain bf16 d128: bias needs a general variant of sm80; sm90 score "
      "bf16 d128: bias needs a general variant of sm80");
  EXPECT_EQ(variant_of(problem(1, 1, 8192, 32, 8, 128), on(90, Backend::sm90)),
            "no path for attention_forward bf16; sm90 plain bf16 d128: it is for more than 16 rows for each K/V head, "
            "but here are 4; sm90 score bf16 d128: it is for more than 16 rows for each K/V head, but here are 4");
}

}  // namespace
}  // namespace falchion::testing
