// tests/command_test.cpp: bad command lines and bad files, as a table: what is typed, how the command exits, what it
// says on stderr. A refusal names the option or the file, the value and the limit; nothing bad exits with 0.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "io/array.hpp"
#include "io/npy.hpp"

namespace falchion::testing {
namespace {

namespace fs = std::filesystem;

struct Result {
  int code = -1;
  std::string out, error;
};

/// The command is built beside the folder of this test.
fs::path command() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "falchion"; }

std::string contents(const fs::path& path) {
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

  /// `before` stands in front of the command, as "ulimit -f 1;". In both @ is the folder.
  Result run(std::string arguments, const std::string& before = "") const {
    for (std::size_t at = 0; (at = arguments.find('@', at)) != std::string::npos;)
      arguments.replace(at, 1, folder_.string());
    const fs::path out = folder_ / "stdout", error = folder_ / "stderr";
    const bool redirected = arguments.find('>') != std::string::npos;
    const std::string call = "cd " + folder_.string() + "; " + before + " timeout 60 " + command().string() + " 2>" +
                             error.string() + " </dev/null " + arguments + (redirected ? "" : " >" + out.string());
    const int status = std::system(call.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, redirected ? "" : contents(out), contents(error)};
  }
  fs::path folder_;
  const std::string tensors_ = "--q q.npy --k k.npy --v v.npy ";
};

/// What `arguments` must say on stderr, as a regular expression; the exit code is 2.
struct Refusal {
  const char *arguments, *says;
};
#define EXPECT_REFUSALS(table, prefix)                                                                 \
  for (const auto& [arguments, says] : table) {                                                        \
    const Result x = run(std::string(prefix) + arguments);                                             \
    EXPECT_EQ(x.code, 2) << arguments << "\n" << x.error;                                              \
    EXPECT_TRUE(std::regex_search(x.error, std::regex(says))) << arguments << "\n  said: " << x.error; \
    EXPECT_EQ(x.out, "") << arguments;                                                                 \
  }

TEST_F(CommandLines, LengthsAreNeverCutToFit) {
  const Refusal table[] = {
      {"--used-k 4294967298", R"(--used-k: \[0\] = 4294967298 is not between 0 and 2147483647)"},
      {"--used-q -1", R"(--used-q: \[0\] = -1 is not between 0 and 2147483647)"},
      {"--cu-seqlens-q 0,4294967302 --cu-seqlens-k 0,8", R"(--cu-seqlens-q: \[1\] = 4294967302 is not between)"},
      {"--cu-seqlens-q 0,8 --cu-seqlens-k 0,99999999999999999999",
       R"(--cu-seqlens-k: "99999999999999999999" in "0,99999999999999999999" is not between -9223372036854775808 and)"},
      {"--used-k 2.7", R"(--used-k: "2.7" is not a whole number)"},
      {"--used-k six", R"(--used-k: "six" is not a whole number)"},
      {"--used-k fraction.npy", R"(fraction.npy: \[0\] = 2.7 is not a whole number)"},
      {"--used-k nan.npy", R"(nan.npy: \[0\] = nan is not a whole number)"},
      {"--used-k huge.npy", R"(huge.npy: \[0\] = 18446744073709551615 is not a whole number)"},
      {"--used-k wide.npy", R"(--used-k: \[0\] = 4294967298 is not between)"},
      {"--used-k square.npy", R"(square.npy: 2 axes; a list of numbers has one)"},
      {"--used-k 9", R"(used_k\[0\] = 9)"},
      {"--used-k 1,2", R"(--used-k: 2 numbers, the problem needs 1)"},
      {"--alibi slopes.npy", R"(slopes.npy: \[1\] = 1e\+300 is not a number that f32 holds)"},
      {"--alibi six.npy", R"(--alibi: 1 slopes, there are 2 query heads)"},
      {"--bias bias.npy", "bias: int8 is no type of the engine"},
  };
  EXPECT_REFUSALS(table, "run --no-limit " + tensors_);
  const Result six = run("run --no-limit " + tensors_ + "--used-k six.npy --out six_o.npy");
  const Result list = run("run --no-limit " + tensors_ + "--used-k 6 --out list_o.npy");
  ASSERT_EQ(six.code + list.code, 0) << six.error << list.error;
  EXPECT_EQ(contents(folder_ / "six_o.npy"), contents(folder_ / "list_o.npy"));
}

TEST_F(CommandLines, AnEmptyValueIsNoValue) {
  const Refusal run_table[] = {{"--cu-seqlens-q '' --cu-seqlens-k ''", "--cu-seqlens-q: the value is empty"},
                               {"--cu-seqlens-q=", "--cu-seqlens-q"},
                               {"--used-k ''", "--used-k: the value is empty"},
                               {"--out ''", "--out: the value is empty"},
                               {"--bias ''", "--bias: the value is empty"},
                               {"--alibi ''", "--alibi: the value is empty"},
                               {"--threads ''", "--threads: \"\" is not a whole number"},
                               {"--scale ''", "--scale: \"\" is not a number"},
                               {"--used-k 1,,2", "--used-k: \"\" in \"1,,2\" is not a whole number"}};
  EXPECT_REFUSALS(run_table, "run --no-limit " + tensors_);
  const Refusal table[] = {{"explain --s ''", "--s: an empty value in \"\""},
                           {"explain --s 1,,2", "--s: an empty value in \"1,,2\""},
                           {"explain --dtype bf16,", "--dtype: an empty value in \"bf16,\""},
                           {"demo ''", "sample: the value is empty"},
                           {"roofline --device ''", "--device: an empty value"},
                           {"roofline --out ''", "-o,--out: the value is empty"},
                           {"map --title ''", "--title: the value is empty"}};
  EXPECT_REFUSALS(table, "");
}

TEST_F(CommandLines, NumbersAreReadWhole) {
  const Refusal table[] = {
      {"explain --s 2.7", R"(--s: "2.7" is not a whole number)"},
      {"explain --s 8x", R"(--s: "8x" is not a whole number)"},
      {"explain --s 1e3", R"(--s: "1e3" is not a whole number)"},
      {"explain --s 99999999999999999999", R"(--s: "99999999999999999999" is not between)"},
      {"explain --s 9223372036854775807", R"(s_q = 9223372036854775807 is over the limit)"},
      {"explain --b -1", "b = -1"},
      {"explain --h-k 8,x", R"(--h-k,--h-v: "x" in "8,x" is not a whole number)"},
      {"explain --s 8 --scale 1e400", R"(--scale: "1e400" is beyond what a 32-bit float holds)"},
      {"explain --s 8 --scale nan", "scale = nan"},
      {"explain --s 8 --softcap inf", "softcap = inf"},
      {"explain --s 8 --softcap x", R"(--softcap: "x" is not a number)"},
      {"explain --s 8 --window 1,2,3", "--window \"1,2,3\" is not L,R"},
      {"explain --s 8 --window 1.5,0", R"(--window: "1.5" in "1.5,0" is not a whole number)"},
      {"explain --s 8 --dropout 0.1,-1", R"(--dropout: "-1" in "0.1,-1" is not)"},
      {"explain --s 8 --dropout 2", "dropout.p = 2"},
      {"explain --s 8 --threads 5000", "--threads: 5000 is not between 0 and 4096"},
      {"explain --s 8 --threads -1", "--threads: -1 is not between 0 and 4096"},
      {"bench --s 8 --runs 0", "--runs: 0 is not between 1 and 100000"},
      {"bench --s 8 --runs 4294967297", "--runs: 4294967297 is not between"},
      {"ladder attention --cpu --s 4294967298", "--s: 4294967298 is not between 0 and 1048576"},
      {"ladder linear --cpu --d 12", "12"},
      {"roofline --tflops nan --tbps 1", "--tflops: nan is not a rate above 0"},
      {"roofline --m 0 --mode gemm", "--m: 0 is not between 1 and 4294967296"},
      {"layout banks sQ --tile 4294967312x16", "--tile"},
      {"layout table 8 --elem 64000000000b", "64000000000b"},
  };
  EXPECT_REFUSALS(table, "");
}

TEST_F(CommandLines, WhatWouldBeIgnoredIsRefused) {
  const Refusal table[] = {
      {"bench --s 8 --alibi missing.npy", "--alibi: \"missing.npy\" is not read here"},
      {"explain --s 8 --alibi missing.npy", "--alibi: \"missing.npy\" is not read here"},
      {"explain --s 8 --align top-left", "--align: there is no --window"},
      {"explain --s 8 --causal --align top-left", "--align: there is no --window"},
      {"explain --s 8 --s-q 4 --s-k 4", "--s: --s-q and --s-k say all"},
      {"explain --h 8 --h-q 4 --h-k 4", "--h: --h-q and --h-k say all"},
      {"explain --s 8 --backend ref --level generic",
       "--level: it is of the CPU, and --backend ref does not run there"},
      {"bench --s 8 --backend sm80 --threads 2", "--threads: it is of the CPU, and --backend sm80 does not"},
      {"bench --s 8 --backend sm80 --level all", "--level: it is of the CPU"},
      {"verify --backend sm80 --level generic", "--level: it is of the CPU"},
      {"verify --softcap 3", "--softcap: the problems of the grid have features of their own"},
      {"verify --axes bhsd", "--axes: there are no tensors that this belongs to"},
      {"verify --used-k 3", "--used-k: there are no tensors"},
      {"verify --q q.npy --k k.npy --v v.npy --grid full", "--grid: it chooses among problems of our own"},
      {"verify --q q.npy --k k.npy --v v.npy --seed 3", "--seed: it chooses among"},
      {"run --q q.npy --k k.npy --v v.npy --layer x", "--layer: it names tensors of --qkv"},
      {"run --q q.npy --k k.npy --v v.npy --progress --repeat 3", "--progress: it times one run"},
      {"map --q q.npy --k k.npy --v v.npy --dropout 0.1", "--dropout: a picture shows the probabilities before it"},
      {"roofline --device h200 --threads 2", "--threads: only --device cpu is measured"},
      {"roofline --match burst", "--match: there are no --points"},
      {"roofline --title x", "--title: only a picture"},
      {"roofline --json --format svg", "--format: --json is --format json"},
      {"layout print 8 --kind zipped", "--kind: layout print has no use for it; it belongs to divide product"},
      {"layout coalesce 8 --tile 8x8", "--tile: layout coalesce has no use for it; it belongs to mma banks"},
      {"layout copy --thread 3", "--thread: there is no --on"},
      {"layout banks sQ --threads 32 --at 0,0", "--at: --threads says where each thread reads"},
      {"ladder attention --cpu --d-v 64", "--d-v are of ladder linear"},
      {"ladder linear --cpu --causal", "--causal and --s-k are of ladder attention"},
      {"ladder attention --cpu --gpu", "--cpu excludes --gpu"},
  };
  EXPECT_REFUSALS(table, "");
  EXPECT_NE(
      run("demo --head 99 --runs 1 " + std::string(FALCHION_SOURCE_DIR) + "/examples/smollm2/smollm2_qkv.safetensors")
          .error.find("--head: 99 is not there; the sample has 9 query heads"),
      std::string::npos);
}

TEST_F(CommandLines, FilesThatCannotBeReadAreNamed) {
  const Refusal table[] = {
      {"run", "no tensors: give --q, --k and --v"},
      {"run --q q.npy", "no tensors: give --q, --k and --v"},
      {"run --q missing.npy --k k.npy --v v.npy", "missing.npy: cannot be opened: No such file"},
      {"run --q folder --k k.npy --v v.npy", "folder: is a directory"},
      {"run --q broken.npy --k k.npy --v v.npy", "broken.npy: 6 bytes are too few"},
      {"run --q q.npy --k square.npy --v v.npy", "k"},
      {"run --q six.npy --k k.npy --v v.npy", "six: int32 is no type of the engine"},
      {"run --qkv missing.safetensors", "missing.safetensors: cannot be opened"},
      {"run --qkv q.npy", "q.npy: "},
      {"run --qkv folder", "folder: is a directory"},
      {"run --q q.npy --k k.npy --v v.npy --dtype bf16", "--dtype: q: float32 of 4 bytes cannot be seen as bfloat16"},
      {"run --q q.npy --k k.npy --v v.npy --mask q.npy", "mask"},
      {"run --q q.npy --k k.npy --v v.npy --bias six.npy", "six.npy: 1 axes; bias and mask are"},
      {"roofline --points missing.json", "--points: missing.json: cannot be opened: No such file"},
      {"roofline --points folder", "--points: folder: is a directory"},
      {"roofline --points cut.json", "--points: cut.json: is no JSON: at byte 11"},
      {"roofline --points words.json", R"(--points: words.json: rows\[0\].name = 3 is not a text)"},
      {"roofline --points list.json", "--points: list.json: has no measured attention"},
  };
  EXPECT_REFUSALS(table, "");
  for (const auto& [arguments, says] : table) {
    const std::string error = run(arguments).error;
    for (const char* library : {"json.exception", "filesystem error", "basic_string", "std::", "what()"})
      EXPECT_EQ(error.find(library), std::string::npos) << arguments << "\n" << error;
  }
}

TEST_F(CommandLines, NoOutputOverwritesAnotherFileOfTheSameCall) {
  const Refusal table[] = {
      {"--out x.npy --lse x.npy", "--out x.npy and --lse x.npy are one file"},
      {"--out x.npy --row-max ./x.npy", "--out x.npy and --row-max ./x.npy are one file"},
      {"--out x.npy --lse folder/../x.npy", "are one file"},
      {"--lse x.npy --out @/x.npy", "are one file"},
      {"--out later.npy --lse link.npy", "--out later.npy and --lse link.npy are one file"},
      {"--out hard.npy", "--v v.npy and --out hard.npy are one file"},
      {"--out q.npy", "--q q.npy and --out q.npy are one file"},
      {"--probabilities six.npy --used-k six.npy", "--used-k six.npy and --probabilities six.npy are one file"},
      {"--out nowhere/x.npy", "--out: nowhere/x.npy: cannot be written into nowhere: No such file"},
      {"--out folder", "--out: folder: outputs are written to .npy or .safetensors"},
      {"--out x.txt", "--out: x.txt: outputs are written to .npy or .safetensors"},
  };
  EXPECT_REFUSALS(table, "run --no-limit " + tensors_);
  EXPECT_FALSE(fs::exists(folder_ / "x.npy"));
  EXPECT_EQ(run("run --no-limit " + tensors_ + "--out o.npy --lse lse.npy").code, 0);
  EXPECT_EQ(run("run --no-limit " + tensors_ + "--out o.npy --lse lse.npy").code, 0) << "once more, over its own";
  const Refusal others[] = {
      {"map --q q.npy --k k.npy --v v.npy --out q.npy", "--q q.npy and --out q.npy are one file"},
      {"map --q q.npy --k k.npy --v v.npy --out folder", "--out: folder: is a directory"},
      {"roofline --points cut.json -o ./cut.json", "--points cut.json and --out ./cut.json are one file"},
      {"bench --s 8 --json nowhere/x.json", "--json: nowhere/x.json: cannot be written into nowhere"},
      {"layout print 8 -o folder", "--out: folder: is a directory"},
      {"demo q.npy --svg q.npy", "sample q.npy and --svg q.npy are one file"}};
  EXPECT_REFUSALS(others, "");
}

TEST_F(CommandLines, AFullDiskIsAnError) {
  const char* all[] = {"--help",
                       "--version",
                       "info",
                       "info --json",
                       "explain --s 8",
                       "explain --s 8 --json",
                       "roofline",
                       "layout print 8",
                       "layout explain",
                       "completion bash",
                       "verify --match empty --types f32",
                       "ladder linear --cpu --brief --s 64 --h 1 --runs 1",
                       "bench --s 8 --h 1 --d 8 --backend ref --runs 1",
                       "map --q q.npy --k k.npy --v v.npy --out map.svg",
                       "run --no-limit --q q.npy --k k.npy --v v.npy",
                       "demo --runs 1 --threads 1 --svg demo.svg " FALCHION_SOURCE_DIR
                       "/examples/smollm2/smollm2_qkv.safetensors"};
  for (const char* arguments : all) {
    const Result x = run(std::string(arguments) + " >/dev/full");
    EXPECT_EQ(x.code, 2) << arguments;
    EXPECT_TRUE(std::regex_search(x.error, std::regex("^falchion: standard output cannot be written[^\n]*\n$")))
        << arguments << "\n"
        << x.error;
  }
  const Result closed = run("explain --s 8 >&-");
  EXPECT_EQ(closed.code, 2);
  EXPECT_NE(closed.error.find("standard output cannot be written"), std::string::npos) << closed.error;
}

/// A limit of 1 KiB a file stands for a full disk.
TEST_F(CommandLines, AHalfWrittenFileIsNotLeftBehind) {
  const std::string call = "map " + tensors_ + "--out map.svg";
  const Result x = run(call + " >/dev/null", "ulimit -f 1; trap '' XFSZ;");
  EXPECT_EQ(x.code, 2);
  EXPECT_NE(x.error.find("map.svg: cannot write: File too large"), std::string::npos) << x.error;
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find("map.svg"), std::string::npos) << entry.path();
  std::ofstream(folder_ / "map.svg") << "old";
  EXPECT_EQ(run(call + " >/dev/null", "ulimit -f 1; trap '' XFSZ;").code, 2);
  EXPECT_EQ(contents(folder_ / "map.svg"), "old");
}

/// Pipes and devices are written in place, and standard output keeps what is printed behind the file.
TEST_F(CommandLines, OutputsToStandardOutput) {
  ASSERT_EQ(run("layout print 8 -o /dev/stdout >printed").code, 0);
  EXPECT_EQ(contents(folder_ / "printed"), "_8:_1\n/dev/stdout (6 B)\n");
  ASSERT_EQ(run("layout print 8 -o /dev/stdout | cat >piped").code, 0);
  EXPECT_EQ(contents(folder_ / "piped"), "_8:_1\n/dev/stdout (6 B)\n");
  ASSERT_EQ(run("layout print 8 -o /dev/null").code, 0);
  EXPECT_EQ(run("layout print 8 -o /dev/full").code, 2);
}

TEST_F(CommandLines, ABackEndThatIsNotHereIsSaidOnce) {
  if (run("info --json").out.find("\"gpus\": []") == std::string::npos) GTEST_SKIP() << "there is a GPU";
  for (const char* backend : {"sm80", "sm90"}) {
    const Result x = run(std::string("verify --backend ") + backend);
    EXPECT_TRUE(std::regex_search(x.error, std::regex(std::string("^falchion: --backend ") + backend + ": .+\n$")))
        << x.error;
    EXPECT_EQ(x.out, "");
  }
}

/// README: no GPU is needed to ask. Nor is a build that has its kernels.
TEST_F(CommandLines, ExplainAnswersForEveryTarget) {
  const struct {
    const char *arguments, *says;
  } table[] = {{"--s 4096 --target sm80", "decision    sm80 plain\n"},
               {"--s 4096 --target sm86", "decision    sm80 plain\n"},
               {"--s 4096 --target sm89 --dtype f32", "decision    sm80 general\n"},
               {"--s 4096 --target sm90", "decision    sm90 plain\n"},
               {"--s 4096 --target sm90 --backend sm80", "decision    sm80 plain\n"},
               {"--s-q 1 --s-k 8192 --h-q 32 --h-k 8 --target sm90", "decision    sm80 few\n"},
               {"--s 4096 --softcap 30 --target sm90", "decision    sm90 score\n"},
               {"--s 4096 --target sm100", "decision    sm80 plain\n"},
               {"--s 4096 --target sm120 --bias", "decision    sm80 general\n"},
               {"--s 4096 --backend sm90", "decision    sm90 plain\n"},
               {"--s 4096 --op linear --d 64 --target sm90", "decision    sm90 plain\n"},
               {"--s 4096 --op linear-backward --d 64 --target sm90 --dtype f32", "decision    sm90 plain\n"},
               {"--s 4096 --op linear --decay token --d 64 --target sm80", "decision    sm80 general\n"},
               {"--s 4096 --op linear-backward --decay head --states --target sm90", "decision    sm80 exact\n"},
               {"--s 4096 --target ref", "decision    ref: "}};
  for (const auto& [arguments, says] : table) {
    const Result x = run(std::string("explain ") + arguments);
    EXPECT_EQ(x.code, 0) << arguments << "\n" << x.error;
    EXPECT_NE(x.out.find(says), std::string::npos) << arguments << "\n" << x.out;
  }
  const Refusal refusals[] = {
      {"explain --s 8 --target cpu --backend ref", "--backend: --target cpu says where"},
      {"explain --s 8 --target sm90 --backend cpu", "--backend: cpu does not run on --target sm90"},
      {"explain --s 8 --target sm90 --level generic", "--level: it is of the CPU, and --target sm90 is a GPU"},
      {"explain --s 8 --target sm90 --threads 2", "--threads: it is of the CPU, and --target sm90 is a GPU"},
      {"explain --s 8 --target sm80 --backend sm90", "sm90"},
      {"explain --s 8 --target sm75", "sm75 not in"},
      {"explain --s 8 --decay head", "--decay: it belongs to --op linear"},
      {"explain --s 8 --op linear --causal", "--causal: it belongs to --op attention"},
      {"explain --s-q 8 --s-k 9 --op linear", "s_q = 8 is not s_k = 9"}};
  EXPECT_REFUSALS(refusals, "");
}

TEST_F(CommandLines, GivenTwiceOrUnknown) {
  const Refusal table[] = {{"frobnicate", "there is no subcommand \"frobnicate\""},
                           {"explain --frobnicate", "--frobnicate"},
                           {"explain --s 8 --threads 1 --threads 2", "--threads"},
                           {"explain --s", "--s"},
                           {"explain positional", "positional"},
                           {"info --s 8", "--s"},
                           {"ladder", "ladder"},
                           {"ladder softmax", "softmax not in \\{attention,linear\\}"},
                           {"layout", "verb"},
                           {"layout fold 8", "fold not in"},
                           {"layout print", "0 arguments given"},
                           {"completion", "shell"},
                           {"explain --dtype f64", "\"f64\" is not one of f32, f16, bf16"},
                           {"explain --backend tpu", "tpu not in"},
                           {"explain --level warp9", "level \"warp9\" does not exist"},
                           {"verify --types f64", "\"f64\" is not one of"},
                           {"verify --match nothing-is-named-so", "no case"},
                           {"roofline --device tpu", "--device \"tpu\" is not one of"}};
  EXPECT_REFUSALS(table, "");
}

}  // namespace
}  // namespace falchion::testing
