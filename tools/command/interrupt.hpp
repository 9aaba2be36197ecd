// tools/command/interrupt.hpp: Ctrl-C ends long work after the current run, so that the results so far are still
// printed.
#pragma once

namespace falchion::tools {

/// During its lifetime, the first SIGINT or SIGTERM only sets a flag; a second one ends the process at once.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

/// Whether a signal has requested the end of the work.
bool interrupted();

/// The exit code after that and a report of the results so far: 130 or 143, like a shell's.
int interrupted_exit_code();

}  // namespace falchion::tools
