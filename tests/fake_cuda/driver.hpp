// tests/fake_cuda/driver.hpp: a CUDA driver for machines that have none. It is a library called libcuda.so.1 that
// returns for each address what a test has set. The real driver's answers were measured on two H200
// (src/runtime/place.cpp).
#pragma once

#include <cstddef>

namespace falchion::testing {

enum class FakeKind : int { pinned = 1, device = 2, managed = 3 };

/// The functions that the library has beside those of the driver. They are found by dlsym.
struct FakeDriver {
  /// Tells the library whose memory an address is. in_reach says whether the current context may use that memory.
  void (*add)(const void* begin, std::size_t bytes, FakeKind kind, bool in_reach) = nullptr;
  // Forgets all addresses and the error. Afterwards the thread has a context.
  void (*forget)() = nullptr;
  // Sets what each question is answered with. With 0 the answers are again those that the test gave.
  void (*fail_with)(int error) = nullptr;
  void (*has_context)(bool yes) = nullptr;
  // Returns how often the driver was asked where an address lies, of the last 256 questions since forget().
  int (*times_asked)(const void* address) = nullptr;
  int (*set_context)(void* context) = nullptr;  // This is the driver's own function.

  /// Loads the library in the way in which an application that uses CUDA loads it.
  static const FakeDriver& loaded();
};

}  // namespace falchion::testing
