// tests/plan_hopper_f32_test.cpp: checks what the plan decides for softmax attention in f32 on Hopper, which is
// computed in two f16 parts where that pays. No GPU is needed, because target.sm names the architecture.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/attention.hpp"
#include "support/choices.hpp"
#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

Attention f32_problem(std::int64_t b, std::int64_t s_q, std::int64_t s_k, std::int64_t h_q, std::int64_t h_k,
                      std::int64_t d) {
  Attention a = problem(b, s_q, s_k, h_q, h_k, d);
  a.dtype = DType::f32;
  return a;
}

TEST(HopperF32Plan, F32IsSplitIntoHalves) {
  EXPECT_EQ(story_of(f32_problem(4, 1024, 1024, 16, 16, 128), hopper()),
            "problem     attention_forward f32: b 4, s_q 1024, s_k 1024, h_q 16, h_k 16, d_qk 128, d_v 128\n"
            "band        full\n"
            "score       scale 0.0883883\n"
            "work        34.4 Gflop, 100 % of s_q x s_k seen; 134 MB if each tensor moves once: 256 flop/B\n"
            "decision    sm90 halves\n"
            "device      sm_90: 132 SMs\n"
            "tiles       128 rows x 64 keys, head dims up to 128, 384 threads, 2 stages of K and V\n"
            "grid        512 tiles, dealt to 132 CTAs, 1 an SM: 4 waves, 96 % busy\n"
            "shared      198 kB a CTA\n"
            "workspace   101 MB: q, k and v as two f16 parts\n"
            "paths\n"
            "  sm90 halves f32  taken\n");
}

TEST(HopperF32Plan, HalvesByHeadDim) {
  const std::pair<int, const char*> expected[] = {{1, "64"},    {64, "64"},   {65, "128"}, {96, "128"},
                                                  {128, "128"}, {129, "256"}, {256, "256"}};
  for (const auto& [d, most] : expected)
    EXPECT_EQ(variant_of(f32_problem(4, 2048, 2048, 16, 16, d), hopper()), text("sm90 halves f32 ", most)) << d;
}

/// What kind plain takes in 16 bits, kind halves takes in f32. The rest goes to the general variant.
TEST(HopperF32Plan, HalvesHaveWhatPlainHas) {
  const Attention plain = f32_problem(4, 2048, 2048, 16, 4, 128);
  std::vector<Attention> taken(7, plain), others(8, plain);
  taken[0].band = {-1, 0, Align::bottom_right};
  taken[1].band = {100, 500, Align::top_left};
  taken[2].packed = true;
  taken[3].used_q = taken[3].used_k = true;
  taken[4].first_k = true;
  taken[5].lse = true;
  taken[6].d_v = 50;
  for (const Attention& a : taken) EXPECT_EQ(variant_of(a, hopper()), "sm90 halves f32 128");
  others[0].bias = true;
  others[1].mask = true;
  others[2].dropout = 0.1F;
  others[3].row_max = true;
  others[4].probabilities = true;
  others[5].score.softcap = 5;
  others[6].alibi = true;
  others[7].score.scale = -1;
  for (const Attention& a : others) EXPECT_EQ(variant_of(a, hopper()), "sm80 general f32 128");
  EXPECT_NE(story_of(others[5], hopper()).find("  sm90 halves f32 d128  softcap needs a general variant of sm80\n"),
            std::string::npos);
}

/// To split the operands takes time of its own. Whoever asks for sm90 by name gets it nevertheless.
TEST(HopperF32Plan, HalvesAreForEnoughWork) {
  EXPECT_EQ(variant_of(f32_problem(4, 512, 512, 16, 16, 128), hopper()), "sm90 halves f32 128");
  EXPECT_EQ(variant_of(f32_problem(1, 64, 8192, 32, 8, 128), hopper()), "sm90 halves f32 128") << "a chunk of a prompt";
  const Attention short_one = f32_problem(16, 32, 32, 16, 16, 64), small = f32_problem(1, 128, 128, 2, 2, 64);
  EXPECT_EQ(variant_of(short_one, hopper()), "sm80 general f32 64");
  EXPECT_EQ(variant_of(small, hopper()), "sm80 general f32 64");
  EXPECT_EQ(variant_of(short_one, on(90, Backend::sm90)), "sm90 halves f32 64");
  EXPECT_EQ(variant_of(small, on(90, Backend::sm90)), "sm90 halves f32 64");
  EXPECT_NE(
      story_of(small, hopper())
          .find("  sm90 halves f32 d64  it is for at least 204 Mflop on such operands, but here are 8.39 Mflop\n"),
      std::string::npos)
      << story_of(small, hopper());
}

/// The parts have a place for each row that the plan knows of, behind the partial results of split keys.
TEST(HopperF32Plan, HalvesInTheWorkspace) {
  const std::int64_t rows = 2 * 256 * 8, row_bytes = 4 * 128;
  EXPECT_EQ(decided(f32_problem(2, 256, 256, 8, 8, 100), on(90, Backend::sm90)).workspace,
            static_cast<std::size_t>(3 * rows * row_bytes + rows * (4 + 8)))
      << "d 100 is filled up to 128";
  const PlanData split = decided(f32_problem(1, 128, 8192, 4, 4, 128), hopper());
  EXPECT_GT(split.attention().splits, 1);
  EXPECT_GE(split.attention().copies,
            split.attention().partial_m_l + static_cast<std::size_t>(split.attention().splits) * 128 * 4 * 2 * 4);
  EXPECT_EQ(split.attention().copies % 64, 0u);
  EXPECT_EQ(split.workspace, split.attention().copies + (128 + 2 * 8192) * 4 * 512 + 128 * 4 * 4 + 8192 * 4 * 8);
}

/// Kind halves reads its operands one number at a time where it has to, so it takes any. Packed rows for which the
/// workspace has no place run on the general variant, which needs none.
TEST(HopperF32Plan, OperandsOfHalves) {
  static float data[8];
  const auto taken = [](const PlanData& plan, const Operands& x) { return taken_for(plan, layout_of(plan, x)); };
  Attention a = f32_problem(2, 512, 512, 4, 4, 128);
  Operands good;
  good.q = good.k = good.v = good.o = Tensor::dense(data, DType::f32, {2, 512, 4, 128});
  const PlanData plan = decided(a, on(90, Backend::sm90));
  EXPECT_EQ(taken(plan, good), "sm90 halves");
  Operands x = good;
  x.v.data = data + 1;
  EXPECT_EQ(taken(plan, x), "sm90 halves unaligned");
  x = good;
  x.k.stride[2] = 0;
  EXPECT_EQ(taken(plan, x), "sm90 halves");

  a.packed = true;
  const PlanData packed = decided(a, on(90, Backend::sm90));
  const auto rows = [&](std::int64_t q, std::int64_t k) {
    Operands y;
    y.q = y.o = Tensor::dense(data, DType::f32, {1, q, 4, 128});
    y.k = y.v = Tensor::dense(data, DType::f32, {1, k, 4, 128});
    return y;
  };
  EXPECT_EQ(taken(packed, rows(1024, 1024)), "sm90 halves");
  EXPECT_EQ(taken(packed, rows(1025, 1024)), "sm80 general");
  EXPECT_EQ(taken(packed, rows(1024, 1025)), "sm80 general");
  EXPECT_NE(
      story_of(a, on(90, Backend::sm90))
          .find("  sm90 halves d128   at most b * s_q and b * s_k packed rows\n  sm80 general d128  any operands\n"),
      std::string::npos)
      << story_of(a, on(90, Backend::sm90));
  a.s_k = 0;
  EXPECT_EQ(variant_of(a, hopper()), "sm80 general f32 128") << "no hint, so no place for any number of rows";
}

}  // namespace
}  // namespace falchion::testing
