// src/blocks/launch_number.hpp: what tells a launch from all others and from whatever a workspace may hold.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace falchion {

/// 64 bits that look random, never 0 and never the same twice in a process (2^64 launches). A graph's launches have the
/// number of the one that was captured.
inline std::uint64_t launch_number() {
  static std::atomic<std::uint64_t> next{
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())};
  std::uint64_t x = next.fetch_add(0x9E3779B97F4A7C15ull, std::memory_order_relaxed);  // splitmix64 (Vigna)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return x != 0 ? x : launch_number();
}

}  // namespace falchion
