// tests/plan_chunk_test.cpp: checks which kernel the plan takes on Hopper for more query rows than decode has, over a
// KV cache. No GPU is needed, because target.sm names the architecture.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

Attention chunk(std::int64_t page_size, std::int64_t d = 128) {
  Attention a = problem(1, 2048, 16384, 32, 8, d);
  a.band = Band::causal(Align::bottom_right);
  a.cache = a.used_k = true;
  a.page_size = page_size;
  return a;
}

TEST(ChunkPlan, APageHasPieces) {
  for (const std::int64_t size : {8, 16, 24, 32, 48, 64, 128, 200, 256, 1024})
    EXPECT_EQ(variant_of(chunk(size), hopper()), "sm90 pages bf16 128") << size;
  for (const std::int64_t size : {1, 2, 4, 7, 12, 100})
    EXPECT_EQ(variant_of(chunk(size), hopper()), "sm80 pages_general bf16 128") << size;
  const std::string story = story_of(chunk(12), hopper());
  EXPECT_NE(story.find("  sm90 pages bf16 d128      it is for pages of a multiple of 8 keys, but here they have 12\n"),
            std::string::npos)
      << story;
}

TEST(ChunkPlan, HeadDims) {
  const struct {
    std::int64_t d, most;
  } expected[] = {{8, 64}, {64, 64}, {72, 128}, {96, 128}, {128, 128}, {136, 256}, {192, 256}, {256, 256}};
  for (const auto& [d, most] : expected) {
    Attention a = chunk(16, d);
    EXPECT_EQ(variant_of(a, hopper()), text("sm90 pages bf16 ", most)) << d;
    a.dtype = DType::f16;
    EXPECT_EQ(variant_of(a, hopper()), text("sm90 pages f16 ", most)) << d;
  }
}

TEST(ChunkPlan, WhatAChunkHas) {
  Attention a = chunk(16);
  a.packed = a.sinks = a.append = a.lse = true;
  a.rotary_dim = 64;
  a.band = Band::window(4096, 0, Align::bottom_right);
  EXPECT_EQ(variant_of(a, hopper()), "sm90 pages bf16 128");
  a.band = Band::causal(Align::at, 300);
  EXPECT_EQ(variant_of(a, hopper()), "sm90 pages bf16 128");
  a.score.softcap = 30;
  EXPECT_EQ(variant_of(a, hopper()), "sm80 pages_general bf16 128");
  a = chunk(16);
  a.first_k = true;
  EXPECT_EQ(variant_of(a, hopper()), "sm80 pages_general bf16 128");
  a = chunk(16);
  a.dtype = DType::f32;
  EXPECT_EQ(variant_of(a, hopper()), "sm80 pages_general f32 128");
}

/// 16 tiles of rows for 132 SMs. Packed rows are cut by the hint s_q; without one nobody knows how many there are.
TEST(ChunkPlan, FewRowsCutTheirKeys) {
  Attention a = chunk(16);
  a.s_q = 64;
  a.s_k = 131072;
  const PlanData alone = decided(a, hopper());
  EXPECT_EQ(alone.attention().splits, 8);
  a.packed = true;
  const PlanData packed = decided(a, hopper());
  EXPECT_EQ(packed.attention().splits, 8);
  EXPECT_EQ(packed.workspace, alone.workspace);
  a.s_q = 0;
  EXPECT_EQ(decided(a, hopper()).attention().splits, 1);
  a.s_q = 64;
  a.page_size = 0;
  EXPECT_EQ(decided(a, hopper()).attention().splits, 1) << "kind plain does not cut packed rows";
  a.page_size = 4;
  EXPECT_EQ(decided(a, hopper()).attention().splits, 1) << "nor do kernels for every GPU";
}

TEST(ChunkPlan, InRowsItIsPlain) {
  Attention a = chunk(0);
  EXPECT_EQ(variant_of(a, hopper()), "sm90 plain bf16 128");
  a.packed = a.append = true;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 plain bf16 128");
  a.score.softcap = 30;
  EXPECT_EQ(variant_of(a, hopper()), "sm90 score bf16 128");
}

TEST(ChunkPlan, KindsForPagesGoWithoutSayingElsewhere) {
  Attention a = problem(1, 2048, 2048, 8, 8, 128);
  a.bias = true;
  EXPECT_EQ(story_of(a, hopper()).find("pages"), std::string::npos);
}

}  // namespace
}  // namespace falchion::testing
