// tests/cuda/norm_stream_test.cpp: a norm on a stream: a CUDA graph of a run computes with whatever the tensors hold
// when the graph is launched, and the bits are those of a run outside of it.
#include <string>
#include <vector>

#include "device.hpp"
#include "support/norm.hpp"

namespace falchion::testing {
namespace {

constexpr Norm kAll{.weight = true, .bias = true, .residual = true, .residual_out = true, .mean = true, .rstd = true};

std::string bytes_of(const HostTensor& x) { return {reinterpret_cast<const char*>(x.memory()), x.memory_bytes()}; }

TEST(CudaStreams, AGraphOfANormIsReplayedOnNewInputs) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t d : {64, 1000, 16400}) {
          NormInstance x = make_norm_instance({"x", 1, 9, 1, d, kAll}, dtype);
          Plan plan;
          ASSERT_OK(Plan::make(x.problem, path.target(), &plan));
          cuda::CopyOf<NormOperands> copy;
          ASSERT_OK(cuda::CopyOf<NormOperands>::make(x.problem, x.operands(), {}, &copy));
          ASSERT_OK(cuda::synchronize());
          const OwnStream stream;
          cudaGraph_t graph = nullptr;
          ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
          const Status status = plan.run(copy.operands(), nullptr, 0, stream);
          ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
          ASSERT_TRUE(status) << status.why;
          cudaGraphExec_t replay = nullptr;
          ASSERT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
          for (const std::uint64_t seed : {21, 22}) {
            x.x.fill_normal(seed);
            x.residual.fill_normal(seed + 2);
            ASSERT_OK(copy.upload());
            ASSERT_CUDA(cudaDeviceSynchronize());
            ASSERT_CUDA(cudaGraphLaunch(replay, stream));
            ASSERT_CUDA(cudaStreamSynchronize(stream));
            ASSERT_OK(copy.download());
            EXPECT_TRUE(matches(x, x));
            const std::string replayed = bytes_of(x.y);
            ASSERT_OK(plan.run(copy.operands(), nullptr, 0, stream));
            ASSERT_CUDA(cudaStreamSynchronize(stream));
            ASSERT_OK(copy.download());
            EXPECT_EQ(bytes_of(x.y), replayed);
          }
          ASSERT_CUDA(cudaGraphExecDestroy(replay));
          ASSERT_CUDA(cudaGraphDestroy(graph));
        }
      },
      kNorm);
}

}  // namespace
}  // namespace falchion::testing
