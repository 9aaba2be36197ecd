// tests/door_gpu_backward_test.cpp: tests on machines without a GPU what a run of the backward pass checks on one, and
// what it hands to the kernel. The driver and the runtime are fakes (tests/fake_cuda), and a function of the test takes
// the place of a variant's launch.
#include <cstdint>
#include <string>

#include "api/run.hpp"
#include "api/sizes.hpp"
#include "fake_cuda/load.hpp"
#include "fake_cuda/runtime.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "support/gradients.hpp"

namespace falchion::testing {
namespace {

int launches = 0;
gpu::AttentionBackwardArgs handed;  // to the last launch

/// What a build with every variant plans for sm_90, with a launch that only remembers what it was handed.
PlanData plan_of(const Attention& problem) {
  static const gpu::AttentionBackwardKernel kernel = [] {
    gpu::AttentionBackwardKernel out{};
    out.launch = [](const gpu::AttentionBackwardArgs& args, void*) {
      handed = args;
      ++launches;
      return 0;
    };
    return out;
  }();
  static Variant taken, general;
  Target target;
  target.sm = 90;
  PlanData plan;
  const Status status = plan_problem(problem, Pass::backward, target, &plan, true);
  EXPECT_TRUE(status) << status.why;
  taken = *plan.variant;
  general = *plan.gpu.choices.back().variant;
  taken.kernel = general.kernel = &kernel;
  plan.variant = plan.gpu.choices.front().variant = &taken;
  plan.gpu.choices.back().variant = &general;
  plan.gpu.device = "Fake GPU";
  plan.gpu.ordinal = 0;
  plan.target.trust_pointers = true;  // the operands lie in the host's memory, and nobody reads them
  return plan;
}

class GpuBackwardRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_runtime() = {};
    FakeDriver::loaded().forget();
    launches = 0;
  }
  void TearDown() override { fake_runtime() = {}; }
  static Status run(const PlanData& plan, const Operands& x) {
    const Workspace workspace(plan.workspace);
    return falchion::run<Attention>(plan, x, {workspace.data(), workspace.size()}, nullptr);
  }
};

/// Gives packed operands so many rows of q and of k. Nobody reads them.
void set_rows(std::int64_t of_q, std::int64_t of_k, Operands* x) {
  for (Tensor* tensor : {&x->q, &x->o, &x->grad_o, &x->grad_q}) tensor->shape[1] = of_q;
  x->lse.shape[2] = of_q;
  for (Tensor* tensor : {&x->k, &x->v, &x->grad_k, &x->grad_v}) tensor->shape[1] = of_k;
  for (Tensor* tensor : {&x->q, &x->k, &x->v, &x->o, &x->lse, &x->grad_o, &x->grad_q, &x->grad_k, &x->grad_v}) {
    *tensor = Tensor::dense(tensor->data, tensor->dtype, tensor->shape);
    // Tensors of so many rows overlap where they lie, so each gets an address of its own.
    tensor->data =
        reinterpret_cast<void*>((std::uintptr_t{1} << 44) + (static_cast<std::uintptr_t>(tensor - &x->q) << 39));
  }
}

TEST_F(GpuBackwardRuns, MorePackedRowsOfQThanTheWorkspaceHoldsAreRefused) {
  Gradients all(Case{"packed", 2, 40, 50, 2, 1, 16, 16}.packed({40, 30}, {50, 50}), DType::bf16);
  const PlanData plan = plan_of(all.x.problem);
  const auto why = [&](std::int64_t of_q, std::int64_t of_k) {
    Operands x = all.operands();
    set_rows(of_q, of_k, &x);
    const Status status = run(plan, x);
    EXPECT_EQ(status.code, status.why.empty() ? Code::ok : Code::invalid);
    return status.why;
  };
  EXPECT_EQ(why(80, 100), "");
  EXPECT_EQ(why(81, 100),
            "q.shape[1] = 81: the packed rows are over b * s_q = 80: the workspace has no place for more");
  EXPECT_EQ(launches, 1);
  EXPECT_EQ(why(80, 1000), "") << "keys take no place in the workspace";
  EXPECT_EQ(why(80, kMaxSequence), "");
  EXPECT_EQ(why(80, kMaxSequence + 1), "k.shape[1] = 1073741825: the packed rows are over the limit of 1073741824");
  EXPECT_EQ(why(kMaxSequence + 1, 100), "q.shape[1] = 1073741825: the packed rows are over the limit of 1073741824");
  EXPECT_EQ(launches, 3);
}

/// Nothing is sized by the hints s_q and s_k but the workspace, and no launch needs more of it than was planned.
TEST_F(GpuBackwardRuns, PackedRowsAreCountedInTheOperands) {
  Gradients all(Case{"packed", 2, 400, 400, 2, 1, 16, 16}.packed({400, 300}, {700, 10}), DType::bf16);
  all.x.problem.s_k = 50;  // the forward pass takes no more than b * s_k keys
  const PlanData plan = plan_of(all.x.problem);
  ASSERT_EQ(run(plan, all.operands()).why, "");
  EXPECT_EQ(handed.total_q, 703);
  EXPECT_EQ(handed.total_k, 713);
  const gpu::BackwardVariantFacts& facts = plan.variant->facts_as<gpu::BackwardVariantFacts>();
  EXPECT_EQ(handed.row_tiles, (703 + facts.rows - 1) / facts.rows + 2);
  EXPECT_EQ(handed.key_tiles, (713 + facts.keys - 1) / facts.keys + 2);
  EXPECT_LE(facts.workspace(handed), plan.workspace);
}

TEST_F(GpuBackwardRuns, GradientsThatAreNotWantedAreNotHandedOver) {
  for (const std::uint8_t frozen : {0, 1, 2, 3}) {
    Gradients all(Case{"frozen", 2, 40, 50, 2, 1, 16, 16}, DType::bf16, {.frozen = frozen});
    ASSERT_EQ(run(plan_of(all.x.problem), all.operands()).why, "");
    EXPECT_EQ(handed.grad_q.data == nullptr, (frozen & 1) != 0);
    EXPECT_EQ(handed.grad_k.data == nullptr, (frozen & 2) != 0);
    EXPECT_EQ(handed.grad_v.data == nullptr, (frozen & 2) != 0);
    EXPECT_EQ(handed.grad_lse.data, nullptr);
    EXPECT_EQ(handed.row_max.data, nullptr);
  }
}

TEST_F(GpuBackwardRuns, WhatAKernelIsHanded) {
  Gradients all(Case{"all", 2, 40, 50, 4, 2, 16, 16}.bias(Case::Bias::f32).alibi(), DType::bf16,
                {.grad_lse = true, .grad_bias = {1, 4, 1, 50}, .grad_alibi = {1, 1, 4, 1}, .grads = Grads::accumulate});
  ASSERT_EQ(run(plan_of(all.x.problem), all.operands()).why, "");
  EXPECT_TRUE(handed.accumulate && handed.grads_f32 && handed.alibi_summed && handed.aligned && handed.grads_aligned);
  EXPECT_FALSE(handed.zero_unused || handed.any_order);
  for (int axis = 0; axis < 4; ++axis) {
    EXPECT_EQ(handed.summed[axis], axis % 2 == 0);
    if (handed.summed[axis]) { EXPECT_EQ(handed.grad_bias.stride[axis], 0); }
  }
  EXPECT_EQ(handed.grad_lse.data, all.grad_lse.view().data);
  EXPECT_EQ(handed.lse.data, all.x.lse.view().data);
}

TEST_F(GpuBackwardRuns, EveryOperandIsAskedForWhereItLies) {
  Gradients all(Case{"places", 2, 40, 50, 4, 2, 16, 16}.bias(Case::Bias::f32).alibi(), DType::bf16,
                {.grad_lse = true, .grad_bias = {1, 4, 1, 50}, .grad_alibi = {1, 1, 4, 1}});
  PlanData plan = plan_of(all.x.problem);
  plan.target.trust_pointers = false;
  const Operands host = all.operands();
  const DeviceMemory memory;
  Operands device = host;
  std::byte* place = memory.data<std::byte>();
  const auto tensors = [](Operands* x) { return cuda::tensors_of(x); };
  for (Tensor* tensor : tensors(&device)) {
    if (tensor->data == nullptr) continue;
    tensor->data = place;
    place += 1 << 18;
  }
  const auto run_with_workspace = [&](const Operands& x) {
    return falchion::run<Attention>(plan, x, {memory.data<std::byte>() + (1 << 23), plan.workspace}, nullptr);
  };
  EXPECT_EQ(run_with_workspace(device).why, "");
  EXPECT_EQ(run(plan, device).why.rfind("workspace lies in host memory", 0), 0U);
  const struct {
    const char* name;
    Tensor Operands::*tensor;
  } operands[] = {{"q", &Operands::q},
                  {"k", &Operands::k},
                  {"v", &Operands::v},
                  {"bias", &Operands::bias},
                  {"alibi", &Operands::alibi},
                  {"o", &Operands::o},
                  {"lse", &Operands::lse},
                  {"grad_o", &Operands::grad_o},
                  {"grad_lse", &Operands::grad_lse},
                  {"grad_q", &Operands::grad_q},
                  {"grad_k", &Operands::grad_k},
                  {"grad_v", &Operands::grad_v},
                  {"grad_bias", &Operands::grad_bias},
                  {"grad_alibi", &Operands::grad_alibi}};
  for (const auto& [name, tensor] : operands) {
    Operands mixed = device;
    mixed.*tensor = host.*tensor;
    const Status status = run_with_workspace(mixed);
    EXPECT_EQ(status.code, Code::invalid) << name;
    EXPECT_EQ(status.why.rfind(text(name, " lies in host memory"), 0), 0U) << status.why;
  }
  EXPECT_EQ(launches, 1);
}

TEST_F(GpuBackwardRuns, WithoutAGeneralVariantTheOperandInTheWayIsNamed) {
  Gradients all(Case{"odd", 2, 40, 50, 2, 1, 16, 16}, DType::bf16);
  PlanData plan = plan_of(all.x.problem);
  plan.gpu.choices.pop_back();
  Operands x = all.operands();
  x.grad_o.data = static_cast<std::byte*>(x.grad_o.data) + 2;
  const Status status = run(plan, x);
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_EQ(status.why, text("grad_o.data = ", x.grad_o.data,
                             " is 2 past a multiple of 16 bytes, and this build has no general variant for bf16"));
  x.grad_o = all.operands().grad_o;
  x.grad_o.stride = {0, 0, 0, 0};  // the gradient of a plain sum
  EXPECT_EQ(run(plan, x).why,
            "grad_o.stride[3] = 0: the last axis is not contiguous, and this build has no general variant for bf16");
}

}  // namespace
}  // namespace falchion::testing
