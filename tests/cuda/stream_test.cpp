// tests/cuda/stream_test.cpp: docs/contract.md, "streams and capture": a run only enqueues work, and does so on the
// caller's stream. A CUDA graph of a run computes with whatever the tensors hold when the graph is launched.
#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "device.hpp"
#include "kernels.hpp"

namespace falchion::testing {
namespace {

/// Returns one problem of each kind: a prefill, a band, split keys, packed lengths, used lengths, and all of these at
/// once.
std::vector<Case> kinds() {
  std::vector<Case> out;
  out.push_back(Case{"prefill", 2, 200, 300, 4, 2, 64, 64}.causal());
  out.push_back(Case{"general", 2, 100, 150, 4, 2, 40, 24}.window(50, 3).softcap(5).alibi().mask().row_max());
  out.push_back(Case{"decode", 1, 1, 6000, 8, 2, 128, 128});
  out.push_back(Case{"prefill in parts", 1, 200, 6000, 2, 2, 128, 128});
  out.push_back(Case{"packed", 3, 150, 200, 4, 2, 64, 64}.packed({150, 3, 40}, {200, 100, 0}).causal());
  out.push_back(Case{"used", 3, 20, 700, 4, 2, 64, 64}.used_k({700, 3, 0}));
  return out;
}

template <class F>
void on_every_kind(const F& f) {
  on_every_path([&](const Path& path, DType dtype) {
    for (const Case& row : kinds()) {
      SCOPED_TRACE(row.name);
      Instance x = make_instance(row, dtype, 11);
      OnDevice device(path, &x);
      ASSERT_OK(device.status());
      f(x, device);
    }
  });
}

/// A capture in the mode "global" forbids every call that allocates or waits, in this thread and in all others.
TEST(CudaStreams, AGraphIsReplayedOnNewInputs) {
  on_every_kind([](Instance& x, OnDevice& device) {
    const OwnStream stream;
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    const Status status = device.run(stream);
    ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    ASSERT_TRUE(status) << status.why;
    cudaGraphExec_t replay = nullptr;
    ASSERT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
    for (const std::uint64_t seed : {21, 22}) {
      x.q.fill_normal(seed);
      x.k.fill_normal(seed + 2);
      x.v.fill_normal(seed + 4);
      if (!x.used_k.empty()) std::swap(x.used_k[0], x.used_k[2]);
      ASSERT_OK(device.upload());
      ASSERT_CUDA(cudaGraphLaunch(replay, stream));
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      ASSERT_OK(device.download());
      EXPECT_TRUE(matches(x, Reference(x)));
    }
    ASSERT_CUDA(cudaGraphExecDestroy(replay));
    ASSERT_CUDA(cudaGraphDestroy(graph));
  });
}

/// The seed and the offset of dropout may lie in memory. Then a graph drops other elements each time it is launched,
/// though nothing else of it changes.
TEST(CudaStreams, AGraphDropsOtherElementsInEachReplay) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 2, 100, 150, 4, 2, 64, 64}.dropout(0.3F), dtype, 11);
    std::uint64_t numbers[2] = {0, 0};
    x.rng.at = numbers;
    OnDevice device(path, &x);
    ASSERT_OK(device.status());
    const OwnStream stream;
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    const Status status = device.run(stream);
    ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    ASSERT_TRUE(status) << status.why;
    cudaGraphExec_t replay = nullptr;
    ASSERT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
    std::set<std::string> outputs;
    for (const std::uint64_t step : {1, 2, 3}) {
      numbers[0] = step / 3;
      numbers[1] = step;
      ASSERT_OK(device.upload());
      ASSERT_CUDA(cudaGraphLaunch(replay, stream));
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      ASSERT_OK(device.download());
      EXPECT_TRUE(matches(x, Reference(x)));
      outputs.insert(output_bytes(x));
    }
    EXPECT_EQ(outputs.size(), 3U);
    ASSERT_CUDA(cudaGraphExecDestroy(replay));
    ASSERT_CUDA(cudaGraphDestroy(graph));
  });
}

TEST(CudaStreams, ARunOnlyEnqueues) {
  on_every_kind([](Instance& x, OnDevice& device) {
    const OwnStream stream;
    ASSERT_OK(device.run(stream));  // The first run loads the kernels.
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_OK(device.upload());
    constexpr double seconds = 0.2;
    ASSERT_EQ(launch_wait(seconds, stream), 0);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_OK(device.run(stream));
    const std::chrono::duration<double> enqueued = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "nothing was left to wait for";
    EXPECT_LT(enqueued.count(), seconds / 2);
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_OK(device.download());
    EXPECT_TRUE(matches(x, Reference(x)));
  });
}

// A run does not wait for work on another stream, not even on the default one.
TEST(CudaStreams, ARunStaysOnItsStream) {
  on_every_kind([](Instance& x, OnDevice& device) {
    const OwnStream stream, other;
    ASSERT_OK(device.run(stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_EQ(launch_wait(0.2, other), 0);
    ASSERT_OK(device.run(stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
    ASSERT_CUDA(cudaStreamSynchronize(other));
    ASSERT_OK(device.download());
    EXPECT_TRUE(matches(x, Reference(x)));
  });
}

TEST(CudaStreams, TwoPlansAtOnce) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(Case{"x", 1, 1, 9000, 8, 2, 128, 128}, dtype, 3);
    Instance y = make_instance(Case{"y", 2, 300, 300, 8, 2, 64, 64}.causal(), dtype, 4);
    OnDevice first(path, &x), second(path, &y);
    ASSERT_OK(first.status());
    ASSERT_OK(second.status());
    const OwnStream one, two;
    for (int i = 0; i < 20; ++i) {
      ASSERT_OK(first.run(one));
      ASSERT_OK(second.run(two));
    }
    ASSERT_OK(first.download());
    ASSERT_OK(second.download());
    EXPECT_TRUE(matches(x, Reference(x)));
    EXPECT_TRUE(matches(y, Reference(y)));
  });
}

}  // namespace
}  // namespace falchion::testing
