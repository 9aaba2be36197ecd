// src/runtime/runtime_cuda.cpp: implements runtime.hpp with the CUDA runtime, which is linked statically. So a machine
// without GPU and CUDA can load the library, and current_device() returns that there is no device.
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "runtime/runtime.hpp"

namespace falchion::cuda {
namespace {

/// Passes on the result of one of the library's own calls. The runtime has also stored an error for cudaGetLastError,
/// and it is cleared there. An error of another call is not cleared.
cudaError_t own(cudaError_t error) {
  if (error != cudaSuccess && cudaPeekAtLastError() == error) (void)cudaGetLastError();
  return error;
}

/// Whether a context answers every call after this error with the same error, until the process ends.
bool breaks_the_context(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable: return true;
    default: return false;
  }
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return own(cudaDeviceGetAttribute(&value, which, device)) == cudaSuccess ? value : 0;
}

Device facts_of(const cudaDeviceProp& properties, int device) {
  Device out;
  out.sm = 10 * properties.major + properties.minor;
  out.ordinal = device;
  out.sms = properties.multiProcessorCount;
  out.memory = properties.totalGlobalMem;
  out.l2 = static_cast<std::size_t>(properties.l2CacheSize);
  out.shared_per_sm = properties.sharedMemPerMultiprocessor;
  out.shared_per_block = properties.sharedMemPerBlockOptin;
  // The clock is in kHz, with two transfers a cycle, and the width is in bits.
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

bool is_built() noexcept { return true; }
Device current_device() { return device_at(-1); }

Device device_at(int ordinal) {
  Device none;
  int device = ordinal, count = 0;
  cudaError_t error = own(cudaGetDeviceCount(&count));
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess && ordinal >= count) {
    none.why_not =
        "there is no CUDA device " + std::to_string(ordinal) + ", this process sees " + std::to_string(count);
    return none;
  }
  if (error == cudaSuccess && ordinal < 0) error = own(cudaGetDevice(&device));
  if (error == cudaSuccess) {
    // Asking for the properties takes a millisecond, and they never change.
    static std::mutex mutex;
    static std::map<int, Device> known;
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(device); found != known.end()) return found->second;
    cudaDeviceProp properties{};
    error = own(cudaGetDeviceProperties(&properties, device));
    if (error == cudaSuccess) return known[device] = facts_of(properties, device);
  }
  none.why_not = "no usable GPU: " + error_text(error);
  return none;
}

Status status_of(int error, const char* what) {
  const cudaError_t code = own(static_cast<cudaError_t>(error));
  if (code == cudaSuccess) return {};
  const char* broken = breaks_the_context(code) ? " (an earlier kernel has broken this process's CUDA context)" : "";
  return {Code::device, std::string(what) + ": " + error_text(code) + broken};
}

Status broken_context() {
  const cudaError_t error = cudaPeekAtLastError();
  if (!breaks_the_context(error)) return {};
  return {Code::device, "an earlier kernel has broken this process's CUDA context: " + error_text(error)};
}

int current_ordinal() noexcept {
  int device = -1;
  return own(cudaGetDevice(&device)) == cudaSuccess ? device : -1;
}

Status make_context() { return thread_context() != nullptr ? Status{} : make_current(current_ordinal()); }
Status make_current(int ordinal) { return status_of(cudaSetDevice(ordinal), "cudaSetDevice"); }

Status allocate_on(Stream stream, std::size_t bytes, void** out) {
  *out = nullptr;
  const Status status = status_of(cudaMallocAsync(out, bytes, static_cast<cudaStream_t>(stream)), "cudaMallocAsync");
  return status ? status : Status{Code::workspace, status.why + " (" + std::to_string(bytes) + " bytes asked for)"};
}
void release_on(Stream stream, void* memory) noexcept { own(cudaFreeAsync(memory, static_cast<cudaStream_t>(stream))); }

Status allocate(std::size_t bytes, void** out) {
  *out = nullptr;
  const Status status = status_of(cudaMalloc(out, bytes), "cudaMalloc");
  return status ? status : Status{status.code, status.why + " (" + std::to_string(bytes) + " bytes asked for)"};
}
void release(void* memory) noexcept { own(cudaFree(memory)); }
Status copy(void* to, const void* from, std::size_t bytes) {
  return status_of(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
}
Status fill(void* memory, int byte, std::size_t bytes) {
  return status_of(cudaMemset(memory, byte, bytes), "cudaMemset");
}
Status synchronize() { return status_of(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

Timer::Timer() {
  cudaEvent_t start = nullptr, stop = nullptr;
  if (own(cudaEventCreate(&start)) == cudaSuccess) start_ = start;
  if (own(cudaEventCreate(&stop)) == cudaSuccess) stop_ = stop;
}
Timer::~Timer() {
  if (start_ != nullptr) own(cudaEventDestroy(static_cast<cudaEvent_t>(start_)));
  if (stop_ != nullptr) own(cudaEventDestroy(static_cast<cudaEvent_t>(stop_)));
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

}  // namespace falchion::cuda
