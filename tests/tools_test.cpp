// tests/tools_test.cpp: tests the command `falchion` as its users meet it: what it prints, what it writes, and how it
// exits.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "falchion/falchion.hpp"

namespace {

namespace fs = std::filesystem;

struct Result {
  int code = -1;
  std::string text;  // The text is what came on stdout and stderr.
};

/// Returns the path of the command, which is built beside the folder of this test.
fs::path command() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "falchion"; }

Result run(const std::string& arguments) {
  Result result;
  FILE* pipe = popen((command().string() + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> piece{};
  for (std::size_t n = 0; (n = fread(piece.data(), 1, piece.size(), pipe)) > 0;) result.text.append(piece.data(), n);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Tools : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(command())) GTEST_SKIP() << "the command is not built here: " << command();
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::path(::testing::TempDir()) / (std::string("falchion_") + test->name() + "_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  const std::string sample_ = std::string(FALCHION_SOURCE_DIR) + "/examples/smollm2/smollm2_qkv.safetensors";
  const std::string layer_ = "--qkv " + sample_ + " --layer layer14 --causal";
  fs::path folder_;
};

TEST_F(Tools, InfoListsVersionLevelsAndVariants) {
  const Result x = run("info");
  EXPECT_EQ(x.code, 0);
  for (const char* part : {falchion::version(), "generic", "attention_forward", "GPUs"})
    EXPECT_TRUE(has(x.text, part)) << part;
  EXPECT_TRUE(has(run("info --json").text, "\"variants\": ["));
  for (const char* operation : {"attention_forward", "attention_backward", "linear_attention_forward",
                                "linear_attention_backward", "gemm", "norm"})  // the definition has all of them
    EXPECT_TRUE(std::regex_search(x.text, std::regex(std::string(operation) + " +ref +f32 f16 bf16"))) << operation;
}

TEST_F(Tools, BadUsageAndBadInputExitWithTwoAndSayWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "Subcommands"},
      {"frobnicate", "no subcommand \"frobnicate\""},
      {"run", "no tensors"},
      {"run --threads many", "many"},
      {"run --q /nowhere/q.npy --k k.npy --v v.npy", "/nowhere/q.npy"},
      {"explain --s-q 3 --s-k 5 --causal", "bottom-right"},
      {"explain --s 8 --causal --window 1,0", "--window"},
      {"explain --s 8 --window 5", "L,R"},
      {"explain --h-q 6 --h-k 4", "6"},
      {"bench --s 8 --level warp9", "warp9"},
      {"bench --op linaer --s 8",
       "--op: \"linaer\" is not one of attention, linear, linear-backward, attention-backward"},
      {"bench --op linear --s 8 --causal", "--causal has no effect here; it is an option of --op attention"},
      {"bench --op linear-backward --s 8 --lse", "--lse has no effect here"},
      {"bench --s 8 --decay head", "--decay has no effect here; it is an option of --op linear"},
      {"bench --op linear --s 8 --decay fast", "\"fast\" is not one of none, head, token"},
      {"bench --op linear --s-q 1 --s-k 8", "s_q = 1 is not s_k = 8"},
      {"bench --op linear --s 8 --h-q 3 --h-v 4", "h_v = 4 is not a multiple of h_qk = 3"},
      {"verify --match nothing-is-named-so", "no case"},
  };
  for (const auto& [arguments, why] : cases) {
    const Result x = run(arguments);
    EXPECT_EQ(x.code, 2) << arguments;
    EXPECT_TRUE(has(x.text, why)) << arguments << "\n" << x.text;
  }
}

TEST_F(Tools, ABrokenFileIsRefusedByName) {
  std::ofstream(file("broken.safetensors"), std::ios::binary) << std::string(8, '\xff');
  const Result x = run("run --qkv " + file("broken.safetensors"));
  EXPECT_EQ(x.code, 2);
  EXPECT_TRUE(has(x.text, "broken.safetensors")) << x.text;
}

TEST_F(Tools, ExplainAnswersForHopperWithNoGpu) {
  const Result x = run("explain --s 4096 --h 8 --d 128 --causal --target sm90");
  EXPECT_EQ(x.code, 0);
  EXPECT_TRUE(has(x.text, "sm90")) << x.text;
}

TEST_F(Tools, ExplainAsJsonIsAListOfTheLibrarysObjects) {
  const Result x = run("explain --s 64,128 --h 8 --d 128 --target sm90 --json");
  EXPECT_EQ(x.code, 0);
  EXPECT_TRUE(x.text.starts_with("[\n  {\n    \"falchion\": ")) << x.text;
  for (const char* part : {R"("s_q": 64)", R"("s_q": 128)", R"("backend": "sm90")", R"("shared_bytes": )"})
    EXPECT_TRUE(has(x.text, part)) << part << "\n" << x.text;
}

TEST_F(Tools, RunWritesOutputsAndHeadByHeadIsTheSame) {
  const Result whole = run("run --no-limit " + layer_ + " --out " + file("whole.npy") + " --lse " + file("lse.npy"));
  ASSERT_EQ(whole.code, 0) << whole.text;
  EXPECT_TRUE(has(whole.text, "attention_forward")) << whole.text;
  const Result sliced = run("run --no-limit --progress " + layer_ + " --out " + file("sliced.npy"));
  ASSERT_EQ(sliced.code, 0) << sliced.text;
  EXPECT_EQ(contents(file("whole.npy")), contents(file("sliced.npy")));
  EXPECT_GT(fs::file_size(file("whole.npy")), 509u * 9 * 64 * 2);
  EXPECT_GT(fs::file_size(file("lse.npy")), 509u * 9 * 4);
}

TEST_F(Tools, RunFeedsItsOwnOutputsBack) {
  ASSERT_EQ(run("run --no-limit " + layer_ + " --as f32 --out " + file("o.npy")).code, 0);
  const std::string o = file("o.npy");
  const Result x =
      run("run --no-limit --q " + o + " --k " + o + " --v " + o + " --window 16,0 --softcap 20 --alibi auto " +
          "--dropout 0.1,7 --used-k 400 --align bottom-right --out " + file("all.safetensors"));
  EXPECT_EQ(x.code, 0) << x.text;
  EXPECT_TRUE(has(contents(file("all.safetensors")), "\"lse\""));
}

/// The gradients are the same whether o and lse are given or made by a forward pass, and whether they go into one file
/// or several.
TEST_F(Tools, RunWritesGradients) {
  const std::string f32 = layer_ + " bottom-right --as f32 --used-k 70 --used-q 60 --no-limit ";
  const Result forward = run("run " + f32 + "--out " + file("o.npy") + " --lse " + file("lse.npy"));
  ASSERT_EQ(forward.code, 0) << forward.text;
  const std::string backward = "run --op attention-backward " + f32 + "--grad-o " + file("o.npy");
  const Result given = run(backward + " --o " + file("o.npy") + " --lse " + file("lse.npy") + " --grad-q " +
                           file("q.npy") + " --grad-k " + file("k.npy") + " --grad-v " + file("v.npy"));
  ASSERT_EQ(given.code, 0) << given.text;
  EXPECT_TRUE(has(given.text, "attention_backward") && has(given.text, "causal used-q used-k backward")) << given.text;
  const Result made = run(backward + " --grad-q " + file("q2.npy"));
  ASSERT_EQ(made.code, 0) << made.text;
  EXPECT_TRUE(has(made.text, "frozen-kv")) << made.text;
  EXPECT_EQ(contents(file("q.npy")), contents(file("q2.npy")));
  const Result whole = run(backward + " --json --out " + file("all.safetensors"));
  ASSERT_EQ(whole.code, 0) << whole.text;
  EXPECT_TRUE(has(whole.text, "\"pass\": \"backward\"")) << whole.text;
  const std::string archive = contents(file("all.safetensors"));
  for (const char* name : {"q", "k", "v"}) {
    EXPECT_TRUE(has(archive, std::string("\"grad_") + name + "\"")) << name;
    const std::string alone = contents(file(std::string(name) + ".npy"));
    EXPECT_TRUE(has(archive, alone.substr(alone.size() - std::size_t{4} * 509 * 64))) << name;
  }
}

TEST_F(Tools, VerifyKnowsTheBackwardPass) {
  const Result cases = run("verify --op attention,attention-backward --match key --all --types bf16 --backend ref");
  EXPECT_EQ(cases.code, 0) << cases.text;
  EXPECT_TRUE(has(cases.text, "b2 h3 s17x1 d64 backward")) << cases.text;
  const Result json = run("verify --op attention-backward --json --types f32 --match slopes --backend ref");
  EXPECT_EQ(json.code, 0) << json.text;
  for (const char* part :
       {"\"grad_bias\": {", "\"grad_alibi\": {", "\"failures\": 0", "\"op\": \"attention-backward\""})
    EXPECT_TRUE(has(json.text, part)) << part << "\n" << json.text;
  const Result storm = run("verify --op attention-backward --random 20 --seed 3 --workers 1");
  EXPECT_EQ(storm.code, 0) << storm.text;
  EXPECT_TRUE(has(storm.text, "20 problems")) << storm.text;
  const Result all = run("verify --random 12 --seed 3 --workers 1 --backend cpu");
  EXPECT_EQ(all.code, 0) << "what the CPU has no kernel of is left out where no operation is named\n" << all.text;
  const Result one = run("verify --problem 'op=attention-backward dtype=f16 s_q=5 s_k=7 d_qk=8 d_v=3 any_order=1'");
  EXPECT_EQ(one.code, 0) << one.text;
  EXPECT_TRUE(has(one.text, "ok op=attention-backward")) << one.text;
}

TEST_F(Tools, VerifyPassesOnCasesAndOnGivenTensors) {
  const Result cases = run("verify --match empty --all");
  EXPECT_EQ(cases.code, 0) << cases.text;
  EXPECT_TRUE(has(cases.text, "ok"));
  const Result json = run("verify --json --types bf16 --match decode");
  EXPECT_EQ(json.code, 0) << json.text;
  EXPECT_TRUE(has(json.text, "\"failures\": 0"));
}

TEST_F(Tools, SlowVerifyPassesOnTheQuickGrid) {
  const Result x = run("verify");
  EXPECT_EQ(x.code, 0) << x.text;
}

TEST_F(Tools, BenchWritesGoogleBenchmarksSchema) {
  ASSERT_EQ(setenv("FALCHION_COMMIT", "abc1234", 1), 0);
  const Result x = run("bench --s 64 --d 32 --h 2 --dtype f32 --runs 2 --json " + file("bench.json"));
  ASSERT_EQ(x.code, 0) << x.text;
  EXPECT_TRUE(has(x.text, "FLOP/s"));
  const std::string json = contents(file("bench.json"));
  if (std::system("python3 --version >/dev/null 2>&1") == 0) {
    const std::string compare = std::string("python3 ") + FALCHION_SOURCE_DIR + "/bench/compare.py " +
                                file("bench.json") + " " + file("bench.json") + " >" + file("delta");
    EXPECT_EQ(std::system(compare.c_str()), 0);
    EXPECT_TRUE(has(contents(file("delta")), "1 in common")) << contents(file("delta"));
  }
  for (const char* part :
       {"\"context\"", "\"benchmarks\"", "\"run_type\": \"aggregate\"", "\"aggregate_name\": \"median\"",
        "\"time_unit\": \"ms\"", "\"share_of_limit\"", "\"compiler\"", "\n \"commit\": \"abc1234\"",
        "\n \"date\": \"20", "\n \"device\": \"", "\n \"driver\": \""})
    EXPECT_TRUE(has(json, part)) << part;
  EXPECT_FALSE(has(json, "\"device\": \"\"") || has(json, "\"driver\": \"\"")) << json;
  EXPECT_FALSE(has(json, "\"iteration\"")) << "single runs are not kept";
  ASSERT_EQ(unsetenv("FALCHION_COMMIT"), 0);
}

/// Returns the number behind the first "key": that follows `after`.
double number_behind(const std::string& json, const std::string& after, const std::string& key) {
  const std::size_t from = json.find(after), at = json.find("\"" + key + "\": ", from);
  return from == std::string::npos || at == std::string::npos ? -1 : std::atof(json.c_str() + at + key.size() + 4);
}

TEST_F(Tools, BenchHoldsLinearAttentionAgainstTheSlowerOfBothRoofs) {
  const std::string sizes = "--s 256 --d 64 --h 2 --dtype f32 --threads 1 --runs 2 --json " + file("bench.json");
  const Result x = run("bench --op attention,linear,linear-backward --causal " + sizes);
  ASSERT_EQ(x.code, 0) << x.text;
  for (const char* part :
       {"b1 h2 s256 d64 causal", "b1 h2 s256 d64 linear", "b1 h2 s256 d64 linear backward", "DRAM read"})
    EXPECT_TRUE(has(x.text, part)) << part << "\n" << x.text;
  const std::string json = contents(file("bench.json"));
  const double dram = number_behind(json, "\"context\"", "measured_dram_bytes_per_second");
  EXPECT_GT(dram, 0);
  // These are worked out by hand for one token and head with d 64 in f32 and chunks of 64. Forward does C (E + M)
  // operations, and 4 E M for the three chunks of four that meet a state, on 4 tensors. Backward does C (3 E + 2 M) and
  // 10 E M on 7 tensors.
  const std::pair<const char*, double> passes[] = {{"forward", (64. * 128 + 0.75 * 4 * 64 * 64) / (4 * 256)},
                                                   {"backward", (64. * 320 + 0.75 * 10 * 64 * 64) / (7 * 256)}};
  for (const auto& [pass, flop_a_byte] : passes) {
    const std::string row = std::string("\"linear_attention_") + pass + "/cpu/";
    const std::size_t at = json.find("_median\"", json.find(row));
    ASSERT_NE(json.find(row), std::string::npos) << pass;
    // All of the row: from the brace before its name to the one that closes it, which stands two spaces in.
    const std::size_t from = json.rfind("\n  {", at);
    const std::string text = json.substr(from, json.find("\n  }", at) - from);
    const double flops = number_behind(text, "", "flops"), bytes = number_behind(text, "", "bytes_per_second");
    EXPECT_NEAR(flops / bytes, flop_a_byte, 1e-9) << pass;
    EXPECT_EQ(number_behind(text, "", "chunk"), 64);
    const double limit = number_behind(text, "", "limit"), share = number_behind(text, "", "share_of_limit");
    const bool by_bytes = has(text, "\"limit_name\": \"DRAM read\"");
    EXPECT_NEAR(share, (by_bytes ? bytes : flops) / limit, 1e-9) << pass;
    EXPECT_TRUE(by_bytes ? limit == dram : limit / flop_a_byte <= dram) << pass << ": the other roof is slower";
  }
  const Result points = run("roofline --device h200 --json --points " + file("bench.json") + " --match linear");
  ASSERT_EQ(points.code, 0) << points.text;
  EXPECT_TRUE(has(points.text, "falchion f32 d 64 linear backward")) << points.text;
}

TEST_F(Tools, BenchCountsTheBackwardPass) {
  const std::string sizes = "--b 2 --s 48 --d 16 --d-v 8 --h-q 4 --h-k 2 --dtype f32 --runs 1 --causal --backend ref ";
  const Result x =
      run("bench --op attention,attention-backward " + sizes + "--any-order --grads f32 --json " + file("bench.json"));
  ASSERT_EQ(x.code, 0) << x.text;
  EXPECT_TRUE(has(x.text, "b2 h4/2 s48 d16/8 causal backward any-order grads-f32")) << x.text;
  const std::string json = contents(file("bench.json")), row = "\"attention_backward/ref/any/f32/";
  ASSERT_TRUE(has(json, row)) << json;
  const double ms = number_behind(json, row, "real_time");
  // Half of the scores; 2 (3 d_qk + 2 d_v) flop for each.
  EXPECT_NEAR(number_behind(json, row, "flops") * ms * 1e-3, 2. * (3 * 16 + 2 * 8) * 2 * 4 * 48 * 48 / 2, 1);
  // q, o, grad_o and grad_q of 2 x 48 x 4 rows, k, v and their gradients of half as many, and lse.
  EXPECT_NEAR(number_behind(json, row, "bytes_per_second") * ms * 1e-3, 384 * 4. * (32 + 16 + 24 + 1), 1);
  for (const char* more : {"--grads accumulate", "--frozen kv --grad-lse", "--frozen q --dropout 0.1",
                           "--zero-unused --softcap 5 --alibi auto --grad-alibi --layout bhsd"}) {
    const Result with = run("bench --op attention-backward " + sizes + more);
    EXPECT_EQ(with.code, 0) << more << "\n" << with.text;
  }
}

TEST_F(Tools, BenchMeasuresEveryFeatureOfLinearAttention) {
  const std::string passes = "bench --runs 1 --op linear,linear-backward ";
  const std::pair<const char*, const char*> cases[] = {
      {"--b 2 --h-q 1 --h-v 3 --s 1,65 --d 5 --d-v 7 --dtype f16 --layout bhsd --decay token --elu --normalise",
       "b2 h1/3 s65 d5/7 linear backward elu normalised decay token"},
      {"--s 8 --d 8 --dtype f32 --decay head --scale 2 --cold", "b1 h8 s8 d8 linear scale 2 decay head"},
      {"--s 8 --d 8 --backend ref", "b1 h8 s8 d8 linear backward  bf16  ref"},
  };
  for (const auto& [arguments, part] : cases) {
    const Result x = run(passes + arguments);
    EXPECT_EQ(x.code, 0) << arguments;
    EXPECT_TRUE(has(x.text, part)) << arguments << "\n" << x.text;
  }
}

TEST_F(Tools, MapDrawsAPictureOfModestSize) {
  const Result x = run("map " + layer_ + " --head 3 --title 'a < b' --out " + file("map.svg"));
  ASSERT_EQ(x.code, 0) << x.text;
  const std::string svg = contents(file("map.svg"));
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_TRUE(has(svg, "a &lt; b"));
  EXPECT_TRUE(has(svg, "</svg>"));
  EXPECT_LT(svg.size(), 150'000u);
  EXPECT_EQ(run("map " + layer_ + " --head 99 --out " + file("map.svg")).code, 2);
}

/// XML has no control characters, and no program would show a picture with one in it.
TEST_F(Tools, ATitleWithControlCharactersIsStillXml) {
  const Result map = run("map " + layer_ + " --title \"$(printf 'a\\001b')\" --out " + file("map.svg"));
  ASSERT_EQ(map.code, 0) << map.text;
  EXPECT_TRUE(has(contents(file("map.svg")), "ab"));
  EXPECT_FALSE(has(contents(file("map.svg")), "\001"));
}

TEST_F(Tools, SlowDemoPassesAndLeavesAPicture) {
  const Result x = run("demo " + sample_ + " --runs 1 --svg " + file("demo.svg"));
  EXPECT_EQ(x.code, 0) << x.text;
  EXPECT_TRUE(has(x.text, "Everything passed")) << x.text;
  EXPECT_TRUE(fs::exists(file("demo.svg")));
}

TEST_F(Tools, CompletionKnowsEveryShellAndParses) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Result x = run(std::string("completion ") + shell);
    EXPECT_EQ(x.code, 0);
    EXPECT_TRUE(has(x.text, "verify")) << shell;
    EXPECT_TRUE(has(x.text, shell == std::string("fish") ? "softcap" : "--softcap")) << shell;
  }
  EXPECT_EQ(run("completion tcsh").code, 2);
  const std::string bash = run("completion bash").text;
  std::ofstream(file("completion"))
      << bash << "COMP_WORDS=(falchion run --axe) COMP_CWORD=2; _falchion; echo \"got ${COMPREPLY[*]}\"\n"
      << "COMP_WORDS=(falchion run --axes b) COMP_CWORD=3; _falchion; echo \"got ${COMPREPLY[*]}\"\n";
  FILE* pipe = popen(("bash " + file("completion") + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 512> out{};
  const std::size_t n = fread(out.data(), 1, out.size() - 1, pipe);
  pclose(pipe);
  EXPECT_EQ(std::string(out.data(), n), "got --axes\ngot bshd bhsd\n");
}

}  // namespace
