// tools/problem/random_bits.hpp: random numbers that are the same on every machine.
#pragma once

#include <cstdint>

namespace falchion::tools {

/// Number i of the stream `seed`, made by splitmix64 (Steele, Lea, Flood, OOPSLA 2014) from a counter.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = (seed * 0xD1342543DE82EF95u + i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace falchion::tools
