// tests/fake_cuda/driver.hpp: a CUDA driver for machines that have none: a library called libcuda.so.1 that says of
// addresses what a test has told it to. What the real one says was measured on two H200 (src/cuda/place.cpp).
#pragma once

#include <cstddef>

namespace falchion::testing {

enum class FakeKind : int { pinned = 1, device = 2, managed = 3 };

/// What the library has beside the driver's own functions; found by dlsym.
struct FakeDriver {
  /// Says whose memory an address is. in_reach: may the current context use it?
  void (*add)(const void* begin, std::size_t bytes, FakeKind kind, bool in_reach) = nullptr;
  void (*forget)() = nullptr;              // all of that, the error too; the thread then has a context
  void (*fail_with)(int error) = nullptr;  // what each question is answered with; 0: as told
  void (*has_context)(bool yes) = nullptr;
  int (*set_context)(void* context) = nullptr;  // the driver's own

  /// Loads the library, as an application that uses CUDA does.
  static const FakeDriver& loaded();
};

}  // namespace falchion::testing
