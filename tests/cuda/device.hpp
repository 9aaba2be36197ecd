// tests/cuda/device.hpp: what the tests on the device share: a stream, and an instance that stays on the device.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "problem/device_copy.hpp"
#include "support/contract.hpp"
#include "support/random.hpp"

namespace falchion::testing {

#define ASSERT_CUDA(call) ASSERT_EQ(cudaGetErrorName(call), std::string("cudaSuccess"))
#define ASSERT_OK(call)                         \
  do {                                          \
    const ::falchion::Status asserted = (call); \
    ASSERT_TRUE(asserted) << asserted.why;      \
  } while (false)

inline const Path kHopper{Backend::sm90, ""};

/// Why what is for Hopper alone cannot run on this machine, or "" where it can.
inline std::string why_no_hopper() {
  const cuda::Device device = cuda::current_device();
  if (device.sm == 90) return "";
  return device.sm == 0 ? device.why_not : device.name + " is no Hopper";
}

/// A stream that does not wait for the default stream.
class OwnStream {
 public:
  OwnStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor): it is a stream

 private:
  cudaStream_t stream_ = nullptr;
};

/// A plan whose operands and workspace lie on the device.
class OnDevice {
 public:
  explicit OnDevice(const Path& path, Instance* x) : x_(x) {
    x->poison_outputs();
    x->shares_tiles = true;
    status_ = Plan::make(x->problem, Pass::forward, path.target(), &plan_);
    std::vector<cuda::Bytes> whole;
    for (const HostTensor* tensor : x->tensors()) whole.push_back({tensor->memory(), tensor->memory_bytes()});
    if (status_) status_ = cuda::DeviceCopy::make(x->problem, x->operands(), whole, &copy_);
    if (status_) status_ = cuda::Memory::make(plan_.workspace_bytes(), &workspace_);
    if (status_) status_ = cuda::synchronize();
  }
  const Status& status() const { return status_; }
  const Plan& plan() const { return plan_; }
  const Operands& operands() const { return copy_.operands(); }
  Status run(Stream stream = nullptr) const { return run(operands(), stream); }
  Status run(const Operands& operands, Stream stream = nullptr) const {
    void* memory = workspace_.size() > 0 ? workspace_.data() : nullptr;
    return plan_.run(operands, memory, workspace_.size(), stream);
  }
  /// Writes random bytes over the whole workspace.
  Status spoil_workspace(std::uint64_t seed) {
    std::vector<std::uint64_t> bytes((workspace_.size() + 7) / 8);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = random_bits(seed, i);
    const cudaError_t error = cudaMemcpy(workspace_.data(), bytes.data(), workspace_.size(), cudaMemcpyHostToDevice);
    if (error != cudaSuccess) return Status{Code::device, cudaGetErrorString(error)};
    return cuda::synchronize();  // a copy from pageable memory may still be under way, and OwnStream does not wait for
                                 // it
  }
  /// Copies the host's tensors as they are now to the device, with the outputs poisoned.
  Status upload() {
    x_->poison_outputs();
    if (Status status = copy_.upload(); !status) return status;
    return cuda::synchronize();
  }
  Status download() { return copy_.download(); }

 private:
  Instance* x_;
  Plan plan_;
  cuda::DeviceCopy copy_;
  cuda::Memory workspace_;
  Status status_;
};

/// A plan of any operation whose operands and workspace lie on the device. `whole` lists the allocations of the host's
/// operands.
template <class AnyOperands>
class PlanOnDevice {
 public:
  /// made: what Plan::make said of the plan.
  template <class Problem>
  PlanOnDevice(const Status& made, Plan plan, const Problem& problem, const AnyOperands& host,
               const std::vector<cuda::Bytes>& whole)
      : plan_(std::move(plan)), status_(made) {
    if (status_) status_ = cuda::CopyOf<AnyOperands>::make(problem, host, whole, &copy_);
    if (status_) status_ = cuda::Memory::make(plan_.workspace_bytes(), &workspace_);
    if (status_) status_ = cuda::synchronize();
  }
  const Status& status() const { return status_; }
  const Plan& plan() const { return plan_; }
  const AnyOperands& operands() const { return copy_.operands(); }
  Status run(const AnyOperands& operands, Stream stream = nullptr) const {
    return plan_.run(operands, workspace_.size() > 0 ? workspace_.data() : nullptr, workspace_.size(), stream);
  }
  Status upload() {
    if (Status status = copy_.upload(); !status) return status;
    return cuda::synchronize();
  }
  Status download() { return copy_.download(); }

 private:
  Plan plan_;
  cuda::CopyOf<AnyOperands> copy_;
  cuda::Memory workspace_;
  Status status_;
};

/// Calls replay(launch) with a graph of one run that was captured in the mode "global", in which every call that
/// allocates or waits is an error, in this thread and in all others. launch() launches it and waits.
template <class AnyOperands, class Replay>
void with_graph_of(const PlanOnDevice<AnyOperands>& device, const Replay& replay) {
  const OwnStream stream;
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const Status status = device.run(device.operands(), stream);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_TRUE(status) << status.why;
  cudaGraphExec_t executable = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  replay([&] {
    ASSERT_CUDA(cudaGraphLaunch(executable, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
  });
  ASSERT_CUDA(cudaGraphExecDestroy(executable));
  ASSERT_CUDA(cudaGraphDestroy(graph));
}

/// Returns every byte of o and of the other outputs, so that two runs can be compared bit for bit.
inline std::string output_bytes(const Instance& x) {
  std::string out;
  for (const HostTensor* tensor : {&x.o, &x.lse, &x.row_max, &x.probabilities})
    out.append(reinterpret_cast<const char*>(tensor->memory()), tensor->memory_bytes());
  return out;
}

}  // namespace falchion::testing
