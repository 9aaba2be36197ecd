// tests/cuda/gemm_run_test.cpp: what docs/contract.md says of a run of a GEMM on a device: capture in a graph, pointers
// of the host, the workspace, the one-call form, and runs that read what the run before wrote.
#include <cmath>
#include <cstring>

#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/gemm_gpu.hpp"
#include "plan/plan_data.hpp"
#include "support/gemm.hpp"

namespace falchion::testing {
namespace {

PlanOnDevice<GemmOperands> on_device(const Path& path, const GemmInstance& x) {
  Plan plan;
  const Status made = Plan::make(x.problem, path.target(), &plan);
  std::vector<cuda::Bytes> whole;
  for (const HostTensor* tensor : {&x.a, &x.b, &x.c, &x.d, &x.residual, &x.bias_n, &x.bias_m})
    if (tensor->memory_bytes() > 0) whole.push_back({tensor->memory(), tensor->memory_bytes()});
  return {made, plan, x.problem, x.operands(), whole};
}

/// A product alone, all terms, few rows and many, and a long k that is cut into parts, which are two launches.
std::vector<GemmCase> kinds() {
  std::vector<GemmCase> out;
  out.push_back(GemmCase{"plain", 1, 300, 136, 72});
  out.push_back(GemmCase{"few rows", 1, 20, 136, 1600}.bias_n());
  out.push_back(GemmCase{"all terms", 1, 90, 50, 8000}.alpha(0.5F).beta(1).biases().activation(Activation::silu));
  out.push_back(GemmCase{"swiglu", 1, 80, 32, 8000}.activation(Activation::swiglu).residual());
  out.push_back(GemmCase{"odd", 1, 70, 45, 77}.layout(Layout::odd));
  return out;
}

template <class F>
void on_every_kind(const F& f) {
  on_every_path(
      [&](const Path& path, DType dtype) {
        for (const GemmCase& row : kinds()) {
          SCOPED_TRACE(row.name);
          f(path, dtype, row);
        }
      },
      kGemm);
}

TEST(CudaGemm, AGraphIsReplayedOnNewInputs) {
  on_every_kind([](const Path& path, DType dtype, const GemmCase& row) {
    GemmInstance x = make_gemm_instance(row, dtype, 5);
    auto device = on_device(path, x);
    ASSERT_OK(device.status());
    EXPECT_EQ(own_cut(*data_of(device.plan())).splits > 1, row.k > 1000);
    with_graph_of(device, [&](const auto& launch) {
      for (const std::uint64_t seed : {21, 31}) {
        x.a.fill_normal(seed);
        x.b.fill_normal(seed + 1);
        x.d.fill_poison();
        ASSERT_OK(device.upload());
        launch();
        ASSERT_OK(device.download());
        EXPECT_TRUE(matches(x, x));
      }
    });
  });
}

TEST(CudaGemm, HostPointersAndSmallWorkspacesAreRefusedByName) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 40, 64, 4096}.beta(1).biases().residual(), dtype);
        const auto device = on_device(path, x);
        ASSERT_OK(device.status());
        const GemmOperands host = x.operands();
        const std::pair<const char*, Tensor GemmOperands::*> all[] = {{"a", &GemmOperands::a},
                                                                      {"b", &GemmOperands::b},
                                                                      {"c", &GemmOperands::c},
                                                                      {"d", &GemmOperands::d},
                                                                      {"residual", &GemmOperands::residual},
                                                                      {"bias_n", &GemmOperands::bias_n},
                                                                      {"bias_m", &GemmOperands::bias_m}};
        for (const auto& [name, tensor] : all) {
          GemmOperands mixed = device.operands();
          mixed.*tensor = host.*tensor;
          const Status status = device.run(mixed);
          EXPECT_EQ(status.code, Code::invalid);
          EXPECT_EQ(status.why.rfind(std::string(name) + " lies in host memory", 0), 0U) << status.why;
        }
        const std::size_t bytes = device.plan().workspace_bytes();
        if (bytes == 0) return;
        EXPECT_EQ(device.plan().run(device.operands(), nullptr, 0).why,
                  text("workspace is null, but the plan needs ", bytes, " bytes"));
      },
      kGemm);
}

TEST(CudaGemm, TheOneCallFormRunsWhereTheOperandsLie) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const GemmInstance x = make_gemm_instance(GemmCase{"x", 2, 40, 64, 4096}.bias_n(), dtype);
        auto device = on_device(path, x);
        ASSERT_OK(device.status());
        ASSERT_OK(gemm(device.operands()));
        ASSERT_OK(device.download());
        EXPECT_TRUE(matches(x, x));
      },
      kGemm);
}

/// Layers: each run reads as A what the run before wrote as D, and all share one workspace. Kernels may start before
/// the one before them is done, so a wait that is missing would show as other bits than those of runs that wait for
/// each other.
TEST(CudaGemm, ARunReadsWhatTheRunBeforeWrote) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t m : {16, 200}) {
          constexpr std::int64_t kWidth = 2048;
          GemmInstance x = make_gemm_instance(
              GemmCase{"x", 1, m, kWidth, kWidth}.alpha(1 / std::sqrt(static_cast<float>(kWidth))), dtype);
          auto device = on_device(path, x);
          ASSERT_OK(device.status());
          const OwnStream stream;
          const auto layers = [&](bool wait, HostTensor* out) {
            x.d.fill_poison();
            ASSERT_OK(device.upload());
            GemmOperands operands = device.operands();
            for (int layer = 0; layer < 21; ++layer) {
              ASSERT_OK(device.run(operands, stream));
              std::swap(operands.a, operands.d);
              if (wait) { ASSERT_CUDA(cudaStreamSynchronize(stream)); }
            }
            ASSERT_CUDA(cudaStreamSynchronize(stream));
            ASSERT_OK(device.download());
            *out = x.d.like();
            std::memcpy(out->memory(), x.d.memory(), x.d.memory_bytes());
          };
          HostTensor apart, together;
          layers(true, &apart);
          layers(false, &together);
          if (HasFatalFailure()) return;
          EXPECT_TRUE(std::isfinite(apart.get(0, 0, 0, 0)) && apart.get(0, 0, 0, 0) != 0);
          EXPECT_EQ(std::memcmp(apart.memory(), together.memory(), apart.memory_bytes()), 0) << "m = " << m;
        }
      },
      kGemm);
}

}  // namespace
}  // namespace falchion::testing
