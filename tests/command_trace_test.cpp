// tests/command_trace_test.cpp: FALCHION_TRACE and FALCHION_TRACE_DUMP as users set them: the lines, that each is a
// command that runs, NVTX ranges for a tool that listens, and the dump that `falchion run --dump` reads.
#include <regex>
#include <string>

#include "support/command_lines.hpp"

namespace falchion::testing {
namespace {

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) out.push_back((*it)[1]);
  return out;
}

TEST_F(CommandLines, TheTraceHasALineForEachPlanAndEachRun) {
  const std::string trace =
      run("run --no-limit " + tensors_ + "--causal bottom-right --used-k 6 --repeat 2", "FALCHION_TRACE=1").error;
  const std::string line = "attention_forward cpu [^;]+; [0-9.e+-]+ us; falchion verify --problem '([^'\n]+)'\n";
  EXPECT_EQ(matches(trace, "falchion: plan " + line).size(), 1u) << trace;
  const auto runs = matches(trace, "falchion: run " + line);
  ASSERT_EQ(runs.size(), 3u) << "one to warm up, and two\n" << trace;
  for (const std::string& problem : matches(trace, "--problem '([^'\n]+)'")) {
    const CommandResult again = run("verify --problem '" + problem + "'");
    EXPECT_EQ(again.code, 0) << problem << "\n" << again.out << again.error;
  }
  EXPECT_NE(runs[0].find("uses_k=1 used_k=6"), std::string::npos) << runs[0];
  EXPECT_NE(runs[0].find("right=0 align=bottom_right"), std::string::npos) << runs[0];
  for (const char* off : {"", "FALCHION_TRACE=0", "FALCHION_TRACE=", "FALCHION_TRACE=nvtx"})
    EXPECT_EQ(run("run --no-limit " + tensors_, off).error, "") << off;
}

TEST_F(CommandLines, ADumpIsRunAgain) {
  const struct {
    const char *first, *result, *again;
  } table[] = {
      {"--q q.npy --k k.npy --v v.npy --causal bottom-right --bias slope_bias.npy --alibi auto --dropout 0.1,7 "
       "--used-k 6",
       "o", "o"},
      {"--q q.npy --k k.npy --v v.npy --axes bhsd --as bf16", "o", "o"},
      {"--op gemm --a slope_bias.npy --b slope_bias.npy --activation relu --c slope_bias.npy", "d", "d"},
      {"--op norm --x q.npy --residual k.npy", "y", "y"},
      {"--op attention-backward --q q.npy --k k.npy --v v.npy --grad-o q.npy", "grad_q", "grad_q"},
  };
  std::vector<float> bias;
  for (int i = 0; i < 64; ++i) bias.push_back(static_cast<float>(i % 7) / 4);
  write_array(folder_ / "slope_bias.npy", io::Kind::f32, {8, 8}, bias);
  for (const auto& [first, result, again] : table) {
    const CommandResult one =
        run(std::string("run --no-limit ") + first + " --out one.safetensors", "FALCHION_TRACE_DUMP=dump.safetensors");
    ASSERT_EQ(one.code, 0) << first << one.error;
    EXPECT_EQ(one.error, "") << "no line without FALCHION_TRACE";
    const CommandResult two = run("run --no-limit --dump dump.safetensors --out two.safetensors --json");
    ASSERT_EQ(two.code, 0) << first << two.error;
    io::Archive a, b;
    ASSERT_TRUE(io::read_safetensors(folder_ / "one.safetensors", &a));
    ASSERT_TRUE(io::read_safetensors(folder_ / "two.safetensors", &b));
    ASSERT_TRUE(a.find(result) != nullptr && b.find(again) != nullptr) << first;
    EXPECT_EQ(a.find(result)->bytes.size(), b.find(again)->bytes.size());
    if (std::string(first).find("bhsd") != std::string::npos) continue;  // the same numbers in another order
    EXPECT_TRUE(std::equal(a.find(result)->bytes.begin(), a.find(result)->bytes.end(), b.find(again)->bytes.begin()))
        << first;
  }
  const Refusal refusals[] = {
      {"run --dump one.safetensors",
       "--dump: one.safetensors: it has no problem, so FALCHION_TRACE_DUMP did not write"},
      {"run --dump missing.safetensors", "missing.safetensors: cannot be opened"},
      {"run --dump dump.safetensors --out dump.safetensors",
       "--dump dump.safetensors and --out dump.safetensors are one"},
      {"run --dump dump.safetensors --out x.npy", "--out: x.npy: the outputs of a dump go into one .safetensors file"},
      {"run --dump dump.safetensors --q q.npy", "--q: --dump says all of that itself"},
      {"run --dump dump.safetensors --op gemm", "--op: --dump says all of that itself"},
      {"run --dump dump.safetensors --scale 2", "--scale: --dump says all of that itself"},
  };
  expect_refusals(refusals);
  for (const char* op : {"linear", "linear-backward"}) {
    const std::string problem = std::string("verify --problem 'op=") + op +
                                " dtype=f32 b=2 s=70 h_qk=1 h_v=2 d_qk=16 d_v=8 decay=head initial_state=1'";
    ASSERT_EQ(run(problem, "FALCHION_TRACE_DUMP=linear.safetensors").code, 0);
    const CommandResult x = run("run --no-limit --dump linear.safetensors --out linear_out.safetensors");
    EXPECT_EQ(x.code, 0) << x.error;
    EXPECT_NE(x.out.find("linear_attention_"), std::string::npos) << x.out;
  }
}

TEST_F(CommandLines, NvtxRangesReachATool) {
  const fs::path listener = command().parent_path() / "tests" / "libnvtx_listener.so";
  if (!fs::exists(listener)) GTEST_SKIP() << "this build has no nvtx3/nvToolsExt.h";
  const std::string listening = "NVTX_INJECTION64_PATH=" + listener.string();
  const std::string heard = run("run --no-limit " + tensors_, listening + " FALCHION_TRACE=nvtx").error;
  EXPECT_TRUE(std::regex_search(heard, std::regex("nvtx push falchion plan\nnvtx pop\n"
                                                  "nvtx push attention_forward cpu [^\n]*\nnvtx pop\n")))
      << heard;
  EXPECT_EQ(run("run --no-limit " + tensors_, listening).error, "");
}

}  // namespace
}  // namespace falchion::testing
