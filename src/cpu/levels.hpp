// src/cpu/levels.hpp: which CPU levels this machine can run, asked at run time.
#pragma once

#include <string>
#include <vector>

namespace falchion::cpu {

struct Level {
  const char* name;  // "amx", "avx512", "avx2", "neon", "generic", "amx_emulated"
  bool usable;
  std::string why_not;  // empty when usable
};

/// Every level there is, fastest first; amx_emulated (slow, for tests) last. Asks the CPU once.
const std::vector<Level>& cpu_levels();

/// What FALCHION_CPU asks for: a level's name, or null when it is unset or empty. Read anew at each call.
const char* level_from_environment();

/// "avx512, avx2, generic": the levels usable here.
std::string usable_levels();

}  // namespace falchion::cpu
