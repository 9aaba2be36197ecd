// tests/plan_time_test.cpp: measures how long fal_plan_make takes, in microseconds, for each operation, pass and kind
// of target. The aim is 10 us. The limit at which this test fails is 20 times that, so that a busy machine or a
// sanitizer fails nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "falchion/falchion.h"
#include "falchion/falchion.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"

namespace {
std::atomic<std::size_t> allocations{0};
}

// These two functions must not be inlined. Where GCC inlines them it sees memory of operator new go to free() and
// warns.
__attribute__((noinline)) void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace falchion::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Place {
  const char* name;
  std::int32_t backend, sm;

  fal_target target() const {
    fal_target out{};
    out.size = sizeof out;
    out.backend = backend;
    out.sm = sm;
    return out;
  }
};
constexpr Place kPlaces[] = {{"best", FAL_BEST, 0},
                             {"ref", FAL_REF, 0},
                             {"cpu", FAL_CPU, 0},
                             {"sm80 without a device", FAL_SM80, 80},
                             {"sm90 without a device", FAL_SM90, 90}};

fal_attention prefill() {
  fal_attention a = FAL_ATTENTION_INIT;
  a.b = 4;
  a.s_q = a.s_k = 4096;
  a.h_q = 32;
  a.h_k = 8;
  a.d_qk = a.d_v = 128;
  a.band = {FAL_UNBOUNDED, 0, FAL_BOTTOM_RIGHT, 0};
  return a;
}

/// Returns the median of a thousand calls, after another thousand to warm up. The plan that a call may return is freed
/// outside of the measured time.
template <class Make>
void time(const std::string& what, const Make& make) {
  std::vector<double> times(1000);
  for (int round = 0; round < 2; ++round) {
    for (double& microseconds : times) {
      const Clock::time_point start = Clock::now();
      fal_plan* const plan = make();
      microseconds = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      fal_plan_free(plan);
    }
  }
  std::nth_element(times.begin(), times.begin() + 500, times.end());
  std::printf("%-60s %6.2f us\n", what.c_str(), times[500]);
  EXPECT_LT(times[500], 200) << what;
}

TEST(PlanTime, Attention) {
  for (const Place& place : kPlaces) {
    const fal_target target = place.target();
    fal_attention decode = prefill();
    decode.s_q = 1;
    for (const fal_attention& a : {prefill(), decode}) {
      const auto make = [&] {
        fal_plan* plan = nullptr;
        fal_plan_make(&a, FAL_FORWARD, &target, &plan);
        return plan;
      };
      time(std::string(a.s_q == 1 ? "attention of one query, " : "attention, ") + place.name, make);
    }
  }
}

TEST(PlanTime, LinearAttention) {
  for (const Place& place : kPlaces) {
    for (const std::int32_t pass : {FAL_FORWARD, FAL_BACKWARD}) {
      const fal_target target = place.target();
      fal_linear_attention a = FAL_LINEAR_ATTENTION_INIT;
      a.b = 8;
      a.s = 8192;
      a.h_qk = a.h_v = 16;
      a.d_qk = a.d_v = 64;
      a.normalise = 1;
      const auto make = [&] {
        fal_plan* plan = nullptr;
        fal_linear_plan_make(&a, pass, &target, &plan);
        return plan;
      };
      time(std::string(pass == FAL_FORWARD ? "linear attention, " : "linear attention backward, ") + place.name, make);
    }
  }
}

/// A build without GPU variants refuses the problem above. This test counts all variants as built, so it measures the
/// same work in every build.
TEST(PlanTime, OfABuildWithEveryVariant) {
  Attention a;
  a.b = 4;
  a.s_q = a.s_k = 4096;
  a.h_q = 32;
  a.h_k = 8;
  a.d_qk = a.d_v = 128;
  // Only the general variants take a bias, so many others are looked at before them.
  a.bias = true;
  LinearAttention linear;
  linear.b = 8;
  linear.s = 8192;
  linear.h_qk = linear.h_v = 16;
  linear.d_qk = linear.d_v = 64;
  linear.normalise = true;
  for (const int sm : {80, 90}) {
    Target target = Backend::best;
    target.sm = sm;
    time("attention with a bias, best of sm " + std::to_string(sm), [&] {
      PlanData plan;
      EXPECT_TRUE(plan_problem(a, Pass::forward, target, &plan, true));
      return static_cast<fal_plan*>(nullptr);
    });
    time("linear attention backward, best of sm " + std::to_string(sm), [&] {
      PlanData plan;
      EXPECT_TRUE(plan_problem(linear, Pass::backward, target, &plan, true));
      return static_cast<fal_plan*>(nullptr);
    });
    for (const std::int64_t batch : {1, 4}) {
      const Gemm gemm{.dtype = DType::bf16, .batch = batch, .m = 4096, .n = 5120, .k = 5120};
      time("gemm of batch " + std::to_string(batch) + ", best of sm " + std::to_string(sm), [&] {
        PlanData plan;
        EXPECT_TRUE(plan_problem(gemm, Pass::forward, target, &plan, true));
        return static_cast<fal_plan*>(nullptr);
      });
    }
  }
}

/// A text is only made when it is requested, and only once.
TEST(PlanTime, TextsAreMadeWhenAskedFor) {
  const fal_attention a = prefill();
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_plan_make(&a, FAL_FORWARD, nullptr, &plan), FAL_OK) << fal_why();
  const auto allocates = [](const auto& call) {
    const std::size_t before = allocations;
    EXPECT_NE(call(), nullptr);
    return allocations != before;
  };
  const auto describe = [plan] { return fal_plan_describe(plan); };
  const auto text = [plan] { return fal_plan_explain(plan, FAL_TEXT); };
  const auto json = [plan] { return fal_plan_explain(plan, FAL_JSON); };
  EXPECT_TRUE(allocates(describe)) << "made by fal_plan_make";
  EXPECT_TRUE(allocates(text)) << "made by fal_plan_make";
  EXPECT_TRUE(allocates(json)) << "made by fal_plan_make";
  EXPECT_FALSE(allocates(describe) || allocates(text) || allocates(json)) << "made anew";
  fal_plan_free(plan);
}

}  // namespace
}  // namespace falchion::testing
