// tools/verify/trial.hpp: one problem, planned, run twice on poisoned memory and judged.
#pragma once

#include <string>

#include "device_arena.hpp"
#include "image.hpp"
#include "problem.hpp"
#include "watchdog.hpp"

namespace falchion::tools::storm {

struct Outcome {
  enum class Kind { passed, refused, failed } kind = Kind::passed;
  std::string why{};   // of what is refused or failed
  std::string plan{};  // describe()
  bool failed() const { return kind == Kind::failed; }
};

/// Memory that one worker uses again and again.
struct Bench {
  GuardedBuffer copies[2], workspace;
};

/// device: null where no GPU is. slot: told what runs, and when.
Outcome attempt(const Problem& problem, Bench* bench, DeviceArena* device, Watchdog::Slot* slot);

}  // namespace falchion::tools::storm
