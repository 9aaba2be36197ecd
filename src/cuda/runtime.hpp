// src/cuda/runtime.hpp: the little that host code asks of CUDA. runtime_cuda.cpp answers in a build with GPU rows,
// runtime_none.cpp ("this build has no GPU rows") in all others; the callers need not know which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/place.hpp"
#include "falchion/falchion.hpp"

namespace falchion::cuda {

/// Does this build have GPU rows?
bool is_built() noexcept;

/// The current CUDA device, or why there is none.
struct Device {
  int sm = 0;                                                               // 10 * major + minor; 0: none
  int ordinal = -1;                                                         // the number CUDA gives it
  int sms = 0;                                                              // streaming multiprocessors
  std::size_t memory = 0, l2 = 0, shared_per_sm = 0, shared_per_block = 0;  // bytes; per block: with opt-in
  double memory_bytes_per_second = 0;                                       // of the data sheet's clock and width
  double clock_hz = 0;                                                      // of the SMs, at most
  std::string name;                                                         // "NVIDIA H200"
  std::string why_not;                                                      // when sm is 0
};
Device current_device();
/// The same of the device with that number.
Device device_at(int ordinal);

/// CUDA's own text for a cudaError_t, as "cudaErrorInvalidValue: invalid argument".
std::string error_text(int error);
/// What a call of ours returned, a cudaError_t, as a Status. The runtime also keeps it for whoever asks it for the last
/// error of this thread: that is taken back, for it has been told. What somebody else's call left there stays.
Status status_of(int error, const char* what);
/// Has an earlier kernel broken this process's context, as far as is known yet? Asks, and takes nothing back.
Status broken_context();
/// Which device is current, by its number; -1 without one.
int current_ordinal() noexcept;
/// Gives this thread the current device's context where it has none yet.
Status make_context();
Status make_current(int ordinal);

/// Makes a device current for as long as it lives, and then the one that was, with the context that the thread had on
/// it: an application that makes its own contexts (cuCtxCreate) has one that is not the device's primary one, which is
/// all that cudaSetDevice knows. -1: leaves the current device alone.
class OnDevice {
 public:
  explicit OnDevice(int ordinal)
      : before_(ordinal < 0 ? -1 : current_ordinal()), context_(before_ < 0 ? nullptr : thread_context()) {
    if (ordinal < 0) return;
    if (before_ < 0) {
      status_ = {Code::device, "CUDA does not say which device is current, so none is left for another"};
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

// Memory in a stream's order, for the one-call form: neither call waits for the device.
Status allocate_on(Stream stream, std::size_t bytes, void** out);
void release_on(Stream stream, void* memory) noexcept;

// For tests, tools and the one-call form. They synchronise or allocate, which Plan::run never does.
Status allocate(std::size_t bytes, void** out);
void release(void* memory) noexcept;
Status copy(void* to, const void* from, std::size_t bytes);  // either may lie on either side; done when it returns
Status fill(void* memory, int byte, std::size_t bytes);
Status synchronize();

/// Time between two points of a stream, in seconds, by CUDA events.
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
  void *start_ = nullptr, *stop_ = nullptr;
};

}  // namespace falchion::cuda
