// src/blocks/stream_order.cuh: kernels of one stream that overlap at their ends (programmatic dependent launch). From
// sm_90 on the CTAs of a kernel may start on SMs that the kernel before it no longer needs, and set themselves up
// there. Before they touch memory they wait until that kernel is done. This saves 1 to 3 us between two launches.
// docs/design/sm90_forward.md and docs/design/linear_attention.md say where it helps and where it does not.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace falchion {

/// Waits until the kernels before this one are done. A thread calls it before it touches what an earlier kernel may
/// still read or write. Besides, some thread of each CTA that works must call it before the CTA ends: if a kernel could
/// end earlier than the one before it, the next kernel would pass both.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Once all CTAs of this kernel have called this or ended, CTAs of the next kernel may start where SMs have room.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// What must be asked or set once for each kernel and device, before the first launch there. It costs the host about
/// 1 us, which is a fifth of a launch.
template <auto kKernel>
class PreparedKernel {
 public:
  /// Lets the kernel use so many bytes of shared memory on the current device.
  static cudaError_t prepare(int shared_bytes) {
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    const std::uint64_t mine = device < 64 ? std::uint64_t{1} << device : 0;
    if ((devices_.load(std::memory_order_acquire) & mine) != 0) return cudaSuccess;
    return prepare_again(shared_bytes, mine);
  }
  /// The same, though it was done before: cudaDeviceReset takes it back.
  static cudaError_t prepare_again(int shared_bytes, std::uint64_t mine = 0) {
    cudaError_t error = cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    cudaFuncAttributes code{};
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&code, kKernel);
    if (error != cudaSuccess) return error;
    can_be_early_.store(code.ptxVersion >= 90, std::memory_order_relaxed);
    devices_.fetch_or(mine, std::memory_order_release);
    return cudaSuccess;
  }
  /// Does its code wait for earlier kernels? Code for an older GPU than sm_90 does not.
  static bool can_be_early() { return can_be_early_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<std::uint64_t> devices_{0};  // bit n: device n
  static inline std::atomic<bool> can_be_early_{false};
};

/// early: this kernel may be started before the one before it is done. It must call wait_for_earlier_kernels, which
/// code for an older GPU does not. Returns what these calls return and nothing else: the runtime's last error may be
/// somebody else's.
template <auto kKernel, class... Arguments>
cudaError_t launch_kernel(unsigned blocks, int threads, int shared_bytes, void* stream, bool early,
                          const Arguments&... arguments) {
  using Prepared = PreparedKernel<kKernel>;
  if (const cudaError_t error = Prepared::prepare(shared_bytes); error != cudaSuccess) return error;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = blocks;
  launch.blockDim = static_cast<unsigned>(threads);
  launch.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  launch.stream = static_cast<cudaStream_t>(stream);
  launch.attrs = &attribute;
  launch.numAttrs = early && Prepared::can_be_early() ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&launch, kKernel, arguments...);
  if (error != cudaErrorInvalidValue) return error;
  // The runtime keeps the error until it is asked, and this one is told only where the second attempt fails too.
  if (cudaPeekAtLastError() == error) (void)cudaGetLastError();
  if (const cudaError_t again = Prepared::prepare_again(shared_bytes); again != cudaSuccess) return again;
  return cudaLaunchKernelEx(&launch, kKernel, arguments...);
}

}  // namespace falchion
