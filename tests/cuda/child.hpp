// tests/cuda/child.hpp: runs a test in a process of its own, because it breaks the context or may not come to an end.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace falchion::testing {

/// Runs one test of this executable in a child process. visible is the CUDA_VISIBLE_DEVICES of the child. If it is
/// null, the child inherits ours.
inline void expect_child_passes(const char* test, const char* visible) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // After fork only the environment and exec are safe.
    setenv("FALCHION_TEST_CHILD", "1", 1);
    unsetenv("GTEST_TOTAL_SHARDS");
    unsetenv("GTEST_SHARD_INDEX");
    if (visible != nullptr) setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    const std::string filter = std::string("--gtest_filter=") + test;
    execl("/proc/self/exe", "child", filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_fail_fast", nullptr);
    _exit(127);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state)) << "killed by signal " << WTERMSIG(state);
  EXPECT_EQ(WEXITSTATUS(state), 0) << "its output is above";
}

}  // namespace falchion::testing
