// tests/command_files_test.cpp: tables of command lines that name files which the command cannot read or may not write,
// with what it says on stderr. It also tests what is left of an output after a failure.
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <type_traits>

#include "support/command_lines.hpp"

namespace falchion::testing {
namespace {

TEST_F(CommandLines, FilesThatCannotBeReadAreNamed) {
  const Refusal table[] = {
      {"run", "no tensors: give --q, --k and --v"},
      {"run --q q.npy", "--k and --v are missing: give --q, --k and --v"},
      {"run --q q.npy --k k.npy", "--v is missing: give --q, --k and --v"},
      {"map --k k.npy --v v.npy", "--q is missing: give --q, --k and --v"},
      {"verify --v v.npy", "--q and --k are missing: give --q, --k and --v"},
      {"run --q missing.npy --k k.npy --v v.npy", "missing.npy: cannot be opened: No such file"},
      {"run --q folder --k k.npy --v v.npy", "folder: is a directory"},
      {"run --q broken.npy --k k.npy --v v.npy", "broken.npy: 6 bytes are too few"},
      {"run --q q.npy --k square.npy --v v.npy", "k"},
      {"run --q six.npy --k k.npy --v v.npy", "six.npy: int32 is no type of the engine"},
      {"run --qkv missing.safetensors", "missing.safetensors: cannot be opened"},
      {"run --qkv q.npy", "q.npy: "},
      {"run --qkv folder", "folder: is a directory"},
      {"run --q q.npy --k k.npy --v v.npy --dtype bf16",
       "--dtype: q.npy: float32 of 4 bytes cannot be seen as bfloat16"},
      {"run --q q.npy --k k.npy --v v.npy --mask q.npy", "mask"},
      {"run --q q.npy --k k.npy --v v.npy --bias six.npy", "six.npy: 1 axes; bias and mask are"},
      {"roofline --points missing.json", "--points: missing.json: cannot be opened: No such file"},
      {"roofline --points folder", "--points: folder: is a directory"},
      {"roofline --points cut.json", "--points: cut.json: is no JSON: at byte 11"},
      {"roofline --points words.json", R"(--points: words.json: rows\[0\].name = 3 is not a text)"},
      {"roofline --points list.json", "--points: list.json: has no measurements"},
  };
  expect_refusals(table);
  for (const auto& [arguments, says] : table) {
    const std::string error = run(arguments).error;
    for (const char* library : {"json.exception", "filesystem error", "basic_string", "std::", "what()"})
      EXPECT_EQ(error.find(library), std::string::npos) << arguments << "\n" << error;
  }
}

/// What NumPy makes where no type is named. --as converts it; without --as the refusal names the file and that option.
TEST_F(CommandLines, OtherTypesAreConvertedByAs) {
  const auto write = [&](const std::string& name, const auto& value) {
    using T = std::decay_t<decltype(value)>;
    const io::Kind kind = std::is_same_v<T, double>         ? io::Kind::f64
                          : std::is_same_v<T, std::int64_t> ? io::Kind::i64
                                                            : io::Kind::f32;
    write_array(folder_ / (name + ".npy"), kind, {1, 8, 2, 4}, std::vector<T>(64, value));
    write_array(folder_ / (name + "_bias.npy"), kind, {8, 8}, std::vector<T>(64, value));
    write_array(folder_ / (name + "_rows.npy"), kind, {1, 2, 8}, std::vector<T>(16, value));
    write_array(folder_ / (name + "_weight.npy"), kind, {4}, std::vector<T>(4, value));
  };
  write("f64", 2.0);
  write("i64", std::int64_t{2});
  write("f32", 2.0F);
  const auto of = [](std::string line, const std::string& type) {
    for (std::size_t at = 0; (at = line.find('#', at)) != std::string::npos;) line.replace(at, 1, type);
    return line;
  };
  for (const char* line : {"--q #.npy --k #.npy --v #.npy --bias #_bias.npy --out o.npy",
                           "--op gemm --a #_bias.npy --b #_bias.npy --c #_bias.npy --bias-n bias_n.npy --out o.npy",
                           "--op norm --x #.npy --weight #_weight.npy --bias #_weight.npy --residual #.npy --out o.npy",
                           "--op attention-backward --q #.npy --k #.npy --v #.npy --grad-o #.npy --o #.npy --lse "
                           "#_rows.npy --grad-lse #_rows.npy --grad-q o.npy"}) {
    write_array(folder_ / "bias_n.npy", io::Kind::f64, {8}, std::vector<double>(8, 2.0));
    const std::string converted = std::string("run --no-limit --as f32 ") + line;
    ASSERT_EQ(run(of(converted, "f32")).code, 0) << run(of(converted, "f32")).error;
    const std::string expected = contents(folder_ / "o.npy");
    for (const char* type : {"f64", "i64"}) {
      fs::remove(folder_ / "o.npy");
      const CommandResult x = run(of(converted, type));
      EXPECT_EQ(x.code, 0) << converted << "\n" << x.error;
      EXPECT_EQ(contents(folder_ / "o.npy"), expected) << converted;
    }
  }
  const Refusal table[] = {
      {"--q f64.npy --k k.npy --v v.npy", "f64.npy: float64 is no type of the engine; .*: --as f32 converts it"},
      {"--q q.npy --k k.npy --v i64.npy", "i64.npy: int64 is no type of the engine"},
      {"--q q.npy --k k.npy --v v.npy --bias f64_bias.npy", "f64_bias.npy: float64 is no type of the engine"},
      {"--op gemm --a q.npy --b f64.npy", "f64.npy: float64 is no type of the engine"},
      {"--op norm --x q.npy --weight f64_weight.npy", "f64_weight.npy: float64 is no type of the engine"},
      {"--q q.npy --k k.npy --v v.npy --mask f64_bias.npy", "f64_bias.npy: float64"},
  };
  expect_refusals(table, "run --no-limit ");
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
  expect_refusals(table, "run --no-limit " + tensors_);
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
  expect_refusals(others);
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
    const CommandResult x = run(std::string(arguments) + " >/dev/full");
    EXPECT_EQ(x.code, 2) << arguments;
    EXPECT_TRUE(std::regex_search(x.error, std::regex("^falchion: standard output cannot be written[^\n]*\n$")))
        << arguments << "\n"
        << x.error;
  }
  const CommandResult closed = run("explain --s 8 >&-");
  EXPECT_EQ(closed.code, 2);
  EXPECT_NE(closed.error.find("standard output cannot be written"), std::string::npos) << closed.error;
}

/// A limit of 1 KiB for each file takes the place of a full disk.
TEST_F(CommandLines, AHalfWrittenFileIsNotLeftBehind) {
  const std::string call = "map " + tensors_ + "--out map.svg";
  const CommandResult x = run(call + " >/dev/null", "ulimit -f 1; trap '' XFSZ;");
  EXPECT_EQ(x.code, 2);
  EXPECT_NE(x.error.find("map.svg: cannot write: File too large"), std::string::npos) << x.error;
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find("map.svg"), std::string::npos) << entry.path();
  std::ofstream(folder_ / "map.svg") << "old";
  EXPECT_EQ(run(call + " >/dev/null", "ulimit -f 1; trap '' XFSZ;").code, 2);
  EXPECT_EQ(contents(folder_ / "map.svg"), "old");
}

/// The command writes into pipes and devices in place. What it prints on standard output comes after the file that it
/// writes there.
TEST_F(CommandLines, OutputsToStandardOutput) {
  ASSERT_EQ(run("layout print 8 -o /dev/stdout >printed").code, 0);
  EXPECT_EQ(contents(folder_ / "printed"), "_8:_1\n/dev/stdout (6 B)\n");
  ASSERT_EQ(run("layout print 8 -o /dev/stdout | cat >piped").code, 0);
  EXPECT_EQ(contents(folder_ / "piped"), "_8:_1\n/dev/stdout (6 B)\n");
  ASSERT_EQ(run("layout print 8 -o /dev/null").code, 0);
  EXPECT_EQ(run("layout print 8 -o /dev/full").code, 2);
}

}  // namespace
}  // namespace falchion::testing
