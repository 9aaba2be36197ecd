// src/gpu/blocks/launch_number.hpp: a number for each kernel launch. A kernel writes it into the workspace to mark data
// of this launch, so it must differ from the numbers of all other launches and from anything else that a workspace may
// hold. docs/design/linear_attention.md, "Few heads on Hopper", describes its use.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace falchion {

/// Returns 64 bits that look random. They are never 0, and no number repeats in a process before 2^64 launches. A CUDA
/// graph has the number of the launch that was captured, so it runs with the same number every time.
inline std::uint64_t launch_number() {
  static std::atomic<std::uint64_t> next{
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())};
  // The constants and the mixing are those of splitmix64 (Vigna).
  std::uint64_t x = next.fetch_add(0x9E3779B97F4A7C15ull, std::memory_order_relaxed);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return x != 0 ? x : launch_number();
}

}  // namespace falchion
