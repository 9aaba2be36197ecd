// tests/support/random.hpp: normal numbers made from a counter. Element i of the
// stream `seed` is the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>

namespace falchion::testing {

/// splitmix64 (Steele, Lea, Flood, OOPSLA 2014) of a counter.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = (seed * 0xD1342543DE82EF95u + i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
inline double random_uniform(std::uint64_t seed, std::uint64_t i) {  // The number lies in (0, 1).
  return (static_cast<double>(random_bits(seed, i) >> 11) + 0.5) * 0x1p-53;
}
inline float random_normal(std::uint64_t seed, std::uint64_t i) {  // This is Box and Muller's method.
  const double radius = std::sqrt(-2 * std::log(random_uniform(seed, 2 * i)));
  return static_cast<float>(radius * std::cos(6.283185307179586 * random_uniform(seed, 2 * i + 1)));
}

}  // namespace falchion::testing
