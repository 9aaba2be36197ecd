// tests/cuda/quantise_run_test.cpp: a run of Quantise on a device, captured in a graph: it computes with whatever x
// holds when the graph is launched, and a run outside of it gives the same bits.
#include <string>

#include "device.hpp"
#include "judge/quantise.hpp"
#include "support/quantise.hpp"

namespace falchion::testing {
namespace {

std::string bytes_of(const HostTensor& x) { return {reinterpret_cast<const char*>(x.memory()), x.memory_bytes()}; }

TEST(CudaQuantise, AGraphIsReplayedOnNewInputs) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t rows : {1, 128, 0})
          for (const DType to : {DType::e4m3, DType::i8}) {
            QuantiseInstance x({.dtype = dtype,
                                .dtype_y = to,
                                .b = 2,
                                .s = 1000,
                                .h = 3,
                                .d = 128,
                                .rows = rows,
                                .smooth = true,
                                .rotate = true});
            Plan plan;
            const Status made = Plan::make(x.problem, path.target(), &plan);
            PlanOnDevice<QuantiseOperands> device(made, plan, x.problem, x.operands(), {});
            ASSERT_OK(device.status());
            with_graph_of(device, [&](const auto& launch) {
              for (const std::uint64_t seed : {21, 22}) {
                x.x.fill_normal(seed);
                ASSERT_OK(device.upload());
                launch();
                ASSERT_OK(device.download());
                EXPECT_EQ(judge::check_quantise(x.problem, x.operands(), x.operands()), "");
                const std::string replayed = bytes_of(x.y);
                for (HostTensor* output : {&x.mean, &x.scale, &x.y}) output->fill_poison();
                ASSERT_OK(device.upload());
                ASSERT_OK(device.run(device.operands()));
                ASSERT_OK(device.download());
                EXPECT_EQ(bytes_of(x.y), replayed);
              }
            });
          }
      },
      kQuantised);
}

}  // namespace
}  // namespace falchion::testing
