// src/gpu/blocks/stream_order.cuh: kernels of one stream that overlap at their ends (programmatic dependent launch).
// From sm_90 on the CTAs of a kernel may start on SMs that the previous kernel has left, and set themselves up there.
// Before they touch memory they wait until that kernel is done. This saves 1 to 3 us between two launches.
// docs/design/sm90_forward.md and docs/design/linear_attention.md list where it helps and where it does not.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "base/host_device.hpp"

namespace falchion {

/// Waits until the earlier kernels are done. A thread calls it before it touches memory that an earlier kernel may
/// still read or write. Besides, some thread of each working CTA must call it before the CTA ends: if a kernel could
/// end before its predecessor, its successor would overtake both.
FALCHION_DEVICE void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Once all CTAs of this kernel have called this or ended, CTAs of the next kernel may start on SMs with room.
FALCHION_DEVICE void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// The attributes that are set, and the queries that are made, before a kernel's first launch on a device: it may use
/// more than 48 KB of shared memory, and it may be started early. At every launch they would cost the host 0.1 to 0.7
/// us of some 5.
template <auto kKernel>
class PreparedKernel {
 public:
  /// Prepares the kernel on the current device, unless that has been done. During a stream capture it is always done:
  /// attributes set in one context do not hold in another context of the same device that the application made, and a
  /// failed launch would invalidate the capture. (Outside of a capture the launch is repeated.)
  static cudaError_t prepare(int shared_bytes, cudaStream_t stream, std::uint64_t* device_bit) {
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    *device_bit = device < 64 ? std::uint64_t{1} << device : 0;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const bool known = (prepared_.load(std::memory_order_acquire) & *device_bit) != 0;
    if (known && stream != nullptr) {
      if (const cudaError_t error = cudaStreamIsCapturing(stream, &capture); error != cudaSuccess) return error;
    }
    return known && capture == cudaStreamCaptureStatusNone ? cudaSuccess : prepare_again(shared_bytes, *device_bit);
  }
  static cudaError_t prepare_again(int shared_bytes, std::uint64_t device_bit) {
    cudaError_t error = cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    cudaFuncAttributes code{};
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&code, kKernel);
    if (error != cudaSuccess) return error;
    if (code.ptxVersion >= 90) may_be_early_.fetch_or(device_bit, std::memory_order_relaxed);
    prepared_.fetch_or(device_bit, std::memory_order_release);
    return cudaSuccess;
  }
  /// Whether its code on that device waits for earlier kernels. Code for a GPU older than sm_90 does not.
  static bool may_be_early(std::uint64_t device_bit) {
    return (may_be_early_.load(std::memory_order_relaxed) & device_bit) != 0;
  }

 private:
  static inline std::atomic<std::uint64_t> prepared_{0}, may_be_early_{0};  // bit n: device n
};

/// The grid of a launch. cluster: the CTAs of a cluster, or 0 where the kernel fixes it.
struct LaunchShape {
  unsigned blocks = 0;
  int threads = 0, shared_bytes = 0, cluster = 0;
};

/// A launch with its attributes, which it points to.
class Launch {
 public:
  Launch(const LaunchShape& shape, cudaStream_t stream, bool early) {
    if (shape.cluster > 0) {
      cudaLaunchAttribute& cluster = attributes_[config_.numAttrs++];
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
    }
    if (early) {
      cudaLaunchAttribute& order = attributes_[config_.numAttrs++];
      order.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      order.val.programmaticStreamSerializationAllowed = 1;
    }
    config_.gridDim = shape.blocks;
    config_.blockDim = static_cast<unsigned>(shape.threads);
    config_.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
    config_.stream = stream;
    config_.attrs = attributes_;
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  const cudaLaunchConfig_t& config() const { return config_; }

 private:
  cudaLaunchAttribute attributes_[2]{};
  cudaLaunchConfig_t config_{};
};

/// early: this kernel may be started before the previous one is done. It must call wait_for_earlier_kernels, which code
/// for an older GPU does not. Returns the error of these calls only: the runtime's last error may be another caller's.
template <auto kKernel, class... Arguments>
cudaError_t launch_shape(const LaunchShape& shape, void* stream, bool early, const Arguments&... arguments) {
  using Prepared = PreparedKernel<kKernel>;
  const auto on = static_cast<cudaStream_t>(stream);
  std::uint64_t device_bit = 0;
  if (const cudaError_t error = Prepared::prepare(shape.shared_bytes, on, &device_bit); error != cudaSuccess)
    return error;
  const Launch launch(shape, on, early && Prepared::may_be_early(device_bit));
  const cudaError_t error = cudaLaunchKernelEx(&launch.config(), kKernel, arguments...);
  if (error != cudaErrorInvalidValue) return error;
  // The runtime keeps the error until it is read. This one is reported only if the second attempt fails too.
  if (cudaPeekAtLastError() == error) (void)cudaGetLastError();
  if (const cudaError_t again = Prepared::prepare_again(shape.shared_bytes, device_bit); again != cudaSuccess)
    return again;
  return cudaLaunchKernelEx(&launch.config(), kKernel, arguments...);
}
template <auto kKernel, class... Arguments>
cudaError_t launch_kernel(unsigned blocks, int threads, int shared_bytes, void* stream, bool early,
                          const Arguments&... arguments) {
  return launch_shape<kKernel>({.blocks = blocks, .threads = threads, .shared_bytes = shared_bytes}, stream, early,
                               arguments...);
}

}  // namespace falchion
