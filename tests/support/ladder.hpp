// tests/support/ladder.hpp: what the tests of the ladders share: sizes, memory, and what each ladder prints.
#pragma once

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/runtime.hpp"

namespace falchion::testing {

struct LadderSize {
  int b, s_q, s_k, h, d;
};
// The corner cases come first: no key, one query and one key, and more queries than keys (with a causal band these have
// rows that see nothing). Then come lengths around a tile, and ragged ones.
inline constexpr LadderSize kLadderSizes[] = {
    {1, 5, 0, 1, 64},    {1, 1, 1, 1, 128},   {2, 200, 77, 1, 64}, {1, 130, 30, 1, 128},  {2, 64, 64, 2, 64},
    {1, 65, 63, 3, 128}, {1, 63, 129, 2, 64}, {1, 1, 300, 2, 64},  {1, 130, 257, 2, 128}, {1, 140, 301, 1, 64}};

/// Memory on the side that a step runs on. On the CPU these are the tensors themselves, and on a GPU they are copies.
class OnDevice {
 public:
  explicit OnDevice(std::size_t bytes) { EXPECT_TRUE(cuda::allocate(std::max<std::size_t>(bytes, 16), &data_)); }
  ~OnDevice() { cuda::release(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

template <class Steps>
void check_texts(const Steps& steps) {
  for (const auto* step : steps) {
    EXPECT_GT(std::string(step->why).size(), 200u) << step->name;
    EXPECT_FALSE(std::string(step->title).empty()) << step->name;
  }
}

/// Checks what `falchion ladder ...` prints with --json: all steps, and that each of these results has passed. The
/// command is built beside this test.
inline void check_ladder_command(const std::string& arguments, std::size_t steps,
                                 const std::vector<std::string>& results) {
  const auto command = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "falchion";
  if (!std::filesystem::exists(command)) GTEST_SKIP() << "the command is not built here: " << command;
  FILE* pipe = popen((command.string() + " ladder " + arguments + " --runs 1 --json").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  const nlohmann::json result = nlohmann::json::parse(pipe, nullptr, false);
  EXPECT_EQ(pclose(pipe), 0);
  ASSERT_FALSE(result.is_discarded());
  ASSERT_EQ(result["steps"].size(), steps + 1);  // The list also has the library's own kernel.
  for (const auto& step : result["steps"]) {
    for (const std::string& result : results)
      if (step["not_built"] == "") { EXPECT_TRUE(step[result]["passed"].get<bool>()) << step["step"]; }
  }
}

}  // namespace falchion::testing
