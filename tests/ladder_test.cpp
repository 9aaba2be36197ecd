// tests/ladder_test.cpp: compares every step of the ladders with the definition, on lengths that no tile divides.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "ladder/attention/step.hpp"
#include "ladder/backward/step.hpp"
#include "ladder/linear/step.hpp"
#include "runtime/runtime.hpp"
#include "support/compare.hpp"
#include "support/eight.hpp"
#include "support/gradients.hpp"
#include "support/instance.hpp"
#include "support/ladder.hpp"
#include "support/linear.hpp"

namespace falchion::testing {
namespace {

/// run(p, tensors) on copies of the operands.
template <class Run>
Status run_on_copies(const Run& run, std::size_t workspace_bytes, const ladder::Problem& p, const Instance& x) {
  const std::size_t q_bytes = std::size_t{2} * p.b * p.s_q * p.h * p.d,
                    k_bytes = std::size_t{2} * p.b * p.s_k * p.h * p.d;
  const OnDevice q(q_bytes), k(k_bytes), v(k_bytes), o(q_bytes), workspace(workspace_bytes);
  const auto put = [](const OnDevice& to, const HostTensor& from, std::size_t bytes) {
    return bytes == 0 ? Status{} : cuda::copy(to.data(), from.view().data, bytes);
  };
  for (const Status& status : {put(q, x.q, q_bytes), put(k, x.k, k_bytes), put(v, x.v, k_bytes), put(o, x.o, q_bytes)})
    if (!status) return status;
  if (Status status = run(p, {q.data(), k.data(), v.data(), o.data(), workspace.data()}); !status) return status;
  return cuda::copy(x.o.view().data, o.data(), q_bytes);
}
Status run_on_gpu(const ladder::Step& step, const ladder::Problem& p, const Instance& x) {
  const auto run = [&](const auto& p, const ladder::Tensors& t) { return step.run(p, t, nullptr); };
  return run_on_copies(run, step.workspace_bytes(p), p, x);
}

Status run_on_cpu(const ladder::Step& step, const ladder::Problem& p, const Instance& x) {
  std::vector<float> workspace(step.workspace_bytes(p) / sizeof(float) + 1, std::nanf(""));
  return step.run(p, {x.q.view().data, x.k.view().data, x.v.view().data, x.o.view().data, workspace.data()}, nullptr);
}

HostTensor as_bf16(const HostTensor& x) {
  HostTensor out(DType::bf16, x.shape());
  x.for_each([&](auto b, auto s, auto h, auto d) { out.set(b, s, h, d, x.get(b, s, h, d)); });
  return out;
}
/// The instance, with numbers of 8 bits in those of 16 that a step takes.
Instance widened(Instance x) {
  for (HostTensor* tensor : {&x.q, &x.k, &x.v}) *tensor = as_bf16(*tensor);
  return x;
}

/// A step that rounds to 8 bits first gets numbers that it need not round, and the rule is that for attention of e4m3.
template <class Run>
void check_steps(std::span<const ladder::Step* const> steps, DType dtype, const Run& run) {
  for (const LadderSize& size : kLadderSizes) {
    for (const bool causal : {false, true}) {
      Case row = Case{"ladder", size.b, size.s_q, size.s_k, size.h, size.h, size.d, size.d}.no_lse();
      if (causal) row = std::move(row).causal(Align::bottom_right);
      Instance x = make_instance(row, dtype, 11);
      const Reference reference(x);
      Instance eight = make_eight(row, {DType::e4m3, DType::e4m3, DType::bf16}, Shares::no, 11);
      const Instance eight_wide = widened(eight);
      const std::optional<Reference> of_eight = dtype == DType::bf16 ? std::optional<Reference>(eight) : std::nullopt;
      const ladder::Problem p{.b = size.b,
                              .h = size.h,
                              .s_q = size.s_q,
                              .s_k = size.s_k,
                              .d = size.d,
                              .causal = causal,
                              .scale = 1 / std::sqrt(static_cast<float>(size.d))};
      for (const ladder::Step* step : steps) {
        SCOPED_TRACE(std::string(step->name) + (causal ? " causal" : " full") + " s_q " + std::to_string(size.s_q) +
                     " s_k " + std::to_string(size.s_k) + " d " + std::to_string(size.d));
        Instance& checked = step->eight_bits ? eight : x;
        checked.poison_outputs();
        const Status status = run(*step, p, step->eight_bits ? eight_wide : x);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(checked, step->eight_bits ? *of_eight : reference));
      }
    }
  }
}

TEST(Ladder, CpuStepsGiveTheDefinition) { check_steps(ladder::cpu_steps(), DType::f32, run_on_cpu); }

TEST(Ladder, GpuStepsGiveTheDefinition) {
  if (ladder::gpu_steps().empty()) GTEST_SKIP() << "this build has no GPU steps (FALCHION_CUDA off)";
  const cuda::Device device = cuda::current_device();
  if (device.sm == 0) GTEST_SKIP() << device.why_not;
  std::vector<const ladder::Step*> steps;
  for (const ladder::Step* step : ladder::gpu_steps())
    if (step->runs_on(device.sm)) steps.push_back(step);
  check_steps(steps, DType::bf16, run_on_gpu);
}

/// The mean of O over what it should be, with equal scores, which the zeros of q make, and V of normal numbers of
/// mean 1.
double share_of_mean(int keys, int tiles) {
  Instance x = make_instance(Case{"mean", 1, 64, keys, 1, 1, 64, 64}.no_lse(), DType::bf16, 11);
  x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, 0); });
  double exact = 0, sum = 0;
  x.v.for_each([&](auto b, auto s, auto h, auto d) {
    const float number = f32_from_e4m3(e4m3_from_f32(x.v.get(b, s, h, d) + 1));
    x.v.set(b, s, h, d, number);
    exact += number;
  });
  const ladder::Problem p{.s_q = 64, .s_k = keys, .d = 64};
  const auto run = [&](const auto& p, const ladder::Tensors& t) {
    return ladder::run_with_long_sums(p, t, tiles, nullptr);
  };
  const std::size_t workspace = std::size_t{1} << 26;
  const Status status = run_on_copies(run, workspace, p, x);
  EXPECT_TRUE(status) << status.why;
  x.o.for_each([&](auto b, auto s, auto h, auto d) { sum += x.o.get(b, s, h, d); });
  return sum / 64 / (exact / keys);
}

// Why step eight-bits adds the sums of each tile to O in f32. Printed: what docs/ladder.md draws from a model.
TEST(Ladder, LongSumsOfEightBitsLoseKeys) {
  if (ladder::gpu_steps().empty()) GTEST_SKIP() << "this build has no GPU steps (FALCHION_CUDA off)";
  const cuda::Device device = cuda::current_device();
  if (device.sm != 90) GTEST_SKIP() << "only sm_90 has this step";
  for (const int keys : {2048, 8192, 32768, 131072}) {
    std::string line = text(keys, " keys: O over the exact O, a sum of 128, 512, 1024 keys, all:");
    for (const int tiles : {1, 4, 8, 1 << 20}) line += text(" ", share_of_mean(keys, tiles));
    std::printf("%s\n", line.c_str());
  }
  EXPECT_NEAR(share_of_mean(131072, 1), 1, 2e-3);
  EXPECT_LT(share_of_mean(32768, 1 << 20), 0.8);
}

// The corner cases come first: no token, one token, a chunk and one token less or more. Then come several segments, and
// head dims that differ and fill no tile. The number of columns of V in all heads decides how many warps the
// low-occupancy kernel has: fewer than 160, fewer than 320, or more.
const LinearCase kLinearSizes[] = {
    {"none", 1, 0, 2, 2, 64, 64},    {"one", 2, 1, 2, 2, 64, 64},     {"one_wide", 1, 1, 1, 1, 128, 128},
    {"below", 2, 63, 3, 3, 64, 64},  {"chunk", 1, 64, 3, 3, 64, 64},  {"above", 1, 65, 1, 1, 128, 64},
    {"narrow", 1, 127, 1, 1, 8, 24}, {"long", 1, 1000, 1, 1, 64, 64}, {"wide", 1, 1000, 1, 1, 32, 128},
    {"odd", 2, 500, 2, 2, 104, 72},  {"tall", 1, 300, 2, 2, 128, 8},  {"waves", 2, 130, 50, 50, 64, 64}};

Status run_on_gpu(const ladder::linear::Step& step, const ladder::linear::Problem& p, const LinearInstance& x) {
  const OnDevice q(x.q.memory_bytes()), k(x.k.memory_bytes()), v(x.v.memory_bytes()), o(x.o.memory_bytes());
  const OnDevice workspace(step.workspace_bytes(p));
  const auto put = [](const OnDevice& to, const HostTensor& from) {
    return from.memory_bytes() == 0 ? Status{} : cuda::copy(to.data(), from.memory(), from.memory_bytes());
  };
  for (const Status& status : {put(q, x.q), put(k, x.k), put(v, x.v), put(o, x.o)})
    if (!status) return status;
  if (Status status = step.run(p, {q.data(), k.data(), v.data(), o.data(), workspace.data()}, nullptr); !status)
    return status;
  return x.o.memory_bytes() == 0 ? cuda::synchronize() : cuda::copy(x.o.memory(), o.data(), x.o.memory_bytes());
}

Status run_on_cpu(const ladder::linear::Step& step, const ladder::linear::Problem& p, const LinearInstance& x) {
  return step.run(p, {x.q.view().data, x.k.view().data, x.v.view().data, x.o.view().data, nullptr}, nullptr);
}

template <class Run>
void check_linear_steps(std::span<const ladder::linear::Step* const> steps, const Run& run) {
  for (const LinearCase& size : kLinearSizes) {
    for (const bool reverse : {false, true}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        LinearCase row = LinearCase(size).scale(1);
        if (reverse) row = std::move(row).reverse();
        LinearInstance x = make_linear_instance(row, dtype, 11);
        const LinearInstance exact = linear_reference(x, Pass::forward);
        const auto int_of = [](std::int64_t n) { return static_cast<int>(n); };
        const ladder::linear::Problem p{.b = int_of(size.b),
                                        .h = int_of(size.h_v),
                                        .s = int_of(size.s),
                                        .d_qk = int_of(size.d_qk),
                                        .d_v = int_of(size.d_v),
                                        .reverse = reverse};
        for (const ladder::linear::Step* step : steps) {
          if (step->dtype != dtype) continue;
          SCOPED_TRACE(text(step->name, reverse ? " reverse " : " forward ", size.name));
          x.poison_outputs();
          const Status status = run(*step, p, x);
          ASSERT_TRUE(status) << status.why;
          EXPECT_TRUE(matches(x, exact, Pass::forward));
        }
      }
    }
  }
}

TEST(LinearLadder, CpuStepsGiveTheDefinition) {
  check_linear_steps(ladder::linear::cpu_steps(),
                     [](const auto& step, const auto& p, const auto& x) { return run_on_cpu(step, p, x); });
}

TEST(LinearLadder, GpuStepsGiveTheDefinition) {
  if (ladder::linear::gpu_steps().empty()) GTEST_SKIP() << "this build has no GPU steps (FALCHION_CUDA off)";
  if (const cuda::Device device = cuda::current_device(); device.sm == 0) GTEST_SKIP() << device.why_not;
  check_linear_steps(ladder::linear::gpu_steps(),
                     [](const auto& step, const auto& p, const auto& x) { return run_on_gpu(step, p, x); });
}

TEST(LinearLadder, RefusesOtherHeadDims) {
  for (const auto steps : {ladder::linear::cpu_steps(), ladder::linear::gpu_steps()}) {
    for (const ladder::linear::Step* step : steps) {
      for (const int d : {0, 7, 68, 136}) {
        const Status status = step->run({.s = 1, .d_qk = 64, .d_v = d}, {}, nullptr);
        EXPECT_EQ(status.code, Code::unsupported) << step->name << " " << d;
        EXPECT_NE(status.why.find(std::to_string(d)), std::string::npos) << status.why;
      }
    }
  }
}

TEST(Ladder, EveryStepSaysWhatAndWhy) {
  check_texts(ladder::cpu_steps());
  check_texts(ladder::gpu_steps());
  check_texts(ladder::linear::cpu_steps());
  check_texts(ladder::linear::gpu_steps());
}

TEST(Ladder, CommandPrintsEveryStepAsJson) {
  check_ladder_command("attention --cpu --h 2 --s 40 --s-k 70 --causal", ladder::cpu_steps().size(), {"o"});
}
TEST(LinearLadder, CommandPrintsEveryStepAsJson) {
  check_ladder_command("linear --cpu --h 3 --s 200 --d 40 --d-v 72 --reverse", ladder::linear::cpu_steps().size(),
                       {"o"});
}

}  // namespace
}  // namespace falchion::testing
