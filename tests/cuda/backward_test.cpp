// tests/cuda/backward_test.cpp: what only a GPU can get wrong in the backward pass: the same bits in each run whatever
// else the device does, several streams, graphs, and memory that is not there. Its results are those of
// tests/attention_backward_test.cpp, which is compiled for the GPU too; rows and lengths of many kinds have
// backward_lengths_test.cpp, wide head dims and any_order backward_kinds_test.cpp, and large tensors
// backward_size_test.cpp.
#include "backward.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "child.hpp"
#include "kernels.hpp"

namespace falchion::testing {
namespace {

struct Kind {
  Case row;
  Wanted wanted{};
};
/// Problems without features, whose CTAs on Hopper take turns at the sums of grad_q, and problems with all of them.
std::vector<Kind> kinds() {
  const Shape slopes{1, 1, 4, 1};
  std::vector<Kind> out;
  out.push_back({Case{"causal", 2, 500, 700, 4, 2, 64, 64}.causal()});
  out.push_back({Case{"full", 1, 300, 1100, 4, 1, 128, 128}, {.grad_lse = true, .grads = Grads::f32}});
  out.push_back({Case{"d 256", 1, 300, 700, 4, 2, 256, 256}.causal()});
  out.push_back(
      {Case{"packed", 3, 150, 200, 4, 2, 64, 64}.packed({150, 3, 40}, {200, 100, 0}).causal(), {.zero_unused = true}});
  out.push_back({Case{"used", 3, 200, 300, 4, 2, 40, 40}.used_q({200, 3, 0}).used_k({300, 7, 50})});
  out.push_back({Case{"features", 2, 150, 200, 4, 2, 40, 24}.window(70, 3).softcap(5).alibi().mask().dropout(0.2F),
                 {.grad_alibi = slopes}});
  out.push_back({Case{"bias", 2, 150, 200, 4, 2, 64, 64}.bias(Case::Bias::f32).alibi(),
                 {.grad_bias = {1, 4, 150, 200}, .grad_alibi = slopes}});
  return out;
}

template <class F>
void on_every_kind(const F& f) {
  on_every_backward_path([&](const Path& path, DType dtype) {
    for (const Kind& kind : kinds()) {
      SCOPED_TRACE(kind.row.name);
      Gradients x(kind.row, dtype, kind.wanted, 11);
      GradientsOnDevice device(path, &x);
      ASSERT_OK(device.status());
      f(x, device);
    }
  });
}

// ---- Bits -----------------------------------------------------------------------------------------------------------

/// Three other runs are under way on another stream whenever the plan runs, so that its CTAs start in ever other orders
/// and on ever other SMs.
TEST(CudaBackwardBits, AThousandRunsBesideABusyStream) {
  on_every_backward_path([](const Path& path, DType dtype) {
    for (const Case& row :
         {Case{"causal", 2, 500, 1100, 4, 2, 64, 64}.causal(), Case{"d 128", 1, 700, 900, 4, 2, 128, 128},
          Case{"d 256", 1, 700, 900, 4, 2, 256, 256}.causal(),
          Case{"window", 2, 600, 600, 2, 2, 64, 64}.window(200, 30)}) {
      SCOPED_TRACE(row.name);
      Gradients x(row, dtype), other(Case{"other", 1, 900, 900, 8, 8, 64, 64}.causal(), dtype);
      GradientsOnDevice device(path, &x), busy(path, &other);
      ASSERT_OK(device.status());
      ASSERT_OK(busy.status());
      const OwnStream stream, beside;
      ASSERT_OK(device.run(stream));
      ASSERT_OK(device.download());
      const std::string first = gradient_bytes(x);
      for (int i = 0; i < 1000; ++i) {
        if (i % 100 == 0) {
          ASSERT_OK(device.upload());
          ASSERT_OK(device.spoil_workspace(static_cast<std::uint64_t>(i)));
          ASSERT_OK(cuda::synchronize());
        }
        for (int k = 0; k < 3; ++k) ASSERT_OK(busy.run(beside));
        ASSERT_OK(device.run(stream));
        ASSERT_OK(device.download());
        ASSERT_TRUE(gradient_bytes(x) == first) << "run " << i;
      }
    }
  });
}

TEST(CudaBackwardBits, WhateverTheWorkspaceHolds) {
  on_every_kind([](Gradients& x, GradientsOnDevice& device) {
    std::string first;
    for (std::uint64_t i = 0; i < 5; ++i) {
      ASSERT_OK(device.upload());
      ASSERT_OK(device.spoil_workspace(i));
      ASSERT_OK(cuda::synchronize());
      ASSERT_OK(device.run());
      ASSERT_OK(device.download());
      if (i == 0) first = gradient_bytes(x);
      ASSERT_TRUE(gradient_bytes(x) == first) << "run " << i;
    }
  });
}

// ---- Streams and graphs ---------------------------------------------------------------------------------------------
// Their suite is that of stream_test.cpp, which bench/device.sh runs while nothing else runs, since they look at times.

/// Each stream has a plan of its own with its own workspace. All results are those of a run alone.
TEST(CudaStreams, SeveralBackwardPlansAtOnce) {
  on_every_backward_path([](const Path& path, DType dtype) {
    struct One {
      Gradients x;
      GradientsOnDevice device;
      OwnStream stream;
      std::string alone;
      One(const Path& path, const Kind& kind, DType dtype) : x(kind.row, dtype, kind.wanted, 3), device(path, &x) {}
    };
    std::vector<std::unique_ptr<One>> all;
    for (const Kind& kind : kinds()) {
      all.push_back(std::make_unique<One>(path, kind, dtype));
      One& one = *all.back();
      ASSERT_OK(one.device.status());
      ASSERT_OK(one.device.run());
      ASSERT_OK(one.device.download());
      one.alone = gradient_bytes(one.x);
      ASSERT_OK(one.device.upload());
    }
    for (int round = 0; round < 50; ++round) {
      for (const auto& one : all) ASSERT_OK(one->device.run(one->stream));
    }
    ASSERT_OK(cuda::synchronize());
    for (const auto& one : all) {
      ASSERT_OK(one->device.download());
      EXPECT_TRUE(gradient_bytes(one->x) == one->alone) << one->device.plan().describe();
    }
  });
}

/// A capture in the mode "global" forbids every call that allocates or waits, in this thread and in all others.
TEST(CudaStreams, ABackwardGraphIsReplayedOnNewInputs) {
  on_every_kind([](Gradients& x, GradientsOnDevice& device) {
    const OwnStream stream;
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    const Status status = device.run(stream);
    ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    ASSERT_TRUE(status) << status.why;
    cudaGraphExec_t replay = nullptr;
    ASSERT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
    for (const std::uint64_t seed : {21, 22}) {
      x.x.q.fill_normal(seed);
      x.x.k.fill_normal(seed + 2);
      x.grad_o.fill_normal(seed + 4);
      if (!x.x.used_k.empty()) std::swap(x.x.used_k[0], x.x.used_k[2]);
      x.run_forward();
      ASSERT_OK(device.upload());
      ASSERT_OK(device.spoil_workspace(seed));
      ASSERT_OK(cuda::synchronize());
      ASSERT_CUDA(cudaGraphLaunch(replay, stream));
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      ASSERT_OK(device.download());
      expect_judged(x, judge::GradientReference(x.x.problem, x.operands()));
    }
    ASSERT_CUDA(cudaGraphExecDestroy(replay));
    ASSERT_CUDA(cudaGraphDestroy(graph));
  });
}

TEST(CudaStreams, ABackwardRunOnlyEnqueues) {
  on_every_kind([](Gradients& x, GradientsOnDevice& device) {
    const OwnStream stream, other;
    ASSERT_OK(device.run(stream));  // The first run loads the kernels.
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_OK(device.download());
    const std::string first = gradient_bytes(x);
    ASSERT_OK(device.upload());
    constexpr double seconds = 0.2;
    ASSERT_EQ(launch_wait(seconds, stream), 0);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_OK(device.run(stream));
    const std::chrono::duration<double> enqueued = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "nothing was left to wait for";
    EXPECT_LT(enqueued.count(), seconds / 2);
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_EQ(launch_wait(seconds, other), 0);  // Work on another stream is not waited for.
    ASSERT_OK(device.run(stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
    ASSERT_CUDA(cudaStreamSynchronize(other));
    ASSERT_OK(device.download());
    EXPECT_TRUE(gradient_bytes(x) == first);
  });
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

/// What has no element may have a null pointer, and then the workspace is null too. grad_k and grad_v become 0.
TEST(CudaBackwardMemory, WithoutQueriesTheyNeedNone) {
  on_every_backward_path([](const Path& path, DType dtype) {
    for (const bool no_heads : {false, true}) {
      Gradients x(Case{"x", 2, no_heads ? 100 : 0, 300, no_heads ? 0 : 4, 2, 64, 64}, dtype);
      GradientsOnDevice device(path, &x);
      ASSERT_OK(device.status());
      ASSERT_EQ(device.plan().workspace_bytes(), 0U);
      Operands empty = device.operands();
      for (Tensor* tensor : {&empty.q, &empty.o, &empty.lse, &empty.grad_o, &empty.grad_q}) tensor->data = nullptr;
      ASSERT_OK(device.run(empty));
      ASSERT_OK(device.download());
      for (const HostTensor* gradient : {&x.grad_k, &x.grad_v})
        gradient->for_each([&](auto b, auto s, auto h, auto d) { ASSERT_EQ(gradient->get(b, s, h, d), 0); });
    }
  });
}

TEST(CudaBackwardMemory, TheOneCallFormStaysOnTheDevice) {
  on_every_backward_path([](const Path& path, DType dtype) {
    Gradients x(Case{"x", 2, 100, 150, 4, 2, 64, 64}.causal(), dtype, {.grad_lse = true});
    GradientsOnDevice device(path, &x);
    ASSERT_OK(device.status());
    Attention options;
    options.band = x.x.problem.band;
    ASSERT_OK(attention(device.operands(), options, path.target()));
    ASSERT_OK(device.download());
    expect_judged(x, judge::GradientReference(x.x.problem, x.operands()));
  });
}

// ---- Lengths that are broken ----------------------------------------------------------------------------------------

/// Kernels stay in bounds whatever lengths they read, and they come to an end. A kernel that does not would hold up
/// every test after this one, so a child process runs it.
TEST(CudaBackwardBroken, Lengths) { expect_child_passes("CudaBackwardBroken.DISABLED_ChildLengths", nullptr); }
TEST(CudaBackwardBroken, DISABLED_ChildLengths) {
  on_every_backward_path([](const Path& path, DType dtype) {
    const auto row = [](int d) {
      return Case{"x", 4, 300, 300, 4, 2, d, d}.packed({300, 200, 100, 50}, {300, 200, 100, 50});
    };
    for (const Case& one : {row(64), row(128).causal(), row(128).window(100, 20), row(64).alibi()}) {
      Gradients x(one, dtype, one.options.alibi ? Wanted{.grad_alibi = {1, 1, 4, 1}} : Wanted{});
      GradientsOnDevice device(path, &x);
      ASSERT_OK(device.status());
      for (const std::vector<std::int32_t>& broken : {std::vector<std::int32_t>{0, 650, 0, 650, 650},
                                                      {-5, 1 << 30, 7, -(1 << 30), 1 << 30},
                                                      {600, 500, 400, 300, 200},
                                                      {0, 650, 1, 640, 2}}) {
        for (const bool in_q : {true, false}) {
          (in_q ? x.x.cu_q : x.x.cu_k) = broken;  // The vectors keep their memory, which is what is copied.
          ASSERT_OK(device.upload());
          ASSERT_OK(device.run());
          const auto start = std::chrono::steady_clock::now();
          while (cudaStreamQuery(nullptr) == cudaErrorNotReady) {
            if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) {
              ADD_FAILURE() << "the run does not come to an end: " << device.plan().describe();
              std::_Exit(1);  // The process ends here, since nothing ends the kernel.
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          ASSERT_OK(device.download());  // It looks at the guards around each tensor.
          (in_q ? x.x.cu_q : x.x.cu_k) = {0, 300, 500, 600, 650};
        }
      }
    }
  });
}

}  // namespace
}  // namespace falchion::testing
