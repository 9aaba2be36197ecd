// tools/command/interrupt.cpp: see interrupt.hpp.
#include "command/interrupt.hpp"

#include <unistd.h>

#include <csignal>

namespace falchion::tools {
namespace {

volatile std::sig_atomic_t caught = 0;
struct sigaction before_int, before_term;

void handle(int signal) {
  caught = signal;
  constexpr char kText[] = "\nfalchion: ending after the run at hand; once more ends at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
}

}  // namespace

Interruptible::Interruptible() {
  caught = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);  // the second one has its usual effect
  sigaction(SIGINT, &action, &before_int);
  sigaction(SIGTERM, &action, &before_term);
}

Interruptible::~Interruptible() {
  sigaction(SIGINT, &before_int, nullptr);
  sigaction(SIGTERM, &before_term, nullptr);
}

bool interrupted() { return caught != 0; }
int interrupted_exit_code() { return 128 + static_cast<int>(caught); }

}  // namespace falchion::tools
