// tests/ladder_test.cpp: every step of the ladder against the definition, on lengths that no tile divides.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "gpu/runtime.hpp"
#include "ladder/attention/step.hpp"
#include "support/compare.hpp"
#include "support/instance.hpp"

namespace falchion::testing {
namespace {

struct Size {
  int b, s_q, s_k, h, d;
};
// Corners first: no key, one of each, more queries than keys (causal: rows that see nothing), around a tile, ragged.
constexpr Size kSizes[] = {{1, 5, 0, 1, 64},      {1, 1, 1, 1, 128},   {2, 200, 77, 1, 64}, {1, 130, 30, 1, 128},
                           {2, 64, 64, 2, 64},    {1, 65, 63, 3, 128}, {1, 63, 129, 2, 64}, {1, 1, 300, 2, 64},
                           {1, 130, 257, 2, 128}, {1, 140, 301, 1, 64}};

/// Memory of the side that a step runs on: the tensors themselves, or copies on the device.
class OnDevice {
 public:
  explicit OnDevice(std::size_t bytes) { EXPECT_TRUE(gpu::allocate(std::max<std::size_t>(bytes, 16), &data_)); }
  ~OnDevice() { gpu::release(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

Status run_on_gpu(const ladder::Step& step, const ladder::Problem& p, const Instance& x) {
  const std::size_t q_bytes = std::size_t{2} * p.b * p.s_q * p.h * p.d,
                    k_bytes = std::size_t{2} * p.b * p.s_k * p.h * p.d;
  const OnDevice q(q_bytes), k(k_bytes), v(k_bytes), o(q_bytes), workspace(step.workspace_bytes(p));
  const auto put = [](const OnDevice& to, const HostTensor& from, std::size_t bytes) {
    return bytes == 0 ? Status{} : gpu::copy(to.data(), from.view().data, bytes);
  };
  for (const Status& status : {put(q, x.q, q_bytes), put(k, x.k, k_bytes), put(v, x.v, k_bytes), put(o, x.o, q_bytes)})
    if (!status) return status;
  if (Status status = step.run(p, {q.data(), k.data(), v.data(), o.data(), workspace.data()}, nullptr); !status)
    return status;
  return gpu::copy(x.o.view().data, o.data(), q_bytes);
}

Status run_on_cpu(const ladder::Step& step, const ladder::Problem& p, const Instance& x) {
  std::vector<float> workspace(step.workspace_bytes(p) / sizeof(float) + 1, std::nanf(""));
  return step.run(p, {x.q.view().data, x.k.view().data, x.v.view().data, x.o.view().data, workspace.data()}, nullptr);
}

template <class Run>
void check_steps(std::span<const ladder::Step* const> steps, DType dtype, const Run& run) {
  for (const Size& size : kSizes) {
    for (const bool causal : {false, true}) {
      Case row = Case{"ladder", size.b, size.s_q, size.s_k, size.h, size.h, size.d, size.d}.no_lse();
      if (causal) row = std::move(row).causal(Align::bottom_right);
      Instance x = make_instance(row, dtype, 11);
      const Reference reference(x);
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
        x.poison_outputs();
        const Status status = run(*step, p, x);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, reference));
      }
    }
  }
}

TEST(Ladder, CpuStepsGiveTheDefinition) { check_steps(ladder::cpu_steps(), DType::f32, run_on_cpu); }

TEST(Ladder, GpuStepsGiveTheDefinition) {
  if (ladder::gpu_steps().empty()) GTEST_SKIP() << "this build has no GPU steps (FALCHION_CUDA off)";
  const gpu::Device device = gpu::current_device();
  if (device.sm == 0) GTEST_SKIP() << device.why_not;
  std::vector<const ladder::Step*> steps;
  for (const ladder::Step* step : ladder::gpu_steps())
    if (step->runs_on(device.sm)) steps.push_back(step);
  check_steps(steps, DType::bf16, run_on_gpu);
}

TEST(Ladder, EveryStepSaysWhatAndWhy) {
  for (const auto steps : {ladder::cpu_steps(), ladder::gpu_steps()}) {
    for (const ladder::Step* step : steps) {
      EXPECT_GT(std::string(step->why).size(), 200u) << step->name;
      EXPECT_FALSE(std::string(step->title).empty()) << step->name;
    }
  }
}

/// The command, where it is built beside this test.
TEST(Ladder, CommandPrintsEveryStepAsJson) {
  const auto command = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "falchion";
  if (!std::filesystem::exists(command)) GTEST_SKIP() << "the command is not built here: " << command;
  FILE* pipe =
      popen((command.string() + " ladder attention --cpu --h 2 --s 40 --s-k 70 --causal --runs 1 --json").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  const nlohmann::json result = nlohmann::json::parse(pipe, nullptr, false);
  EXPECT_EQ(pclose(pipe), 0);
  ASSERT_FALSE(result.is_discarded());
  ASSERT_EQ(result["steps"].size(), ladder::cpu_steps().size() + 1);  // and the library
  for (const auto& step : result["steps"]) {
    if (step["not_built"] == "") { EXPECT_TRUE(step["o"]["passed"].get<bool>()) << step["step"]; }
  }
}

}  // namespace
}  // namespace falchion::testing
