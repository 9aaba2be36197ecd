// tests/cuda/kernels.cu: kernels that only the tests need: one waits, one hands out the next of some lists, one breaks
// the context, and one only has clusters.
#include "kernels.hpp"

namespace falchion::testing {
namespace {

__global__ void wait_kernel(long long nanoseconds) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < static_cast<unsigned long long>(nanoseconds));
}
__global__ void next_of_kernel(int* turn, const int* lists, int sets, int size, int* to) {
  const int* list = lists + *turn % sets * size;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x)) to[i] = list[i];
  __syncthreads();
  if (threadIdx.x == 0) *turn += 1;
}
__global__ void fault_kernel() { asm volatile("trap;"); }
__global__ void cluster_kernel() {}

}  // namespace

int launch_wait(double seconds, void* stream) {
  wait_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<long long>(seconds * 1e9));
  return static_cast<int>(cudaGetLastError());
}
int launch_next_of(int* turn, const int* lists, int sets, int size, int* to, void* stream) {
  next_of_kernel<<<1, 256, 0, static_cast<cudaStream_t>(stream)>>>(turn, lists, sets, size, to);
  return static_cast<int>(cudaGetLastError());
}
int launch_fault() {
  fault_kernel<<<1, 1>>>();
  return static_cast<int>(cudaDeviceSynchronize());
}
int clusters_at_once(int ctas) {
  constexpr int kWholeSm = 200 * 1024;  // bytes of shared memory that two CTAs of an SM cannot both have
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(ctas), 1, 1};
  cudaLaunchConfig_t launch{};
  launch.gridDim = static_cast<unsigned>(ctas);
  launch.blockDim = 32;
  launch.dynamicSmemBytes = kWholeSm;
  launch.attrs = &cluster;
  launch.numAttrs = 1;
  int clusters = 0;
  cudaError_t error = cudaFuncSetAttribute(cluster_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kWholeSm);
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&clusters, cluster_kernel, &launch);
  return error == cudaSuccess ? clusters : -static_cast<int>(error);
}

}  // namespace falchion::testing
