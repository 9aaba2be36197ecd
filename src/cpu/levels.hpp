// src/cpu/levels.hpp: which CPU levels this machine can run. It is asked at run time.
#pragma once

#include <string>
#include <vector>

namespace falchion::cpu {

struct Level {
  const char* name;  // "amx", "vnni", "avx512", "avx2", "neon", "generic", "amx_emulated"
  bool usable;
  std::string why_not;  // empty when usable
};

/// All levels, the fastest first; amx_emulated, which is slow and for tests, comes last. The CPU is asked once.
const std::vector<Level>& cpu_levels();

/// The level's name that FALCHION_CPU asks for, or null when it is unset or empty. It is read anew at each call.
const char* level_from_environment();

/// The names of the levels that are usable here, such as "avx512, avx2, generic".
std::string usable_levels();

}  // namespace falchion::cpu
