// tests/thread_pool_test.cpp: tests the library's own threads, which are kept between calls, shared by callers and
// nested, also after a fork and while the process ends.
#include <gtest/gtest.h>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "cpu/thread_pool.hpp"

namespace falchion::testing {
namespace {

using Counts = std::vector<std::atomic<int>>;

void count_each(void* context, int i) { ++(*static_cast<Counts*>(context))[static_cast<std::size_t>(i)]; }

bool each_once(int threads, int n) {
  Counts counts(static_cast<std::size_t>(n));
  cpu::run_on_thread_pool(threads, n, count_each, &counts);
  for (const std::atomic<int>& count : counts) {
    if (count != 1) return false;
  }
  return true;
}

/// Its destructor may run before or after the pool is closed.
struct WorksWhileTheProcessEnds {
  ~WorksWhileTheProcessEnds() {
    if (!each_once(4, 100)) std::_Exit(3);
  }
} works_while_the_process_ends;

TEST(Threads, ThePoolKeepsItsThreads) {
  ASSERT_TRUE(each_once(4, 100));
  const int helpers = cpu::thread_pool_helpers();
  EXPECT_GE(helpers, 3);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(each_once(1 + i % 4, i % 7));
  EXPECT_EQ(cpu::thread_pool_helpers(), helpers);
}

/// These tasks wait for each other, so all of them must be running at once. That shows that each call gets the helpers
/// that it asks for.
TEST(Threads, ThePoolGivesTheThreadsAskedFor) {
  for (int again = 0; again < 3; ++again) {
    std::atomic<int> arrived{0};
    cpu::run_on_thread_pool(
        6, 6,
        [](void* context, int) {
          auto& count = *static_cast<std::atomic<int>*>(context);
          for (++count; count < 6;) std::this_thread::yield();
        },
        &arrived);
    EXPECT_EQ(arrived, 6);
  }
}

TEST(Threads, ManyCallersShareThePool) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&wrong, t] {
      for (int i = 0; i < 100; ++i) wrong += each_once(2 + t % 3, 1 + i % 40) ? 0 : 1;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, ATaskMayUseThePoolItself) {
  std::atomic<int> wrong{0};
  cpu::run_on_thread_pool(
      4, 8,
      [](void* context, int) {
        for (int i = 0; i < 20; ++i) *static_cast<std::atomic<int>*>(context) += each_once(4, 10) ? 0 : 1;
      },
      &wrong);
  EXPECT_EQ(wrong, 0);
}

cpu_set_t cpus_of_this_thread() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  EXPECT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  return cpus;
}

/// Returns how many of four tasks, which all run at once, are on another set of CPUs than their caller. The caller gets
/// that set first.
int tasks_elsewhere(const cpu_set_t& cpus) {
  struct Seen {
    cpu_set_t cpus;
    std::atomic<int> arrived{0}, elsewhere{0};
  } seen{.cpus = cpus};
  std::thread([&seen] {
    ASSERT_EQ(sched_setaffinity(0, sizeof seen.cpus, &seen.cpus), 0);
    cpu::run_on_thread_pool(
        4, 4,
        [](void* context, int) {
          auto& all = *static_cast<Seen*>(context);
          const cpu_set_t here = cpus_of_this_thread();
          all.elsewhere += CPU_EQUAL(&here, &all.cpus) ? 0 : 1;
          for (++all.arrived; all.arrived < 4;) std::this_thread::yield();
        },
        &seen);
  }).join();
  EXPECT_EQ(seen.arrived, 4);
  return seen.elsewhere;
}

TEST(Threads, HelpersRunWhereTheirCallerMayRun) {
  const cpu_set_t all = cpus_of_this_thread();
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one CPU";
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  EXPECT_EQ(tasks_elsewhere(one), 0) << "a pinned caller";
  EXPECT_EQ(tasks_elsewhere(all), 0) << "a caller after a pinned one";
  EXPECT_EQ(tasks_elsewhere(one), 0) << "a pinned caller once more";
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadsAfterFork = false;  // tsan refuses to start threads after a fork.
#else
constexpr bool kThreadsAfterFork = true;
#endif

TEST(Threads, AForkedChildStartsItsOwn) {
  if (!kThreadsAfterFork) GTEST_SKIP() << "this sanitizer allows no thread in the child of a process with threads";
  ASSERT_TRUE(each_once(4, 100));
  // This thread keeps the pool busy, so that its lock may be held while the process forks. The jthread ends with the
  // test, even where an ASSERT ends the test.
  const std::jthread busy([](const std::stop_token& stop) {
    while (!stop.stop_requested()) static_cast<void>(each_once(4, 10));
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      const bool none = cpu::thread_pool_helpers() == 0, works = each_once(4, 100) && each_once(4, 100);
      _exit(none && works && cpu::thread_pool_helpers() == 3 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

}  // namespace
}  // namespace falchion::testing
