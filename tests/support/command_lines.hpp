// tests/support/command_lines.hpp: runs the command `falchion` with what is typed and the files that it names, and
// checks how it exits and what it says.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "io/array.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace falchion::testing {

namespace fs = std::filesystem;

struct CommandResult {
  int code = -1;
  std::string out, error;
};

/// The path of the command, which is built beside the folder of this test.
inline fs::path command() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "falchion"; }

inline std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class T>
void write_array(const fs::path& path, io::Kind kind, const std::vector<std::int64_t>& shape,
                 const std::vector<T>& values) {
  io::Array array{path.stem(), kind, shape, std::as_bytes(std::span(values)), nullptr};
  const Status status = io::write_npy(path, array);
  ASSERT_TRUE(status) << status.why;
}

/// What `arguments` must print on stderr, as a regular expression. The exit code must be 2.
struct Refusal {
  const char *arguments, *says;
};

/// A folder of files: q.npy, k.npy, v.npy (b 1, s 8, h 2, d 4, f32) and lists of numbers, good and bad ones.
class CommandLines : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(command())) GTEST_SKIP() << "the command is not built here: " << command();
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / ("falchion_" + std::string(test->name()) + std::to_string(getpid()));
    fs::create_directories(folder_ / "folder");
    for (const char* name : {"q.npy", "k.npy", "v.npy"})
      write_array(folder_ / name, io::Kind::f32, {1, 8, 2, 4}, std::vector<float>(64, 0.5f));
    write_array(folder_ / "bias.npy", io::Kind::i8, {8, 8}, std::vector<std::int8_t>(64, -1));
    write_array(folder_ / "slopes.npy", io::Kind::f64, {2}, std::vector<double>{0.5, 1e300});
    write_array(folder_ / "square.npy", io::Kind::f32, {1, 2}, std::vector<float>{0.5f, 0.5f});
    write_array(folder_ / "fraction.npy", io::Kind::f64, {1}, std::vector<double>{2.7});
    write_array(folder_ / "nan.npy", io::Kind::f32, {1}, std::vector<float>{std::numeric_limits<float>::quiet_NaN()});
    write_array(folder_ / "wide.npy", io::Kind::i64, {1}, std::vector<std::int64_t>{4294967298});
    write_array(folder_ / "huge.npy", io::Kind::u64, {1}, std::vector<std::uint64_t>{18446744073709551615u});
    write_array(folder_ / "six.npy", io::Kind::i32, {1}, std::vector<std::int32_t>{6});
    std::ofstream(folder_ / "broken.npy") << "\x93NUMPY";
    std::ofstream(folder_ / "words.json") << "{\"rows\": [{\"section\": \"prefill\", \"name\": 3}]}";
    std::ofstream(folder_ / "cut.json") << "{\"rows\": [";
    std::ofstream(folder_ / "list.json") << "[1, 2]";
    fs::create_symlink("later.npy", folder_ / "link.npy");
    fs::create_hard_link(folder_ / "v.npy", folder_ / "hard.npy");
  }
  void TearDown() override {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }

  /// `before` stands in front of the command, such as "ulimit -f 1;". In both of them @ is the folder.
  CommandResult run(std::string arguments, const std::string& before = "") const {
    for (std::size_t at = 0; (at = arguments.find('@', at)) != std::string::npos;)
      arguments.replace(at, 1, folder_.string());
    const fs::path out = folder_ / "stdout", error = folder_ / "stderr";
    const bool redirected = arguments.find('>') != std::string::npos;
    const std::string call = "cd " + folder_.string() + "; " + before + " timeout 60 " + command().string() + " 2>" +
                             error.string() + " </dev/null " + arguments + (redirected ? "" : " >" + out.string());
    const int status = std::system(call.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, redirected ? "" : contents(out), contents(error)};
  }
  /// Runs each line of the table behind `prefix`.
  void expect_refusals(std::span<const Refusal> table, const std::string& prefix = "") const {
    for (const auto& [arguments, says] : table) {
      const CommandResult x = run(prefix + arguments);
      EXPECT_EQ(x.code, 2) << arguments << "\n" << x.error;
      EXPECT_TRUE(std::regex_search(x.error, std::regex(says))) << arguments << "\n  said: " << x.error;
      EXPECT_EQ(x.out, "") << arguments;
    }
  }

  fs::path folder_;
  const std::string tensors_ = "--q q.npy --k k.npy --v v.npy ";
};

}  // namespace falchion::testing
