// tests/command_interrupt_test.cpp: Ctrl-C in long work. The results so far are printed, the exit code is 130, and a
// second signal ends the process at once. Also: doubtful numbers are marked.
#include <regex>
#include <string>

#include "command/table.hpp"
#include "support/command_lines.hpp"

namespace falchion::testing {
namespace {

/// Sends SIGINT to the command a while after it began; `times` of them, 0.3 s apart.
std::string interrupting(double seconds, int times = 1) {
  return "interrupt() { sleep " + std::to_string(seconds) + "; for ((i = 0; i < " + std::to_string(times) +
         "; i++)); do kill -INT $1 2>/dev/null; sleep 0.3; done; }; interrupt $$ & exec";
}

class Interrupted : public CommandLines {
 protected:
  /// As run(), but in bash, whose background job sends the signals to the process that becomes the command.
  CommandResult interrupt(const std::string& arguments, double seconds, int times = 1) const {
    const std::string script = (folder_ / "script").string();
    std::ofstream(script) << "cd " << folder_.string() << "\n"
                          << interrupting(seconds, times) << " " << command().string() << " " << arguments << " >"
                          << (folder_ / "stdout").string() << " 2>" << (folder_ / "stderr").string() << "\n";
    const int status = std::system(("timeout 100 bash " + script).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(folder_ / "stdout"),
            contents(folder_ / "stderr")};
  }
};

TEST_F(Interrupted, BenchTellsWhatItMeasured) {
  const std::string endless = "bench --op norm --rows 1 --d 64 --dtype f32 --threads 1 --kind layer --warm --runs ";
  const CommandResult table = interrupt(endless + "100000 --backend ref --rows 2,4096", 1.5);
  EXPECT_EQ(table.code, 130) << table.error;
  EXPECT_NE(table.out.find("rows2 d64"), std::string::npos) << table.out << table.error;
  EXPECT_NE(table.error.find("interrupted: "), std::string::npos) << table.error;
  const CommandResult json = interrupt(endless + "100000 --rows 4096 --d 4096 --json file.json", 2);
  EXPECT_EQ(json.code, 130) << json.error;
  const std::string file = contents(folder_ / "file.json");
  EXPECT_NE(file.find("\"interrupted\": true"), std::string::npos) << file << json.error;
  EXPECT_NE(file.find("\"real_time\": "), std::string::npos) << file;
}

TEST_F(Interrupted, VerifyTellsWhatItVerified) {
  const CommandResult storm = interrupt("verify --random 100000000 --seed 5 --workers 1 --backend cpu", 1.5);
  EXPECT_EQ(storm.code, 130) << storm.error;
  EXPECT_TRUE(std::regex_search(storm.out, std::regex("interrupted; seed 5: [1-9][0-9]* problems"))) << storm.out;
  const CommandResult json = interrupt("verify --random 100000000 --workers 1 --backend cpu --json", 1.5);
  EXPECT_EQ(json.code, 130) << json.error;
  EXPECT_NE(json.out.find("\"interrupted\": true"), std::string::npos) << json.out;
  const CommandResult grid = interrupt("verify --grid full --all", 3);
  EXPECT_EQ(grid.code, 130) << grid.error;
  EXPECT_NE(grid.out.find(" ok"), std::string::npos) << grid.out << grid.error;
}

TEST_F(Interrupted, ASecondSignalEndsTheRunAtHand) {
  const CommandResult x = interrupt("bench --backend ref --s 8192 --h 16 --dtype f32 --runs 1", 1, 2);
  EXPECT_EQ(x.code, 130) << "as a shell gives a process that SIGINT ended";
  EXPECT_EQ(x.out, "");
}

TEST(Marks, SharesAbove100PercentAndSpreadsAbove10AreMarked) {
  tools::Marks none;
  EXPECT_EQ(none.share(1), "100.0 %");
  EXPECT_EQ(none.spread(0.1), "10.0 %");
  EXPECT_EQ(none.text(), "");
  tools::Marks both;
  EXPECT_EQ(both.share(1.04), "104.0 % !");
  EXPECT_EQ(both.spread(0.14), "14.0 % !");
  EXPECT_TRUE(std::regex_search(both.text(), std::regex("! a share above 100 %.*\n! a spread above 10 %")));
}

TEST_F(CommandLines, MarksStandInTables) {
  const auto points = [&](const char* ms) {
    std::ofstream(folder_ / "points.json")
        << "{\"rows\": [{\"section\": \"prefill\", \"name\": \"bf16/d:128/s:4096/full\", "
           "\"ms\": {\"falchion\": "
        << ms << "}}]}";
    return run("roofline --device h200 --points points.json").out;
  };
  EXPECT_NE(points("1e-9").find(" % !"), std::string::npos) << points("1e-9");
  EXPECT_NE(points("1e-9").find("! a share above 100 %"), std::string::npos);
  EXPECT_EQ(points("1e9").find('!'), std::string::npos) << points("1e9");
}

}  // namespace
}  // namespace falchion::testing
