// src/blocks/stream_order.cuh: kernels of one stream that overlap at their ends. From sm_90 on a kernel may be put on
// the SMs that the one before it no longer needs, and set itself up there; before it touches memory it waits until that
// one is done (programmatic dependent launch). Between two launches that is 1 to 3 us.
#pragma once

#include <cuda_runtime.h>

namespace falchion {

/// Called before a thread touches what an earlier kernel may still read or write, and by some thread of each CTA that
/// works before it returns: a kernel that ends before the one before it would let the next pass both.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// The next kernel may take what SMs are free once all CTAs of this one have said so.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// early: this kernel may be started so. It must call wait_for_earlier_kernels, which code for an older GPU does not.
/// Returns what these calls return and nothing else: the runtime's last error may be somebody else's.
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
