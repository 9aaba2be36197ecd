// src/gpu/runtime_cuda.cpp: runtime.hpp on the CUDA runtime, which is linked statically: a machine with no GPU and no
// CUDA loads the library all the same and is told so by current_device().
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "gpu/runtime.hpp"

namespace falchion::gpu {
namespace {

Status status_of(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // told here; a sticky one comes back by itself
  return {Code::device, std::string(what) + ": " + error_text(error)};
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

Device facts_of(const cudaDeviceProp& properties, int device) {
  Device out;
  out.sm = 10 * properties.major + properties.minor, out.ordinal = device;
  out.sms = properties.multiProcessorCount;
  out.memory = properties.totalGlobalMem, out.l2 = static_cast<std::size_t>(properties.l2CacheSize);
  out.shared_per_sm = properties.sharedMemPerMultiprocessor;
  out.shared_per_block = properties.sharedMemPerBlockOptin;
  // Clock in kHz, two transfers a cycle, width in bits.
  out.memory_bytes_per_second =
      2e3 * attribute(cudaDevAttrMemoryClockRate, device) * attribute(cudaDevAttrGlobalMemoryBusWidth, device) / 8.0;
  out.clock_hz = 1e3 * attribute(cudaDevAttrClockRate, device);
  out.name = properties.name;
  return out;
}

}  // namespace

std::string error_text(int error) {
  const auto code = static_cast<cudaError_t>(error);
  return std::string(cudaGetErrorName(code)) + ": " + cudaGetErrorString(code);
}

Device current_device() {
  Device none;
  int device = 0, count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    // Asking for the properties takes a millisecond, and they never change.
    static std::mutex mutex;
    static std::map<int, Device> known;
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(device); found != known.end()) return found->second;
    cudaDeviceProp properties{};
    error = cudaGetDeviceProperties(&properties, device);
    if (error == cudaSuccess) return known[device] = facts_of(properties, device);
  }
  none.why_not = "no usable GPU: " + error_text(error);
  cudaGetLastError();
  return none;
}

Status pending_error() { return status_of(cudaGetLastError(), "a CUDA error from before this call"); }

int current_ordinal() noexcept {
  int device = -1;
  return cudaGetDevice(&device) == cudaSuccess ? device : (cudaGetLastError(), -1);
}

Place place_of(const void* pointer) noexcept {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) return cudaGetLastError(), Place::host;
  if (attributes.devicePointer == nullptr) return Place::host;
  if (attributes.type != cudaMemoryTypeDevice || attributes.device == current_ordinal()) return Place::here;
  int peer = 0;
  return cudaDeviceCanAccessPeer(&peer, current_ordinal(), attributes.device) == cudaSuccess && peer != 0
             ? Place::here
             : Place::other_device;
}

Status allocate_on(Stream stream, std::size_t bytes, void** out) {
  *out = nullptr;
  const Status status = status_of(cudaMallocAsync(out, bytes, static_cast<cudaStream_t>(stream)), "cudaMallocAsync");
  return status ? status : Status{Code::workspace, status.why + " (" + std::to_string(bytes) + " bytes asked for)"};
}
void release_on(Stream stream, void* memory) noexcept { cudaFreeAsync(memory, static_cast<cudaStream_t>(stream)); }

Status allocate(std::size_t bytes, void** out) {
  *out = nullptr;
  const Status status = status_of(cudaMalloc(out, bytes), "cudaMalloc");
  return status ? status : Status{status.code, status.why + " (" + std::to_string(bytes) + " bytes asked for)"};
}
void release(void* memory) noexcept { cudaFree(memory); }
Status copy(void* to, const void* from, std::size_t bytes) {
  return status_of(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
}
Status fill(void* memory, int byte, std::size_t bytes) {
  return status_of(cudaMemset(memory, byte, bytes), "cudaMemset");
}
Status synchronize() { return status_of(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

Timer::Timer() {
  cudaEvent_t start = nullptr, stop = nullptr;
  if (cudaEventCreate(&start) == cudaSuccess) start_ = start;
  if (cudaEventCreate(&stop) == cudaSuccess) stop_ = stop;
}
Timer::~Timer() {
  if (start_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(start_));
  if (stop_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(stop_));
}
Status Timer::start(Stream stream) {
  return status_of(cudaEventRecord(static_cast<cudaEvent_t>(start_), static_cast<cudaStream_t>(stream)), "start");
}
Status Timer::stop(Stream stream) {
  return status_of(cudaEventRecord(static_cast<cudaEvent_t>(stop_), static_cast<cudaStream_t>(stream)), "stop");
}
Status Timer::seconds(double* out) {
  if (Status status = status_of(cudaEventSynchronize(static_cast<cudaEvent_t>(stop_)), "timer"); !status) return status;
  float milliseconds = 0;
  const cudaError_t error =
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start_), static_cast<cudaEvent_t>(stop_));
  *out = 1e-3 * static_cast<double>(milliseconds);
  return status_of(error, "timer");
}

}  // namespace falchion::gpu
