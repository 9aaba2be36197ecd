// tools/verify/watchdog.hpp: tracks what each worker runs, so that a kernel that hangs or crashes is reported with the
// command that repeats it. A hanging GPU does not respond, so the process then ends at once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace falchion::tools::storm {

class Watchdog {
 public:
  /// One worker's entry.
  class Slot {
   public:
    /// From here on this thread works on the problem. If the process crashes, the command is printed.
    void work_on(const std::string& command);
    /// The kernel runs between these two calls.
    void start();
    void stop();

   private:
    friend class Watchdog;
    friend struct CrashReport;
    char command_[8192] = {};                // plain memory, so that a signal handler may read it
    std::atomic<std::int64_t> started_ = 0;  // ns of the steady clock; 0: nothing runs
  };

  explicit Watchdog(double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  Slot* add_slot();  ///< lives as long as the process

 private:
  void watch();

  double seconds_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

/// Ends the process: the device no longer responds.
[[noreturn]] void give_up(const std::string& what, const std::string& command);

}  // namespace falchion::tools::storm
