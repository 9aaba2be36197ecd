// tests/plan_append_test.cpp: checks what the plan decides for new keys and rotary embedding. No GPU is needed, because
// target.sm names the architecture.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "plan/work.hpp"
#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

Attention step(std::int64_t s_q, std::int64_t page_size) {
  Attention a = problem(4, s_q, 8192, 32, 8, 128);
  a.cache = a.used_k = a.append = true;
  a.page_size = page_size;
  a.rotary_dim = 64;
  return a;
}

TEST(AppendPlan, ItTakesTheKindOfTheSameAttention) {
  for (const int sm : {80, 90})
    for (const std::int64_t s_q : {1, 4, 500})
      for (const std::int64_t page_size : {0, 16}) {
        const Attention a = step(s_q, page_size);
        Attention plain = a;
        plain.append = false;
        plain.rotary_dim = 0;
        EXPECT_EQ(variant_of(a, on(sm)), variant_of(plain, on(sm))) << sm << " " << s_q << " " << page_size;
      }
  Attention a = step(1, 16);
  EXPECT_EQ(variant_of(a, hopper()), "sm90 decode bf16 128");
  a.first_k = true;
  EXPECT_EQ(variant_of(a, hopper()), "sm80 pages few bf16 128");
  a = step(1, 0);
  a.band = Band::causal(Align::top_left);
  EXPECT_EQ(variant_of(a, hopper()), "sm80 plain few bf16 128");
}

TEST(AppendPlan, TheRotatedQueriesLieInTheWorkspace) {
  for (const int sm : {80, 90}) {
    const Attention a = step(500, 0);
    Attention plain = a;
    plain.rotary_dim = 0;
    const PlanData with = decided(a, on(sm)), without = decided(plain, on(sm));
    const std::size_t bytes = std::size_t{4} * 500 * 32 * 128 * 2;
    EXPECT_GE(with.attention().rotated, without.workspace);
    EXPECT_EQ(with.workspace, with.attention().rotated + bytes);
    EXPECT_EQ(with.attention().rotated % 64, 0U);
  }
}

/// New keys are read instead of their slots, and written there; each row reads its angles, and there are sinks.
TEST(AppendPlan, BytesOfTheWork) {
  Attention a = step(5, 16);
  a.sinks = true;
  Attention plain = a;
  plain.append = plain.sinks = false;
  plain.rotary_dim = 0;
  EXPECT_EQ(attention_bytes(a) - attention_bytes(plain), 4 * 5 * (8 * 256 * 2 + 64 * 4) + 32 * 4);
}

TEST(AppendPlan, Story) {
  const auto says = [](const Attention& a, const Target& target, const char* what) {
    const std::string story = story_of(a, target);
    EXPECT_NE(story.find(what), std::string::npos) << story;
  };
  says(step(500, 0), hopper(),
       "new keys    the new keys are written into the cache, rotated, and q is rotated, by a kernel before\n");
  says(step(1, 0), hopper(), ", and q is rotated, by the same kernel\n");
  says(step(500, 0), hopper(), "with        cache, append, used_k, rotary embedding of 64 columns\n");
  Attention a = step(500, 0);
  a.rotary_dim = 0;
  says(a, on(80), "new keys    the new keys are written into the cache, by a kernel before\n");
  a.append = false;
  EXPECT_EQ(story_of(a, on(80)).find("new keys"), std::string::npos);
}

}  // namespace
}  // namespace falchion::testing
