// tests/cuda/norm_run_test.cpp: a run of a norm on a device, captured in a graph: it computes with whatever the tensors
// hold when the graph is launched, and a run outside of it gives the same bits.
#include <string>

#include "device.hpp"
#include "support/norm.hpp"

namespace falchion::testing {
namespace {

constexpr Norm kAll{.weight = true, .bias = true, .residual = true, .residual_out = true, .mean = true, .rstd = true};

std::string bytes_of(const HostTensor& x) { return {reinterpret_cast<const char*>(x.memory()), x.memory_bytes()}; }

TEST(CudaNorm, AGraphIsReplayedOnNewInputs) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t d : {64, 1000, 16400}) {
          NormInstance x = make_norm_instance({"x", 1, 9, 1, d, kAll}, dtype);
          Plan plan;
          const Status made = Plan::make(x.problem, path.target(), &plan);
          PlanOnDevice<NormOperands> device(made, plan, x.problem, x.operands(), {});
          ASSERT_OK(device.status());
          with_graph_of(device, [&](const auto& launch) {
            for (const std::uint64_t seed : {21, 22}) {
              x.x.fill_normal(seed);
              x.residual.fill_normal(seed + 2);
              ASSERT_OK(device.upload());
              launch();
              ASSERT_OK(device.download());
              EXPECT_TRUE(matches(x, x));
              const std::string replayed = bytes_of(x.y);
              x.y.fill_poison();
              ASSERT_OK(device.upload());
              ASSERT_OK(device.run(device.operands()));
              ASSERT_OK(device.download());
              EXPECT_EQ(bytes_of(x.y), replayed);
            }
          });
        }
      },
      kNorm);
}

}  // namespace
}  // namespace falchion::testing
