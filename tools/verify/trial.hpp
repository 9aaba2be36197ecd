// tools/verify/trial.hpp: plans one problem, runs it twice on poisoned memory and judges the results.
#pragma once

#include <string>

#include "device_arena.hpp"
#include "image.hpp"
#include "problem.hpp"
#include "subject.hpp"
#include "watchdog.hpp"

namespace falchion::tools::storm {

struct Outcome {
  enum class Kind { passed, refused, failed } kind = Kind::passed;
  std::string why{};       // of what is refused or failed
  std::string plan{};      // describe()
  std::string place{};     // where it ran, "cpu avx2"; empty where there was no plan
  std::string measured{};  // the errors of its outputs, where they are told
  bool failed() const { return kind == Kind::failed; }
};

/// Memory that one worker uses for all of its problems.
struct Bench {
  GuardedBuffer copies[2], workspace;
};

/// What two runs of a plan returned, and the two copies of the subject's image after them.
struct TwoRuns {
  Status status[2];
  std::byte *first = nullptr, *second = nullptr;
  bool guards_are_whole = true;  // of the workspace
};
/// Whether that is right. A refused run must not touch the memory, and must be refused both times.
Outcome conclude(const Problem& problem, const Plan& plan, const TwoRuns& runs, Subject* subject);

/// device: null without a GPU. slot: is notified of each run.
Outcome attempt(const Problem& problem, Bench* bench, DeviceArena* device, Watchdog::Slot* slot);

}  // namespace falchion::tools::storm
