// tests/plan_hopper_test.cpp: checks as text what the plan decides for Hopper. No GPU is needed, because target.sm
// names the architecture.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/attention.hpp"
#include "plan/constants.hpp"
#include "support/choices.hpp"
#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

// ---- Which variant --------------------------------------------------------------------------------------------------

TEST(HopperPlan, Prefill) {
  EXPECT_EQ(story_of(problem(4, 4096, 4096, 16, 16, 128), hopper()),
            "problem     attention_forward bf16: b 4, s_q 4096, s_k 4096, h_q 16, h_k 16, d_qk 128, d_v 128\n"
            "band        full\n"
            "score       scale 0.0883883\n"
            "work        550 Gflop, 100 % of s_q x s_k seen; 268 MB if each tensor moves once: 2.05 kflop/B\n"
            "decision    sm90 plain\n"
            "device      sm_90: 132 SMs\n"
            "tiles       128 rows x 128 keys, head dims up to 128, 384 threads, 2 stages of K and V\n"
            "grid        2048 tiles, dealt to 132 CTAs, 1 an SM: 16 waves, 96 % busy\n"
            "shared      198 kB a CTA\n"
            "workspace   0 B\n"
            "choices     a run takes the first that its operands fit\n"
            "  sm90 plain d128    16-byte aligned, strides that TMA accepts (rows do not overlap)\n"
            "  sm80 general d128  any operands\n"
            "paths\n"
            "  sm90 plain brief bf16 d128  it is for at most 64 rows for each K/V head, but here are 4096\n"
            "  sm90 plain bf16             taken\n");
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
  EXPECT_EQ(taken(192, 128), "sm90 plain mla bf16 192");
  EXPECT_EQ(taken(136, 64), "sm90 plain mla bf16 192");
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

TEST(HopperPlan, SmallGridsTakeTheBriefVariant) {
  EXPECT_EQ(variant_of(problem(1, 512, 512, 16, 16, 64), hopper()), "sm90 plain brief bf16 64");
  EXPECT_EQ(variant_of(problem(1, 512, 512, 33, 33, 64), hopper()), "sm90 plain brief bf16 64")
      << "66 tiles of 256 rows";
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
  EXPECT_NE(large.find("  sm90 plain brief bf16 d64  it is for at most 66 tiles of 256 rows, but here are 2048\n"
                       "  sm90 plain bf16            taken\n"),
            std::string::npos)
      << large;
  const std::string small = story_of(problem(1, 512, 512, 16, 16, 64), hopper());
  EXPECT_NE(small.find("decision    sm90 plain brief\n"
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

/// Who deals the tiles to how many CTAs, and the workspace that it takes.
std::string dealt(const Attention& a) {
  const PlanData plan = decided(a, hopper());
  if (plan.attention().walkers == 0) return text("a CTA each, ", plan.workspace, " B");
  return text(plan.attention().walkers, plan.attention().counted ? " draw, " : " in turn, ", plan.workspace, " B");
}

TEST(HopperPlan, TilesOfTheSameLengthAreDealtInTurn) {
  EXPECT_EQ(dealt(problem(4, 4096, 4096, 16, 16, 128)), "132 in turn, 0 B") << "one an SM";
  EXPECT_EQ(dealt(problem(1, 1024, 1024, 15, 15, 128)), "120 in turn, 0 B") << "no more than tiles";
  EXPECT_EQ(dealt(problem(4, 16384, 16384, 16, 16, 128)), "132 in turn, 0 B") << "however long";
  EXPECT_EQ(dealt(problem(1, 512, 512, 16, 16, 64)), "128 in turn, 0 B") << "sm90 plain brief";
  EXPECT_EQ(dealt(problem(0, 4096, 4096, 16, 16, 128)), "a CTA each, 0 B") << "nothing to do";
  Attention x = problem(4, 4096, 4096, 16, 16, 128);
  x.bias = true;
  EXPECT_EQ(dealt(x), "a CTA each, 0 B") << "variants of sm80";
}

TEST(HopperPlan, TilesOfOtherLengthsAreDrawnFromACounter) {
  EXPECT_EQ(dealt(causal(128, 128)), "64 in turn, 0 B") << "one tile for each CTA";
  EXPECT_EQ(dealt(causal(8192, 128)), "132 draw, 16 B");
  EXPECT_EQ(dealt(causal(65536, 128)), "132 draw, 16 B") << "however long";
  Attention x = causal(4096, 128);
  x.band = {100, 50, Align::bottom_right};
  EXPECT_EQ(dealt(x), "132 draw, 16 B") << "a window";
  x.band = {100, -1, Align::top_left};
  EXPECT_EQ(dealt(x), "132 draw, 16 B") << "bounded on the left alone";
  x = causal(4096, 128);
  x.h_k = 4;
  EXPECT_EQ(dealt(x), "132 draw, 16 B") << "GQA";
  x.score.softcap = 30;
  EXPECT_EQ(dealt(x), "132 draw, 16 B") << "sm90 score";
  x = problem(4, 4096, 4096, 16, 16, 128);
  x.used_k = true;
  EXPECT_EQ(dealt(x), "132 draw, 16 B") << "only the device knows the lengths";
  x.used_k = false;
  x.first_k = true;
  EXPECT_EQ(dealt(x), "132 draw, 16 B");
  // As many tiles as CTAs, and one more. With one tile for each CTA nothing is left to draw.
  x = causal(1408, 128);  // 11 tiles
  x.b = 1;
  x.h_q = x.h_k = 12;
  EXPECT_EQ(dealt(x), "132 in turn, 0 B");
  x.s_q = x.s_k = 1409;
  EXPECT_EQ(dealt(x), "132 draw, 16 B");
}

/// How many tiles packed sequences have is known when a run begins, so its hints say neither how many CTAs there are
/// nor whether they draw.
TEST(HopperPlan, PackedSequencesAreDrawnFromACounter) {
  Attention x = problem(4, 4096, 4096, 16, 16, 128);
  x.packed = true;
  EXPECT_EQ(dealt(x), "132 draw, 16 B");
  x.s_q = x.s_k = 0;
  EXPECT_EQ(dealt(x), "132 draw, 16 B") << "a hint of nothing";
  x.s_q = x.s_k = 100;
  x.b = 1;
  EXPECT_EQ(dealt(x), "132 draw, 16 B") << "a hint of 32 tiles";
  x.band = causal(1, 1).band;
  EXPECT_EQ(dealt(x), "132 draw, 16 B");
}

/// The parts of split keys have a workspace of their own, and no counter.
TEST(HopperPlan, SplitKeysAreDealtInTurn) {
  Attention a = problem(1, 128, 8192, 8, 8, 128);
  a.band = causal(1, 1).band;
  const PlanData plan = decided(a, hopper());
  EXPECT_EQ(plan.attention().splits, 15);
  EXPECT_FALSE(plan.attention().counted);
  EXPECT_EQ(dealt(a), text("120 in turn, ", 15 * 128 * 8 * (128 + 2) * 4, " B"));
  a.h_q = a.h_k = 86;
  EXPECT_EQ(dealt(a), text("132 in turn, ", 3 * 128 * 86 * (128 + 2) * 4, " B")) << "258 tiles";
}

TEST(HopperPlan, ASectionIsWhatFitsIntoTheL2) {
  const auto section = [](const Attention& a, std::int64_t total_k = 0) {
    return gpu_section(a, total_k, decided(a, hopper()).attention().group, tiles::kSectionBytes);
  };
  EXPECT_EQ(section(causal(4096, 128)), 8) << "K and V of a head have 2 MB";
  EXPECT_EQ(section(causal(4096, 64)), 16);
  EXPECT_EQ(section(causal(4097, 128)), 7) << "8 heads would pass 16 MB";
  EXPECT_EQ(section(causal(32768, 128)), 1);
  EXPECT_EQ(section(causal(1 << 20, 256)), 1) << "one head at least";
  Attention x = causal(4096, 192);
  x.d_v = 128;
  EXPECT_EQ(section(x), 6) << "2.5 MB";
  // Query heads that share K and V are of the same section.
  x = causal(4096, 128);
  x.h_k = 4;
  EXPECT_EQ(section(x), 8 * 4);
  x.s_q = x.s_k = 1 << 20;
  EXPECT_EQ(section(x), 4) << "those of one K/V head at least";
  x = causal(4096, 128);
  x.h_k = 4;
  x.s_q = 32;
  EXPECT_EQ(decided(x, hopper()).attention().group, 4);
  EXPECT_EQ(section(x), 8) << "they are rows of the same tiles";
  // Each column of packed sequences has all of them, and a hint says nothing about their keys.
  x = causal(100, 128);
  x.packed = true;
  EXPECT_EQ(section(x, 4096), 8);
  EXPECT_EQ(section(x, 32768), 1);
  EXPECT_GE(section(x, 0), 16) << "no keys at all";
}

TEST(HopperPlan, ExplainTellsOfTheCounter) {
  const std::string story = story_of(causal(4096, 128), hopper());
  EXPECT_NE(story.find("\ngrid        2048 tiles, drawn from a counter by 132 CTAs, 1 an SM: 16 waves, 96 % busy\n"),
            std::string::npos)
      << story;
  EXPECT_NE(story.find("\nworkspace   16 B\n"), std::string::npos) << story;
  const std::string each = story_of(problem(4, 4096, 4096, 16, 16, 128), on(90, Backend::sm80));
  EXPECT_NE(each.find("\ngrid        2048 CTAs, "), std::string::npos) << each;
}

/// A grid of two waves always starts early, a smaller one only where a CTA has its SM for itself.
TEST(HopperPlan, WhatMayStartEarly) {
  const auto early = [](const Attention& a, const Target& target) { return decided(a, target).attention().early; };
  EXPECT_TRUE(early(problem(1, 128, 128, 4, 4, 128), hopper())) << "sm90 plain, one CTA an SM";
  EXPECT_TRUE(early(problem(4, 4096, 4096, 16, 16, 128), hopper()));
  EXPECT_FALSE(early(problem(1, 512, 512, 16, 16, 64), hopper())) << "sm90 plain brief, two CTAs an SM";
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
  const auto taken = [](const PlanData& plan, const Operands& x) { return taken_for(plan, layout_of(plan, x)); };
  EXPECT_EQ(taken(of_sm90, good), "sm90 plain brief");
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
  for (Tensor Operands::*tensor : {&Operands::q, &Operands::k, &Operands::v}) {
    x = good;
    (x.*tensor).stride[1] = 64;  // The rows overlap.
    EXPECT_EQ(taken(of_sm90, x), "sm80 general");
  }
  x = good;
  x.q.stride[1] = -512;
  EXPECT_EQ(taken(of_sm90, x), "sm80 general");
  x = good;
  x.k.stride[0] = std::int64_t{1} << 39;
  EXPECT_EQ(taken(of_sm90, x), "sm80 general") << "strides below 2^40 bytes";
  x = good;
  x.o.stride[1] = -512;
  EXPECT_EQ(taken(of_sm90, x), "sm90 plain brief") << "O is not written by TMA";
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
  a = problem(1, 1, 8192, 16, 16, 256);
  a.score.softcap = 30;
  EXPECT_EQ(
      variant_of(a, on(90, Backend::sm90)),
      "no path for attention_forward bf16; sm90 decode bf16 d256: softcap needs a score variant of sm90 or a general "
      "one; sm90 plain bf16 d256: softcap needs a score variant of sm90 or a general one; sm90 score bf16 d256: it is "
      "for more than 16 rows for each K/V head, but here are 1");
}

}  // namespace
}  // namespace falchion::testing
