// src/blocks/stream_order.cuh: kernels of one stream that overlap at their ends (programmatic dependent launch). From
// sm_90 on the CTAs of a kernel may start on SMs that the kernel before it no longer needs, and set themselves up
// there. Before they touch memory they wait until that kernel is done. This saves 1 to 3 us between two launches.
// docs/design/sm90_forward.md and docs/design/linear_attention.md say where it helps and where it does not.
#pragma once

#include <cuda_runtime.h>

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

/// Launches a kernel. early: it may start before the kernel before it has ended. Such a kernel must call
/// wait_for_earlier_kernels, and where the code that is loaded was compiled for an older GPU, in which that call does
/// nothing, `early` is ignored. Returns only what the calls in here return, because the runtime's last error may come
/// from somebody else.
template <class... Parameters, class... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), unsigned blocks, int threads, int shared_bytes, void* stream,
                          bool early, const Arguments&... arguments) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  cudaFuncAttributes code{};
  if (error == cudaSuccess && early) error = cudaFuncGetAttributes(&code, kernel);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = blocks, launch.blockDim = static_cast<unsigned>(threads);
  launch.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  launch.stream = static_cast<cudaStream_t>(stream);
  launch.attrs = &attribute, launch.numAttrs = code.ptxVersion >= 90 ? 1 : 0;
  return error == cudaSuccess ? cudaLaunchKernelEx(&launch, kernel, arguments...) : error;
}

}  // namespace falchion
