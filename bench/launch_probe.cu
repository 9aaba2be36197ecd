// bench/launch_probe.cu: what a launch costs the host, in microseconds, by the size of a kernel's arguments and by the
// way it is launched. It is the floor under Plan::run on a GPU (docs/design/api.md, "What a run costs the host").
//
//   nvcc -O2 -std=c++20 -arch=sm_90 -o launch_probe bench/launch_probe.cu -lcuda && ./launch_probe
//
// Each line is the median of 50 batches of 100 calls; the device catches up between two batches.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

template <class Call>
void time(const char* what, const Call& call) {
  constexpr int kCalls = 100, kBatches = 50;
  std::vector<double> us;
  for (int batch = 0; batch < kBatches; ++batch) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kCalls);
    cudaDeviceSynchronize();
  }
  std::nth_element(us.begin(), us.begin() + kBatches / 2, us.end());
  std::printf("%-58s %6.2f us\n", what, us[kBatches / 2]);
}

template <int kBytes>
struct alignas(64) Block {
  unsigned char bytes[kBytes];
};

template <int kBytes>
__global__ void kernel(const __grid_constant__ Block<kBytes> block, unsigned* out) {
  if (out != nullptr && block.bytes[threadIdx.x % kBytes] == 1) *out = 1;
}

cudaLaunchConfig_t config(int threads, int shared, cudaLaunchAttribute* attribute) {
  cudaLaunchConfig_t launch{};
  launch.gridDim = 16;
  launch.blockDim = static_cast<unsigned>(threads);
  launch.dynamicSmemBytes = static_cast<std::size_t>(shared);
  launch.attrs = attribute;
  launch.numAttrs = attribute != nullptr ? 1 : 0;
  return launch;
}

template <int kBytes>
void time_size() {
  static Block<kBytes> block{};
  unsigned* out = nullptr;
  char what[80];
  const cudaLaunchConfig_t launch = config(128, 0, nullptr);
  std::snprintf(what, sizeof what, "cudaLaunchKernelEx, %d bytes", kBytes);
  time(what, [&] { cudaLaunchKernelEx(&launch, kernel<kBytes>, block, out); });
  cudaFunction_t function = nullptr;
  cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(kernel<kBytes>));
  CUlaunchConfig driver{};
  driver.gridDimX = 16;
  driver.gridDimY = driver.gridDimZ = driver.blockDimY = driver.blockDimZ = 1;
  driver.blockDimX = 128;
  void* arguments[] = {&block, &out};
  std::snprintf(what, sizeof what, "cuLaunchKernelEx, %d bytes", kBytes);
  time(what, [&] { cuLaunchKernelEx(&driver, function, arguments, nullptr); });
  struct alignas(64) {
    Block<kBytes> block;
    unsigned* out;
  } buffer{};
  std::size_t size = kBytes + sizeof(out);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  std::snprintf(what, sizeof what, "cuLaunchKernelEx, %d bytes in one buffer", kBytes);
  time(what, [&] { cuLaunchKernelEx(&driver, function, nullptr, extra); });
}

void time_shapes() {
  static Block<768> block{};
  unsigned* out = nullptr;
  constexpr int kShared = 200 * 1024;
  cudaFuncSetAttribute(kernel<768>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t plain = config(384, kShared, nullptr), with = config(384, kShared, &early);
  time("768 bytes, 384 threads, 200 KiB of shared memory",
       [&] { cudaLaunchKernelEx(&plain, kernel<768>, block, out); });
  time("the same, with programmatic serialization", [&] { cudaLaunchKernelEx(&with, kernel<768>, block, out); });
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaLaunchConfig_t other = plain;
  other.stream = stream;
  time("768 bytes, a stream of its own", [&] { cudaLaunchKernelEx(&other, kernel<768>, block, out); });
  other = with;
  other.stream = stream;
  time("768 bytes, a stream of its own, programmatic", [&] { cudaLaunchKernelEx(&other, kernel<768>, block, out); });
}

void time_questions() {
  void* memory[5] = {};
  for (void*& x : memory) cudaMalloc(&x, 1 << 20);
  int device = 0;
  time("cudaGetDevice", [&] { cudaGetDevice(&device); });
  time("cudaPeekAtLastError", [&] { (void)cudaPeekAtLastError(); });
  CUcontext context = nullptr;
  time("cuCtxGetCurrent", [&] { cuCtxGetCurrent(&context); });
  cudaStream_t stream = nullptr;
  cudaStreamCreate(&stream);
  cudaStreamCaptureStatus status{};
  time("cudaStreamIsCapturing", [&] { cudaStreamIsCapturing(stream, &status); });
  unsigned type = 0, managed = 0;
  CUdeviceptr at = 0;
  unsigned long long id = 0;
  CUpointer_attribute three[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  void* values[] = {&type, &managed, &at};
  const auto address = [&](int i) { return reinterpret_cast<CUdeviceptr>(memory[i]); };
  time("cuPointerGetAttributes, 3 of 5 pointers", [&] {
    for (int i = 0; i < 5; ++i) cuPointerGetAttributes(3, three, values, address(i));
  });
  time("cuPointerGetAttribute, memory type of 5 pointers", [&] {
    for (int i = 0; i < 5; ++i) cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(i));
  });
  time("cuPointerGetAttribute, buffer id of 5 pointers", [&] {
    for (int i = 0; i < 5; ++i) cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(i));
  });
}

}  // namespace

int main() {
  cudaFree(nullptr);
  time_size<64>();
  time_size<256>();
  time_size<768>();
  time_size<1024>();
  time_size<2048>();
  time_shapes();
  time_questions();
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
