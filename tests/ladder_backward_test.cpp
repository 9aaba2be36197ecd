// tests/ladder_backward_test.cpp: compares every step of the ladder of the backward pass with the definition, on
// lengths that no tile divides.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "ladder/backward/step.hpp"
#include "problem/device_copy.hpp"
#include "support/gradients.hpp"
#include "support/ladder.hpp"

namespace falchion::testing {
namespace {

ladder::backward::Tensors tensors_of(const Operands& x, void* workspace) {
  return {.q = x.q.data,
          .k = x.k.data,
          .v = x.v.data,
          .o = x.o.data,
          .grad_o = x.grad_o.data,
          .lse = static_cast<const float*>(x.lse.data),
          .grad_q = x.grad_q.data,
          .grad_k = x.grad_k.data,
          .grad_v = x.grad_v.data,
          .workspace = workspace};
}

Status run_on_cpu(const ladder::backward::Step& step, const ladder::Problem& p, const Gradients& g) {
  std::vector<float> workspace(step.workspace_bytes(p) / sizeof(float) + 1, std::nanf(""));
  return step.run(p, tensors_of(g.operands(), workspace.data()), nullptr);
}

Status run_on_gpu(const ladder::backward::Step& step, const ladder::Problem& p, const Gradients& g) {
  cuda::DeviceCopy copy;
  if (Status status = cuda::DeviceCopy::make(g.x.problem, g.operands(), g.whole(), &copy); !status) return status;
  const OnDevice workspace(step.workspace_bytes(p));
  if (Status status = step.run(p, tensors_of(copy.operands(), workspace.data()), nullptr); !status) return status;
  return copy.download();
}

template <class Run>
void check_steps(std::span<const ladder::backward::Step* const> steps, DType dtype, const Run& run) {
  for (const LadderSize& size : kLadderSizes) {
    for (const bool causal : {false, true}) {
      Case row = Case{"ladder", size.b, size.s_q, size.s_k, size.h, size.h, size.d, size.d};
      if (causal) row = std::move(row).causal(Align::bottom_right);
      Gradients g(row, dtype, {}, 11);
      const judge::GradientReference reference(g.x.problem, g.operands());
      const ladder::Problem p{.b = size.b,
                              .h = size.h,
                              .s_q = size.s_q,
                              .s_k = size.s_k,
                              .d = size.d,
                              .causal = causal,
                              .scale = 1 / std::sqrt(static_cast<float>(size.d))};
      for (const ladder::backward::Step* step : steps) {
        SCOPED_TRACE(std::string(step->name) + (causal ? " causal" : " full") + " s_q " + std::to_string(size.s_q) +
                     " s_k " + std::to_string(size.s_k) + " d " + std::to_string(size.d));
        for (HostTensor* gradient : {&g.grad_q, &g.grad_k, &g.grad_v}) gradient->fill_poison();
        const Status status = run(*step, p, g);
        ASSERT_TRUE(status) << status.why;
        expect_judged(g, reference);
      }
    }
  }
}

TEST(BackwardLadder, CpuStepsGiveTheDefinition) { check_steps(ladder::backward::cpu_steps(), DType::f32, run_on_cpu); }

TEST(BackwardLadder, GpuStepsGiveTheDefinition) {
  if (ladder::backward::gpu_steps().empty()) GTEST_SKIP() << "this build has no GPU steps (FALCHION_CUDA off)";
  const cuda::Device device = cuda::current_device();
  if (device.sm == 0) GTEST_SKIP() << device.why_not;
  std::vector<const ladder::backward::Step*> steps;
  for (const ladder::backward::Step* step : ladder::backward::gpu_steps())
    if (step->runs_on(device.sm)) steps.push_back(step);
  check_steps(steps, DType::bf16, run_on_gpu);
}

TEST(BackwardLadder, EveryStepSaysWhatAndWhy) {
  check_texts(ladder::backward::cpu_steps());
  check_texts(ladder::backward::gpu_steps());
}

TEST(BackwardLadder, CommandPrintsEveryStepAsJson) {
  check_ladder_command("backward --cpu --h 2 --s 40 --s-k 70 --causal", ladder::backward::cpu_steps().size(),
                       {"grad_q", "grad_k", "grad_v"});
}

}  // namespace
}  // namespace falchion::testing
