// tests/fake_cuda/load.hpp: loads the fake driver, and makes memory that it takes for a GPU's.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "fake_cuda/driver.hpp"

namespace falchion::testing {

inline const FakeDriver& FakeDriver::loaded() {
  static const FakeDriver driver = [] {
    void* library = dlopen(FALCHION_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    const auto symbol = [library](auto* to, const char* name) {
      *to = reinterpret_cast<std::remove_pointer_t<decltype(to)>>(library == nullptr ? nullptr : dlsym(library, name));
    };
    FakeDriver out;
    symbol(&out.add, "fake_add");
    symbol(&out.forget, "fake_forget");
    symbol(&out.fail_with, "fake_fail_with");
    symbol(&out.has_context, "fake_has_context");
    symbol(&out.times_asked, "fake_times_asked");
    symbol(&out.set_context, "cuCtxSetCurrent");
    return out;
  }();
  return driver;
}

/// Memory of a GPU: the process crashes when the host reads or writes these addresses.
class DeviceMemory {
 public:
  explicit DeviceMemory(bool in_reach = true)
      : data_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    FakeDriver::loaded().add(data_, kBytes, FakeKind::device, in_reach);
  }
  ~DeviceMemory() { munmap(data_, kBytes); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  template <class T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 24;
  void* data_;
};

}  // namespace falchion::testing
