// tests/verify_watchdog_test.cpp: tests that a storm of `falchion verify --random` names the problem it was at when a
// run hangs, crashes or overflows its stack.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "tool.hpp"
#include "verify/watchdog.hpp"

namespace falchion::tools::storm {
namespace {

TEST(VerifyStormDeathTest, ARunThatDoesNotEndIsTold) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto hang = [] {
    Watchdog watchdog(0.3);
    Watchdog::Slot* slot = watchdog.add_slot();
    slot->work_on("falchion verify --problem 'op=attention s_q=1'");
    slot->start();
    std::this_thread::sleep_for(std::chrono::seconds(30));
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(exit_failed),
              "did not end within 0.3 s\nFAIL falchion verify --problem 'op=attention s_q=1'");
}

TEST(VerifyStormDeathTest, ACrashIsTold) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto crash = [](int number) {
    Watchdog watchdog(60);
    watchdog.add_slot()->work_on("falchion verify --problem 'op=linear s=1'");
    std::raise(number);
  };
  const std::pair<int, const char*> table[] = {{SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGILL, "SIGILL"}};
  for (const auto& [number, name] : table)
    EXPECT_EXIT(crash(number), ::testing::ExitedWithCode(exit_failed),
                std::string(name) + "\nFAIL falchion verify --problem 'op=linear s=1'");
}

// These sanitizers report an overflow of the stack themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int fall(volatile int* depth) {
  if (*depth < 0) return 0;  // never, but the compiler cannot know
  volatile char frame[4096];
  *depth = *depth + 1;
  frame[0] = static_cast<char>(*depth);
  return fall(depth) + frame[0];
}
TEST(VerifyStormDeathTest, AStackThatOverflowsIsTold) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto overflow = [] {
    Watchdog watchdog(60);
    watchdog.add_slot()->work_on("falchion verify --problem 'op=linear s=2'");
    volatile int depth = 0;
    fall(&depth);
  };
  EXPECT_EXIT(overflow(), ::testing::ExitedWithCode(exit_failed),
              "SIGSEGV\nFAIL falchion verify --problem 'op=linear s=2'");
}
#endif

}  // namespace
}  // namespace falchion::tools::storm
