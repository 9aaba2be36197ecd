// tests/plan_decode_test.cpp: checks what the plan decides for few query rows on Hopper. No GPU is needed, because
// target.sm names the architecture.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "plan/attention.hpp"
#include "support/gpu_plan.hpp"
#include "tiles/attention_forward/sm90_decode.hpp"

namespace falchion::testing {
namespace {

TEST(DecodePlan, FewRowsTakeIt) {
  EXPECT_EQ(variant_of(problem(1, 1, 8192, 32, 8, 128), hopper()), "sm90 decode bf16 128");
  EXPECT_EQ(variant_of(problem(1, 1, 8192, 32, 8, 128), on(90, Backend::sm90)), "sm90 decode bf16 128");
  EXPECT_EQ(variant_of(problem(1, 4, 8192, 32, 8, 64), hopper()), "sm90 decode bf16 64") << "16 rows a K/V head";
  EXPECT_EQ(variant_of(problem(1, 8, 8192, 32, 8, 64), hopper()), "sm90 decode bf16 64") << "32 rows a K/V head";
  EXPECT_EQ(variant_of(problem(1, 9, 8192, 32, 8, 64), hopper()), "sm90 plain brief bf16 64") << "36 rows a K/V head";
  EXPECT_EQ(variant_of(problem(1, 16, 100, 8, 8, 64), hopper()), "sm90 decode bf16 64");
  EXPECT_EQ(variant_of(problem(1, 17, 1024, 8, 8, 64), hopper()), "sm90 decode bf16 64");
  EXPECT_EQ(variant_of(problem(1, 17, 1023, 8, 8, 64), hopper()), "sm90 plain brief bf16 64") << "few keys";
  EXPECT_EQ(variant_of(problem(1, 8, 8192, 32, 8, 128), hopper()), "sm90 plain brief bf16 128") << "32 rows a K/V head";
  EXPECT_EQ(variant_of(problem(1, 16, 8192, 32, 8, 128), hopper()), "sm90 plain brief bf16 128")
      << "64 rows a K/V head";
  EXPECT_EQ(variant_of(problem(1, 17, 8192, 32, 8, 128), hopper()), "sm90 plain bf16 128") << "68 rows a K/V head";
  EXPECT_EQ(variant_of(problem(1, 10, 8192, 24, 8, 128), hopper()), "sm90 decode bf16 128")
      << "64 rows are no whole groups";
  EXPECT_EQ(variant_of(problem(1, 32, 8192, 8, 8, 192), hopper()), "sm90 decode bf16 256");
  EXPECT_EQ(variant_of(problem(1, 1, 8192, 32, 8, 128), on(90, Backend::sm80)), "sm80 plain few bf16 128");
  EXPECT_EQ(variant_of(problem(1, 1, 8192, 32, 8, 128), on(80)), "sm80 plain few bf16 128");
  Attention a = problem(1, 1, 8192, 32, 8, 128);
  a.dtype = DType::f16;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 decode f16 128");
  a.band = {100, 0, Align::bottom_right};
  a.used_q = a.used_k = a.first_k = a.lse = true;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 decode f16 128");
  a.score.softcap = 30;
  EXPECT_EQ(variant_of(a, hopper()), "sm80 general f16 128");
  Attention packed = problem(8, 1, 8192, 32, 8, 128);
  packed.packed = true;
  EXPECT_EQ(variant_of(packed, hopper()), "sm90 decode bf16 128");
  packed.s_q = 0;
  EXPECT_EQ(variant_of(packed, hopper()), "sm90 plain bf16 128") << "nobody knows how many rows";
}

TEST(DecodePlan, CachesOfEightBitsHaveAKindOfTheirOwn) {
  Attention a = problem(64, 1, 32768, 32, 8, 128);
  a.cache = a.used_k = true;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 decode bf16 128");
  for (const DType dtype : {DType::e4m3, DType::i8}) {
    a.dtype_k = a.dtype_v = dtype;
    EXPECT_EQ(variant_of(a, hopper()), "sm90 decode_bytes bf16 128");
    Attention rest = a;
    rest.dtype = DType::f16;
    rest.k_scale = rest.v_scale = rest.append = rest.sinks = rest.packed = true;
    rest.page_size = 16;
    rest.rotary_dim = 64;
    rest.d_qk = rest.d_v = 208;
    rest.s_q = 8;
    EXPECT_EQ(variant_of(rest, hopper()), "sm90 decode_bytes f16 256");
    rest.s_k = 100;
    EXPECT_EQ(variant_of(rest, hopper()), "sm90 decode_bytes f16 256") << "no other kind takes 32 rows";
    Attention wide = a;
    wide.s_q = 8;
    EXPECT_EQ(variant_of(wide, hopper()), "sm90 decode_bytes bf16 128") << "nor does tile brief";
    rest.s_q = 9;
    EXPECT_EQ(story_of(rest, hopper()).find("decode_bytes f16"), std::string::npos) << "36 rows a K/V head";
  }
  const std::string story = story_of(a, hopper());
  EXPECT_NE(story.find("floor       reading the 4.29 GB of K and V"), std::string::npos) << story;
  EXPECT_NE(story.find("tiles       8 rows x 64 keys, head dims up to 128, 384 threads, 8 stages of K and V"),
            std::string::npos)
      << story;
  a.score.softcap = 30;
  EXPECT_NE(story_of(a, hopper()).find("sm90 decode_bytes bf16 d128  softcap needs"), std::string::npos)
      << story_of(a, hopper());
}

TEST(DecodePlan, WhyNot) {
  const std::string story = story_of(problem(1, 17, 1000, 8, 8, 256), hopper());
  EXPECT_NE(
      story.find("  sm90 decode bf16 d256  with more than 16 rows for each K/V head it is for at least 1024 keys, "
                 "but here are 1000\n"),
      std::string::npos)
      << story;
  EXPECT_EQ(story_of(problem(1, 33, 8192, 8, 8, 256), hopper()).find("decode"), std::string::npos)
      << "it goes without saying";
  const std::string longest = story_of(problem(1, 1, std::int64_t{1} << 28, 1, 1, 128), hopper());
  EXPECT_NE(longest.find("it is for lengths up to 268435455, but here are 268435456\n"), std::string::npos) << longest;
  const std::string many = story_of(problem(1 << 20, 1, 131073, 1, 1, 64), hopper());
  EXPECT_NE(many.find("it is for at most 2147483647 tiles of keys, but here are 2.14853e+09\n"), std::string::npos)
      << many;
}

TEST(DecodePlan, Story) {
  Attention a = problem(1, 1, 8192, 32, 8, 128);
  EXPECT_EQ(
      story_of(a, hopper()),
      "problem     attention_forward bf16: b 1, s_q 1, s_k 8192, h_q 32, h_k 8, d_qk 128, d_v 128\n"
      "band        full\n"
      "score       scale 0.0883883\n"
      "work        134 Mflop, 100 % of s_q x s_k seen; 33.6 MB if each tensor moves once: 4.00 flop/B\n"
      "decision    sm90 decode\n"
      "device      sm_90: 132 SMs\n"
      "floor       reading the 33.6 MB of K and V: 11.0015 us on an H100, 7.29444 us on an H200\n"
      "tiles       8 rows x 64 keys, head dims up to 128, 384 threads, 4 stages of K and V; the 4 query heads of a "
      "K/V head are rows of one tile\n"
      "grid        128 CTAs, 1 an SM, 96 % busy: 16 groups of 8 CTAs, one per K/V head; on the device they get equal "
      "shares of the tiles of keys\n"
      "shared      172 kB a CTA\n"
      "workspace   542 kB\n"
      "choices     a run takes the first that its operands fit\n"
      "  sm90 decode d128   16-byte aligned\n"
      "  sm80 general d128  any operands\n"
      "paths\n"
      "  sm90 decode bf16  taken\n");
}

/// K/V heads side by side: as many as divide h_k and leave few of 132 SMs idle.
TEST(DecodePlan, HeadsSideBySide) {
  const struct {
    std::int64_t h_k;
    int width, ctas;
  } expected[] = {{1, 1, 132},     {2, 2, 132},     {3, 3, 132},   {4, 4, 132},   {5, 5, 130},
                  {7, 7, 126},     {8, 8, 128},     {9, 9, 126},   {12, 12, 132}, {16, 16, 128},
                  {20, 10, 130},   {32, 32, 128},   {40, 10, 130}, {64, 64, 128}, {96, 32, 128},
                  {128, 128, 128}, {131, 131, 131}, {133, 7, 126}, {137, 1, 132}};
  for (const auto& [h_k, width, ctas] : expected) {
    const PlanData plan = decided(problem(4, 1, 65536, h_k, h_k, 128), hopper());
    EXPECT_EQ(plan.attention().width, width) << h_k;
    EXPECT_EQ(plan.attention().walkers, ctas) << h_k;
    EXPECT_EQ(plan.items, 4 * h_k);
  }
}

TEST(DecodePlan, NoMoreCtasThanTiles) {
  EXPECT_EQ(decided(problem(1, 1, 64, 32, 8, 128), hopper()).attention().walkers, 8);
  EXPECT_EQ(decided(problem(1, 1, 65, 32, 8, 128), hopper()).attention().walkers, 16);
  EXPECT_EQ(decided(problem(2, 1, 0, 32, 8, 128), hopper()).attention().walkers, 16) << "O = 0 must be stored";
  EXPECT_EQ(decided(problem(0, 1, 64, 32, 8, 128), hopper()).attention().walkers, 0);
  EXPECT_EQ(decided(problem(1, 0, 64, 32, 8, 128), hopper()).attention().walkers, 0);
  Attention packed = problem(1, 1, 64, 32, 8, 128);
  packed.packed = true;
  EXPECT_EQ(decided(packed, hopper()).attention().walkers, 128) << "s_k is a hint";
}

/// A place for 8, 16 or 32 rows of d f32, with a message of 16 bytes for m and l, and a number of 8 bytes.
TEST(DecodePlan, Workspace) {
  EXPECT_EQ(decided(problem(1, 1, 8192, 32, 8, 128), hopper()).workspace, 128U * (8 * (128 * 4 + 16) + 8));
  EXPECT_EQ(decided(problem(1, 3, 8192, 32, 8, 64), hopper()).workspace, 128U * (16 * (64 * 4 + 16) + 8));
  EXPECT_EQ(decided(problem(1, 5, 8192, 32, 8, 64), hopper()).workspace, 128U * (32 * (64 * 4 + 16) + 8));
}

/// With split_keys each part has a place, and where all sequences have one part nobody needs any. The operands of a run
/// may ask for a general kernel, whose parts need no more.
TEST(DecodePlan, Parts) {
  Attention a = problem(16, 1, 8192, 32, 8, 128);
  a.split_keys = 1024;
  PlanData plan = decided(a, hopper());
  EXPECT_EQ(variant_of(a, hopper()), "sm90 decode bf16 128");
  EXPECT_EQ(plan.attention().splits, 8);
  EXPECT_EQ(plan.attention().walkers, 128);
  EXPECT_EQ(plan.workspace, 16U * 8 * 8 * (8 * (128 * 4 + 16) + 8));
  const std::size_t of_general = plan.attention().partial_m_l + 8U * 16 * 32 * 2 * 4;
  EXPECT_EQ(plan.attention().partial_m_l, 8U * 16 * 32 * 128 * 4);
  EXPECT_LE(of_general, plan.workspace);
  a.s_k = 1000;
  EXPECT_EQ(decided(a, hopper()).attention().splits, 1);
  EXPECT_EQ(decided(a, hopper()).workspace, 0U);
  a.s_k = 129 * 1024;
  EXPECT_NE(variant_of(a, hopper()).find("there can be at most 128 parts, but here are 129"), std::string::npos)
      << variant_of(a, hopper());
}

/// The kind must not depend on the longest sequence of the batch, nor on how many SMs the plan may use.
TEST(DecodePlan, PartsOfAllLengths) {
  for (const std::int64_t s_k : {1, 100, 1023, 1024, 8192}) {
    for (const std::int64_t s_q : {1, 4, 5, 8}) {
      Attention a = problem(4, s_q, s_k, 32, 8, 128);
      a.split_keys = 1024;
      for (const int sms : {0, 1, 66}) {
        Target target = hopper();
        target.sms = static_cast<std::uint16_t>(sms);
        EXPECT_EQ(variant_of(a, target), "sm90 decode bf16 128") << s_q << " " << s_k << " on " << sms;
      }
    }
  }
}

}  // namespace
}  // namespace falchion::testing
