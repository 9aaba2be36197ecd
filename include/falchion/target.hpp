/// falchion/target.hpp: what to plan for: the backend and how it is to be used.
#pragma once

#include <cstdint>

namespace falchion {

enum class Backend : std::uint8_t { best, ref, cpu, sm80, sm90 };

/// The caller's own thread pool, for an engine that has one. parallel_for must call task(context, i) once for each i in
/// [0, n), on any threads, and return when all are done and their writes are visible to its caller. No task waits for
/// anything but its own work, so a pool may run other work on a thread that waits. `threads` says how many tasks may
/// run at once.
struct Executor {
  void (*parallel_for)(void* self, int n, void (*task)(void* context, int i), void* context) = nullptr;
  void* self = nullptr;
  int threads = 1;
  bool operator==(const Executor&) const = default;
};

/// What to plan for.
struct Target {
  Backend backend = Backend::best;
  int threads = 0;      // cpu: how many threads; 0 means all that the process may use (OMP_NUM_THREADS counts)
  Executor executor{};  // cpu: the pool to run on; without one it is OpenMP, or the library's own threads
  int sm = 0;           // gpu: plan for this architecture (80, 90) even if it is not here; 0 means the one present
  /// cpu: plan for this instruction set ("amx", "avx512", ...) or fail; with Backend::best this also asks for the CPU.
  /// null means the level that the environment's FALCHION_CPU names, or where it has no kernel of the operation the
  /// next level below that has one (it never names a backend); and without it the fastest level.
  const char* cpu_level = nullptr;
  int segments = 0;  // linear attention: how many parts each sequence is cut into; 0 lets the plan decide
  /// gpu: the device's CUDA number; -1 means the device that is current when the plan is made. A run goes to the plan's
  /// device, whichever one is current by then, and afterwards makes the caller's device current again. Its stream must
  /// belong to the plan's device.
  int device = -1;
  /// true: the caller vouches that every pointer lies where the backend can use it. Otherwise each run asks CUDA's
  /// driver where the process uses CUDA, which takes some 0.2 us for each pointer.
  bool trust_pointers = false;
  int sms = 0;  // gpu: how many SMs a plan may use, where others are for other work; 0 means all
  Target() = default;
  Target(Backend backend) : backend(backend) {}  // NOLINT(google-explicit-constructor): a Backend is a Target
};

using Stream = void*;  // a cudaStream_t; null for the CPU

}  // namespace falchion
