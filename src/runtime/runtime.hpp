// src/runtime/runtime.hpp: the host code's interface to CUDA. runtime_cuda.cpp implements it in a build with GPU
// variants, runtime_none.cpp ("this build has no GPU variants") in all others. Callers need not know which one it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "falchion/falchion.hpp"
#include "runtime/place.hpp"

namespace falchion::cuda {

/// Whether this build has GPU variants.
bool is_built() noexcept;

/// The current CUDA device, or why there is none.
struct Device {
  int sm = 0;                                                               // 10 * major + minor; 0: no device
  int ordinal = -1;                                                         // the number that CUDA gives it
  int sms = 0;                                                              // streaming multiprocessors
  std::size_t memory = 0, l2 = 0, shared_per_sm = 0, shared_per_block = 0;  // in bytes; shared_per_block with opt-in
  double memory_bytes_per_second = 0;                                       // from the memory's clock and width
  double clock_hz = 0;                                                      // the highest clock of the SMs
  std::string name;                                                         // "NVIDIA H200"
  std::string why_not;                                                      // the reason, where sm is 0
};
/// Bytes of an SM's shared memory that CUDA reserves for each CTA, beside the CTA's own.
inline constexpr std::size_t kReservedShared = 1 << 10;
Device current_device();
/// The same for the device with that number.
Device device_at(int ordinal);

/// CUDA's own text for a cudaError_t, such as "cudaErrorInvalidValue: invalid argument".
std::string error_text(int error);
/// Makes a Status of the cudaError_t of one of the library's own calls. The runtime also keeps such an error as this
/// thread's last one. It is cleared there, since the Status reports it. An error of another caller stays.
Status status_of(int error, const char* what);
/// A failure if an earlier kernel is known to have broken this process's context. It clears no error.
Status broken_context();
/// The number of the current device, or -1 if there is none.
int current_ordinal() noexcept;
/// Creates this thread's context on the current device if it has none yet.
Status make_context();
Status make_current(int ordinal);

/// Makes a device current during its lifetime, and afterwards the previous one, with the context that the thread had on
/// it. An application that makes its own contexts (cuCtxCreate) has one that is not the device's primary context, and
/// cudaSetDevice knows only the primary one. -1 leaves the current device alone.
class OnDevice {
 public:
  explicit OnDevice(int ordinal)
      : before_(ordinal < 0 ? -1 : current_ordinal()), context_(before_ < 0 ? nullptr : thread_context()) {
    if (ordinal < 0) return;
    if (before_ < 0) {
      status_ = {Code::device, "CUDA does not say which device is current, so none is made current instead"};
    } else if (ordinal == before_) {
      before_ = -1;
    } else {
      status_ = make_current(ordinal);
    }
  }
  ~OnDevice() {
    if (before_ < 0) return;
    static_cast<void>(make_current(before_));
    if (context_ != nullptr) restore_context(context_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  const Status& status() const { return status_; }

 private:
  int before_;
  void* context_;
  Status status_{};
};

// Memory in a stream's order, for the one-call form. Neither call waits for the device.
Status allocate_on(Stream stream, std::size_t bytes, void** out);
void release_on(Stream stream, void* memory) noexcept;

// These are for tests, tools and the one-call form. They synchronise or allocate, which Plan::run never does.
Status allocate(std::size_t bytes, void** out);
void release(void* memory) noexcept;
Status copy(void* to, const void* from,
            std::size_t bytes);  // each may lie on either side; it waits until all is copied
Status fill(void* memory, int byte, std::size_t bytes);
Status synchronize();

/// Measures the time between two points of a stream, in seconds, with CUDA events.
class Timer {
 public:
  Timer();
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  Status start(Stream stream = nullptr);
  Status stop(Stream stream = nullptr);
  Status seconds(double* out);  // waits for stop

 private:
  // A build without GPU variants has a Timer that measures nothing and uses neither.
  [[maybe_unused]] void *start_ = nullptr, *stop_ = nullptr;
};

}  // namespace falchion::cuda
