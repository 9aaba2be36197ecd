// tests/fake_cuda/runtime.cpp: the fake runtime that runtime.hpp describes.
#include "fake_cuda/runtime.hpp"

#include <cstdlib>
#include <cstring>

namespace falchion::testing {

FakeRuntime& fake_runtime() {
  static FakeRuntime runtime;
  return runtime;
}

namespace {

cudaError_t answer() {
  falchion::testing::FakeRuntime& cuda = fake_runtime();
  if (cuda.sticky) return cuda.last;
  const cudaError_t error = cuda.next;
  cuda.next = cudaSuccess;
  if (error != cudaSuccess) cuda.last = error;
  return error;
}

}  // namespace
}  // namespace falchion::testing

using falchion::testing::answer;
using falchion::testing::fake_runtime;

extern "C" {

cudaError_t CUDARTAPI cudaPeekAtLastError() { return fake_runtime().last; }
cudaError_t CUDARTAPI cudaGetLastError() {
  const cudaError_t last = fake_runtime().last;
  if (!fake_runtime().sticky) fake_runtime().last = cudaSuccess;
  return last;
}
const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInvalidDevice          ? "cudaErrorInvalidDevice"
         : error == cudaErrorMemoryAllocation     ? "cudaErrorMemoryAllocation"
         : error == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
         : error == cudaErrorIllegalAddress       ? "cudaErrorIllegalAddress"
                                                  : "cudaErrorOfTheTest";
}
const char* CUDARTAPI cudaGetErrorString(cudaError_t) { return "as the test says"; }
cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  ++fake_runtime().starts;
  *count = fake_runtime().devices;
  return answer();
}
cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  ++fake_runtime().starts;
  *device = fake_runtime().current;
  // This function asks no context, so it succeeds in a broken one too.
  return fake_runtime().sticky ? cudaSuccess : answer();
}
cudaError_t CUDARTAPI cudaSetDevice(int device) {
  ++fake_runtime().starts;
  const cudaError_t error = answer();
  falchion::testing::FakeRuntime& cuda = fake_runtime();
  if (error == cudaSuccess) cuda.current = device;
  if (error == cudaSuccess && cuda.set_context != nullptr) cuda.set_context(&cuda.primary[device]);
  return error;
}
cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof *properties);
  properties->major = fake_runtime().major;
  properties->minor = fake_runtime().minor;
  properties->multiProcessorCount = 132;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  std::strcpy(properties->name, device == 0 ? "Fake GPU" : "Another fake GPU");
  return answer();
}
cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return answer();
}
cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                                       cudaDriverEntryPointQueryResult* result) {
  *function = fake_runtime().entry_point;
  *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return answer();
}
cudaError_t CUDARTAPI cudaMallocAsync(void** out, size_t, cudaStream_t) {
  *out = nullptr;
  return answer();
}
cudaError_t CUDARTAPI cudaFreeAsync(void*, cudaStream_t) { return answer(); }
cudaError_t CUDARTAPI cudaMalloc(void** out, size_t) {
  *out = nullptr;
  return answer();
}
cudaError_t CUDARTAPI cudaFree(void*) { return answer(); }
cudaError_t CUDARTAPI cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind) { return answer(); }
cudaError_t CUDARTAPI cudaMemset(void*, int, size_t) { return answer(); }
cudaError_t CUDARTAPI cudaDeviceSynchronize() { return answer(); }
cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t*) { return answer(); }
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t) { return answer(); }
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t, cudaStream_t) { return answer(); }
cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t) { return answer(); }
cudaError_t CUDARTAPI cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return answer(); }

}  // extern "C"

int falchion::gpu::launch_merge(const MergeArgs& a, void* stream) {
  falchion::testing::FakeRuntime& cuda = fake_runtime();
  ++cuda.merges;
  cuda.merge = a;
  cuda.merge_stream = stream;
  return answer();
}
