// tests/cuda/kernels.cu: two kernels that only the tests need: one waits, and one breaks the context.
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
__global__ void fault_kernel() { asm volatile("trap;"); }

}  // namespace

int launch_wait(double seconds, void* stream) {
  wait_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<long long>(seconds * 1e9));
  return static_cast<int>(cudaGetLastError());
}
int launch_fault() {
  fault_kernel<<<1, 1>>>();
  return static_cast<int>(cudaDeviceSynchronize());
}

}  // namespace falchion::testing
