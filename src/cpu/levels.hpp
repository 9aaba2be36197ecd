// src/cpu/levels.hpp: the CPU levels that this machine can run, found at run time.
#pragma once

#include <string>
#include <vector>

namespace falchion::cpu {

struct Level {
  const char* name;  // "amx", "avx512_bf16", "vnni", "avx512", "avx2", "neon", "generic", "amx_emulated"
  bool usable;
  std::string why_not;  // empty when usable
};

/// All levels, the fastest first; amx_emulated, which is slow and for tests, comes last. The CPU is queried once.
const std::vector<Level>& cpu_levels();

/// The level in the environment variable FALCHION_CPU, or null if it is unset or empty. It is read at each call.
const char* level_from_environment();

/// The names of the levels that are usable here, such as "avx512, avx2, generic".
std::string usable_levels();

}  // namespace falchion::cpu
