// tests/one_call_plans_test.cpp: when a one-call form takes a plan that it has kept.
#include <gtest/gtest.h>

#include "api/one_call.hpp"

namespace falchion::testing {
namespace {

/// Whatever differs, the problem, the pass or any field of the target, is another request, and so another plan.
TEST(OneCallRequest, IsOfAllThatAPlanDependsOn) {
  char level[] = "avx2";
  Target target(Backend::cpu);
  target.cpu_level = level;
  const auto request = request_for(Norm{.rows = 2, .d = 3}, Pass::forward, target);
  EXPECT_EQ(request, request_for(Norm{.rows = 2, .d = 3}, Pass::forward, target));
  EXPECT_NE(request, request_for(Norm{.rows = 2, .d = 4}, Pass::forward, target));
  EXPECT_NE(request, request_for(Norm{.rows = 2, .d = 3}, Pass::backward, target));
  const auto expect_other = [&](const char* field, const auto& change) {
    Target other = target;
    change(&other);
    EXPECT_NE(request, request_for(Norm{.rows = 2, .d = 3}, Pass::forward, other)) << field;
  };
  expect_other("backend", [](Target* x) { x->backend = Backend::ref; });
  expect_other("threads", [](Target* x) { x->threads = 3; });
  expect_other("executor", [](Target* x) { x->executor.threads = 3; });
  expect_other("sm", [](Target* x) { x->sm = 80; });
  expect_other("cpu_level", [](Target* x) { x->cpu_level = "avx512"; });
  expect_other("cpu_level", [](Target* x) { x->cpu_level = nullptr; });
  expect_other("segments", [](Target* x) { x->segments = 3; });
  expect_other("device", [](Target* x) { x->device = 0; });
  expect_other("trust_pointers", [](Target* x) { x->trust_pointers = true; });
  level[3] = '3';
  EXPECT_NE(request, request_for(Norm{.rows = 2, .d = 3}, Pass::forward, target)) << "the level is kept by value";
}

}  // namespace
}  // namespace falchion::testing
