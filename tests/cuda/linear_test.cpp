// tests/cuda/linear_test.cpp: what docs/contract.md says of linear attention on a device: capture in a graph, pointers
// of the host, the workspace, and tensors without memory.
#include "support/linear.hpp"
#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"

namespace falchion::testing {
namespace {

PlanOnDevice<LinearOperands> on_device(const Path& path, Pass pass, LinearInstance* x) {
  x->poison_outputs();
  Target target = path.target();
  target.segments = x->segments;
  Plan plan;
  const Status made = Plan::make(x->problem, pass, target, &plan);
  std::vector<cuda::Bytes> whole;
  for (const HostTensor* tensor : x->tensors()) whole.push_back({tensor->memory(), tensor->memory_bytes()});
  return {made, plan, x->problem, x->operands(pass), whole};
}

bool on_gpu(const Plan& plan) {
  return data_of(plan)->backend == Backend::sm80 || data_of(plan)->backend == Backend::sm90;
}

/// A sequence that is cut into segments takes up to three launches, none of which may allocate or wait.
TEST(CudaLinear, AGraphIsReplayedOnNewInputs) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    on_every_path(
        [&](const Path& path, DType dtype) {
          const LinearCase few = LinearCase{"few heads", 1, 700, 2, 2, 64, 64}.segments(3).states();
          const LinearCase all = LinearCase{few}.decay(Decay::token).elu().normalise();
          const LinearCase many{"two launches for f32, backward", 2, 130, 32, 32, 128, 128};
          for (const LinearCase& row : {few, all, many}) {
            SCOPED_TRACE(row.name);
            LinearInstance x = make_linear_instance(row, dtype, 5);
            auto device = on_device(path, pass, &x);
            ASSERT_OK(device.status());
            ASSERT_TRUE(on_gpu(device.plan()));
            with_graph_of(device, [&](const auto& launch) {
              for (const std::uint64_t seed : {21, 31}) {
                x.q.fill_normal(seed);
                x.k.fill_normal(seed + 1);
                x.v.fill_normal(seed + 2);
                x.poison_outputs();
                ASSERT_OK(device.upload());
                launch();
                ASSERT_OK(device.download());
                EXPECT_TRUE(matches(x, linear_reference(x, pass), pass));
              }
            });
          }
        },
        pass == Pass::forward ? kLinearForward : kLinearBackward);
  }
}

TEST(CudaLinear, HostPointersAndSmallWorkspacesAreRefusedByName) {
  on_every_path(
      [](const Path& path, DType dtype) {
        LinearInstance x = make_linear_instance(LinearCase{"x", 1, 700, 2, 2, 64, 64}.segments(3).states(), dtype, 6);
        const auto device = on_device(path, Pass::forward, &x);
        ASSERT_OK(device.status());
        ASSERT_TRUE(on_gpu(device.plan()));
        const LinearOperands host = x.operands(Pass::forward);
        for (Tensor LinearOperands::*tensor :
             {&LinearOperands::q, &LinearOperands::v, &LinearOperands::o, &LinearOperands::initial_state}) {
          LinearOperands mixed = device.operands();
          mixed.*tensor = host.*tensor;
          const Status status = device.run(mixed);
          EXPECT_EQ(status.code, Code::invalid);
          EXPECT_NE(status.why.find(" lies in host memory"), std::string::npos) << status.why;
        }
        EXPECT_EQ(device.plan().run(device.operands(), nullptr, 0).code, Code::workspace);
      },
      kLinearForward);
}

/// Without tokens q, k, v and o need no memory at all. The initial state still becomes the final state, and likewise in
/// the backward pass.
TEST(CudaLinear, NoTokensNoMemory) {
  on_every_path(
      [](const Path& path, DType dtype) {
        LinearInstance x = make_linear_instance(LinearCase{"x", 1, 0, 2, 2, 64, 64}.states(), dtype, 7);
        auto device = on_device(path, Pass::forward, &x);
        ASSERT_OK(device.status());
        ASSERT_TRUE(on_gpu(device.plan()));
        LinearOperands empty = device.operands();
        empty.q.data = empty.k.data = empty.v.data = empty.o.data = nullptr;
        ASSERT_OK(device.run(empty));
        ASSERT_OK(device.download());
        EXPECT_TRUE(matches(x, linear_reference(x, Pass::forward), Pass::forward));
        ASSERT_OK(device.upload());
        ASSERT_OK(linear_attention(empty, x.problem));  // The one-call form finds the device without q.
        ASSERT_OK(device.download());
        EXPECT_TRUE(matches(x, linear_reference(x, Pass::forward), Pass::forward));
      },
      kLinearForward);
}

}  // namespace
}  // namespace falchion::testing
