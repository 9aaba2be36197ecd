// tools/verify/watchdog.cpp: see watchdog.hpp.
#include "watchdog.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tool.hpp"

namespace falchion::tools::storm {
namespace {

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// The workers' slots and their number are static, because a signal handler reads them.
constexpr int kSlots = 1024;
Watchdog::Slot slots[kSlots];
std::atomic<int> slots_in_use = 0;
thread_local const Watchdog::Slot* slot_of_this_thread = nullptr;

void write_all(const char* text) {
  for (std::size_t left = std::strlen(text); left > 0;) {
    const ssize_t n = write(STDERR_FILENO, text, left);
    if (n <= 0) return;
    text += n;
    left -= static_cast<std::size_t>(n);
  }
}

struct Fatal {
  int number;
  const char* name;
};
constexpr Fatal kFatal[] = {
    {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}, {SIGABRT, "SIGABRT"}};

/// A separate stack for this thread's signals, because a thread that ran out of stack has none left to report it. If
/// there is one already (a sanitizer's), it stays.
class SignalStack {
 public:
  SignalStack() {
    stack_t before{};
    mine_ = sigaltstack(nullptr, &before) == 0 && (before.ss_flags & SS_DISABLE) != 0;
    if (!mine_) return;
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = sizeof memory_;
    mine_ = sigaltstack(&stack, nullptr) == 0;
  }
  ~SignalStack() {
    if (!mine_) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  char memory_[1 << 16];  // AVX-512 and AMX alone put 11 KB of registers there
  bool mine_ = false;
};

}  // namespace

/// Prints in a signal handler, where only write() and plain memory are safe.
struct CrashReport {
  static void handler(int signal) {
    write_all("\nfalchion verify: the process crashed: ");
    const char* name = "a signal";
    for (const Fatal& fatal : kFatal)
      if (fatal.number == signal) name = fatal.name;
    write_all(name);
    write_all(slot_of_this_thread != nullptr ? "" : ", in a thread of the library; one of what runs now");
    for (const Watchdog::Slot& slot : slots) {
      const bool suspect = slot_of_this_thread != nullptr ? &slot == slot_of_this_thread : slot.started_ != 0;
      if (!suspect || slot.command_[0] == 0) continue;
      write_all("\nFAIL ");
      write_all(slot.command_);
    }
    write_all("\n");
    _exit(exit_failed);
  }
};

namespace {

void catch_crashes() {
  struct sigaction action {};
  action.sa_handler = CrashReport::handler;
  action.sa_flags = SA_ONSTACK;
  for (const Fatal& fatal : kFatal) sigaction(fatal.number, &action, nullptr);
}

}  // namespace

void give_up(const std::string& what, const std::string& command) {
  write_all(fmt::format("\nfalchion verify: {}\nFAIL {}\n", what, command).c_str());
  _exit(exit_failed);
}

void Watchdog::Slot::work_on(const std::string& command) {
  thread_local const SignalStack stack;
  slot_of_this_thread = this;
  const std::size_t n = std::min(command.size(), sizeof command_ - 1);
  std::memcpy(command_, command.data(), n);
  command_[n] = 0;
}
void Watchdog::Slot::start() { started_ = now(); }
void Watchdog::Slot::stop() { started_ = 0; }

Watchdog::Watchdog(double seconds) : seconds_(seconds), thread_([this] { watch(); }) { catch_crashes(); }

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

Watchdog::Slot* Watchdog::add_slot() { return &slots[std::min(slots_in_use++, kSlots - 1)]; }

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::milliseconds(100), [&] { return done_; })) {
    for (const Slot& slot : slots) {
      const std::int64_t started = slot.started_;
      if (started == 0 || static_cast<double>(now() - started) * 1e-9 < seconds_) continue;
      give_up(fmt::format("a run did not end within {:g} s", seconds_), slot.command_);
    }
  }
}

}  // namespace falchion::tools::storm
