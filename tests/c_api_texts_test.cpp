// tests/c_api_texts_test.cpp: tests the texts that the C API gives out: describe, explain, and the reason of a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "falchion/falchion.h"
#include "support/c_api.hpp"
#include "support/contract.hpp"

namespace falchion::testing {
namespace {

TEST(CApi, TextsOfAPlan) {
  const fal_attention problem = small();
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_plan_make(&problem, FAL_FORWARD, &target, &plan), FAL_OK);
  EXPECT_STREQ(fal_plan_describe(plan), "attention_forward ref f32 d8 dv8 band full ws 0 B");
  EXPECT_NE(std::strstr(fal_plan_explain(plan, FAL_TEXT), "decision    ref"), nullptr);
  fal_plan_free(plan);
  target.backend = FAL_BEST;
  target.sm = 90;
  const char* story = fal_explain(&problem, FAL_FORWARD, &target, FAL_TEXT);
  EXPECT_NE(std::strstr(story, "sm90 halves f32"), nullptr) << story;
  EXPECT_STREQ(fal_version(), version());
  EXPECT_EQ(fal_build_info(), build_info());
}

/// Each format is made only once and is the text that C++ gives. It stays at its address while the other format is
/// requested.
TEST(CApi, ExplainInBothFormats) {
  const fal_attention problem = small();
  const fal_target target = host();
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_plan_make(&problem, FAL_FORWARD, &target, &plan), FAL_OK);
  const char* const text = fal_plan_explain(plan, FAL_TEXT);
  const char* const json = fal_plan_explain(plan, FAL_JSON);
  EXPECT_EQ(std::strncmp(text, "problem ", 8), 0) << text;
  EXPECT_EQ(std::strncmp(json, "{\"falchion\":", 12), 0) << json;
  EXPECT_EQ(fal_plan_explain(plan, FAL_TEXT), text);
  EXPECT_EQ(fal_plan_explain(plan, FAL_JSON), json);
  EXPECT_EQ(fal_plan_describe(plan), fal_plan_describe(plan));
  EXPECT_STREQ(fal_explain(&problem, FAL_FORWARD, &target, FAL_JSON), json);
  EXPECT_STREQ(fal_explain(&problem, FAL_FORWARD, &target, FAL_TEXT), text);
  fal_plan_free(plan);
  EXPECT_STREQ(fal_plan_explain(nullptr, FAL_TEXT), "no plan");
  EXPECT_EQ(std::string(fal_plan_explain(nullptr, FAL_JSON)), Plan().explain(Format::json));
  EXPECT_NE(std::strstr(fal_explain(nullptr, 0, nullptr, FAL_JSON), R"("why":"attention is null")"), nullptr);
}

TEST(CApi, AnUnknownFormatIsNull) {
  const fal_attention problem = small();
  const fal_linear_attention linear = FAL_LINEAR_ATTENTION_INIT;
  fal_plan* plan = nullptr;
  for (const std::int32_t format : {-1, 2, 256}) {
    ASSERT_EQ(fal_plan_make(&problem, FAL_FORWARD, nullptr, &plan), FAL_OK);
    const std::string why = text("format = ", format, ": it must be 0 to 1");
    EXPECT_EQ(fal_plan_explain(plan, format), nullptr);
    EXPECT_EQ(fal_why(), why);
    fal_plan_free(plan);
    ASSERT_EQ(fal_plan_make(&problem, FAL_FORWARD, nullptr, &plan), FAL_OK) << "forgets why";
    EXPECT_EQ(fal_explain(&problem, FAL_FORWARD, nullptr, format), nullptr);
    EXPECT_EQ(fal_why(), why);
    EXPECT_EQ(fal_linear_explain(&linear, FAL_FORWARD, nullptr, format), nullptr);
    EXPECT_EQ(fal_plan_explain(nullptr, format), nullptr);
    fal_plan_free(plan);
  }
}

/// The reason of a refusal is still there after the texts that a user asks for to understand it.
TEST(CApi, TextsLeaveTheReasonOfTheLastFailure) {
  fal_attention problem = small();
  problem.dtype = 256;
  ASSERT_EQ(make(&problem), FAL_INVALID);
  ASSERT_NE(fal_explain(&problem, FAL_FORWARD, nullptr, FAL_JSON), nullptr);
  EXPECT_STREQ(fal_why(), "dtype = 256: it must be 0 to 8");
}

TEST(Threads, AskForTheTextsOfOnePlan) {
  const fal_attention problem = small();
  for (int round = 0; round < 50; ++round) {
    fal_plan* plan = nullptr;
    ASSERT_EQ(fal_plan_make(&problem, FAL_FORWARD, nullptr, &plan), FAL_OK);
    std::array<std::array<const char*, 3>, 8> seen{};
    std::vector<std::thread> threads;
    for (auto& texts : seen) {
      threads.emplace_back([plan, &texts] {
        texts = {fal_plan_describe(plan), fal_plan_explain(plan, FAL_TEXT), fal_plan_explain(plan, FAL_JSON)};
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& texts : seen) {
      ASSERT_EQ(texts, seen[0]) << "made twice";
      ASSERT_STREQ(texts[2], fal_explain(&problem, FAL_FORWARD, nullptr, FAL_JSON));
    }
    fal_plan_free(plan);
  }
}

}  // namespace
}  // namespace falchion::testing
