// tools/command/interrupt.hpp: Ctrl-C ends long work after the run at hand, so that what was measured is still told.
#pragma once

namespace falchion::tools {

/// As long as one of these lives, the first SIGINT or SIGTERM only sets a flag; a second one ends the process at once.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

/// Has a signal come that the work at hand should end for?
bool interrupted();

/// The exit code after that, and after a report of what there is: 130 or 143, as a shell gives it.
int interrupted_exit_code();

}  // namespace falchion::tools
