// tests/command_test.cpp: tables of bad command lines with what the command says on stderr. A refusal names the option,
// the value and the limit, and no bad line exits with 0. command_files_test.cpp tests files.
#include <regex>
#include <string>

#include "support/command_lines.hpp"

namespace falchion::testing {
namespace {

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
      {"--used-k huge.npy",
       R"(huge.npy: \[0\] = 18446744073709551615 is not between -9223372036854775808 and 9223372036854775807)"},
      {"--used-k wide.npy", R"(--used-k: \[0\] = 4294967298 is not between)"},
      {"--used-k square.npy", R"(square.npy: 2 axes; a list of numbers has one)"},
      {"--used-k 9", R"(used_k\[0\] = 9)"},
      {"--used-k 1,2", R"(--used-k: 2 numbers, the problem needs 1)"},
      {"--alibi slopes.npy", R"(slopes.npy: \[1\] = 1e\+300 is not a number that f32 holds)"},
      {"--alibi six.npy", R"(--alibi: 1 numbers, there are 2 query heads)"},
      {"--bias bias.npy", "bias.npy: int8 is no type of the engine"},
  };
  expect_refusals(table, "run --no-limit " + tensors_);
  const CommandResult six = run("run --no-limit " + tensors_ + "--used-k six.npy --out six_o.npy");
  const CommandResult list = run("run --no-limit " + tensors_ + "--used-k 6 --out list_o.npy");
  ASSERT_EQ(six.code + list.code, 0) << six.error << list.error;
  EXPECT_EQ(contents(folder_ / "six_o.npy"), contents(folder_ / "list_o.npy"));
}

/// What the backward pass needs of its files, and what it may not do with them.
TEST_F(CommandLines, GradientsOfFiles) {
  const Refusal table[] = {
      {"--grad-q x.npy", "--grad-o: the gradient of O is missing"},
      {"--grad-o q.npy", "no gradient is asked for: give --grad-q"},
      {"--grad-o q.npy --o q.npy --grad-q x.npy", "--o and --lse go together"},
      {"--grad-o q.npy --o q.npy --lse q.npy --grad-q x.npy", "q.npy: it must be f32 with the axes \\(b, h, s\\)"},
      {"--grad-o square.npy --grad-q x.npy", "grad_o.shape\\[1\\] = 1, but the problem's is 8"},
      {"--grad-o q.npy --grad-q q.npy", "--q q.npy and --grad-q q.npy are one file"},
      {"--grad-o q.npy --out x.npy", "--out: x.npy: several gradients go into one .safetensors file"},
      {"--grad-o q.npy --grad-bias x.npy", "grad_bias without bias"},
      {"--grad-o q.npy --grad-q x.txt", "--grad-q: x.txt: outputs are written to .npy or .safetensors"},
  };
  expect_refusals(table, "run --no-limit --op attention-backward " + tensors_);
  EXPECT_FALSE(fs::exists(folder_ / "x.npy"));
}

/// ALiBi counts its distance from the diagonal that --align names. Here s_q and s_k are 8, and 6 of the keys are used.
TEST_F(CommandLines, AlignBelongsToAlibiToo) {
  for (const char* corner : {"top-left", "bottom-right"})
    ASSERT_EQ(
        run("run --no-limit " + tensors_ + "--used-k 6 --alibi auto --align " + corner + " --out " + corner + ".npy")
            .code,
        0);
  EXPECT_NE(contents(folder_ / "top-left.npy"), contents(folder_ / "bottom-right.npy"));
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
  expect_refusals(run_table, "run --no-limit " + tensors_);
  const Refusal table[] = {{"explain --s ''", "--s: an empty value in \"\""},
                           {"explain --s 1,,2", "--s: an empty value in \"1,,2\""},
                           {"explain --dtype bf16,", "--dtype: an empty value in \"bf16,\""},
                           {"demo ''", "sample: the value is empty"},
                           {"roofline --device ''", "--device: an empty value"},
                           {"roofline --out ''", "-o,--out: the value is empty"},
                           {"map --title ''", "--title: the value is empty"}};
  expect_refusals(table);
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
      {"explain --s 8 --dropout 2", "dropout = 2"},
      {"explain --s 8 --threads 5000", "--threads: 5000 is not between 0 and 4096"},
      {"explain --s 8 --threads -1", "--threads: -1 is not between 0 and 4096"},
      {"bench --s 8 --runs 0", "--runs: 0 is not between 1 and 100000"},
      {"bench --s 8 --runs 4294967297", "--runs: 4294967297 is not between"},
      {"ladder attention --cpu --s 4294967298", "--s: 4294967298 is not between 0 and 1048576"},
      {"ladder linear --cpu --d 12", "12"},
      {"ladder gemm --cpu --m 1048577", "--m: 1048577 is not between 0 and 1048576"},
      {"ladder backward --cpu --d 96", "--d 96: attention's steps have 64 and 128"},
      {"roofline --tflops nan --tbps 1", "--tflops: nan is not a rate above 0"},
      {"roofline --m 0 --mode gemm", "--m: 0 is not between 1 and 4294967296"},
      {"layout banks sQ --tile 4294967312x16", "--tile"},
      {"layout table 8 --elem 64000000000b", "64000000000b"},
  };
  expect_refusals(table);
}

TEST_F(CommandLines, WhatWouldBeIgnoredIsRefused) {
  const Refusal table[] = {
      {"bench --s 8 --alibi missing.npy", "--alibi: \"missing.npy\" is not read here"},
      {"explain --s 8 --alibi missing.npy", "--alibi: \"missing.npy\" is not read here"},
      {"explain --s 8 --align top-left", "--align: there is no --window or --alibi"},
      {"explain --s 8 --causal --alibi auto --align top-left", "--align: there is no --window or --alibi"},
      {"explain --s 8 --causal --align top-left", "--align: there is no --window"},
      {"explain --s 8 --s-q 4 --s-k 4", "--s: --s-q and --s-k say all"},
      {"explain --h 8 --h-q 4 --h-k 4", "--h: --h-q and --h-k say all"},
      {"explain --s 8 --backend ref --level generic",
       "--level: it is of the CPU, and --backend ref does not run there"},
      {"bench --s 8 --backend sm80 --threads 2", "--threads: it is of the CPU, and --backend sm80 does not"},
      {"bench --s 8 --backend sm80 --level all", "--level: it is of the CPU"},
      {"verify --backend sm80 --level generic", "--level: it is of the CPU"},
      {"bench --s 8 --any-order", "--any-order has no effect here; it is an option of --op attention-backward"},
      {"bench --s 8 --op attention-backward --lse", "--lse has no effect here; it is an option of --op attention"},
      {"run --q q.npy --k k.npy --v v.npy --grad-o q.npy", "--grad-o: it has no effect here"},
      {"run --q q.npy --k k.npy --v v.npy --op attention-backward --row-max x.npy", "--row-max: it has no effect here"},
      {"roofline --op attention-backward --mode decode",
       "--mode: --op attention-backward is a kind of work of its own"},
      {"roofline --op attention-backward --lse", "--lse says nothing in --mode backward"},
      {"verify --op linear", "--op: there are no tables of problems of linear; --random draws some"},
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
      {"ladder backward --cpu --reverse", "--d-v are of ladder linear"},
      {"ladder linear --cpu --causal", "--causal and --s-k are of ladder attention"},
      {"ladder linear --cpu --m 8", "--m, --n, --k, --branches and --cublas are of ladder gemm"},
      {"ladder gemm --cpu --branches", "--branches: they are steps of the GPU"},
      {"ladder gemm --cpu --d 64", "gemm has --m, --n and --k"},
      {"ladder gemm --cpu --cublas x.so", "--cublas: it is the GPU's steps"},
      {"ladder gemm --cpu --s 8", "gemm has --m, --n and --k"},
      {"ladder attention --cpu --gpu", "--cpu excludes --gpu"},
  };
  expect_refusals(table);
  EXPECT_NE(
      run("demo --head 99 --runs 1 " + std::string(FALCHION_SOURCE_DIR) + "/examples/smollm2/smollm2_qkv.safetensors")
          .error.find("--head: 99 is not there; the sample has 9 query heads"),
      std::string::npos);
}

TEST_F(CommandLines, ABackEndThatIsNotHereIsSaidOnce) {
  if (run("info --json").out.find("\"gpus\": []") == std::string::npos) GTEST_SKIP() << "there is a GPU";
  for (const char* backend : {"sm80", "sm90"}) {
    const CommandResult x = run(std::string("verify --backend ") + backend);
    EXPECT_TRUE(std::regex_search(x.error, std::regex(std::string("^falchion: --backend ") + backend + ": .+\n$")))
        << x.error;
    EXPECT_EQ(x.out, "");
  }
}

/// The README says that `explain` needs no GPU. It does not need a build with GPU kernels either.
TEST_F(CommandLines, ExplainAnswersForEveryTarget) {
  const struct {
    const char *arguments, *says;
  } table[] = {{"--s 4096 --target sm80", "decision    sm80 plain\n"},
               {"--s 4096 --target sm86", "decision    sm80 plain\n"},
               {"--s 4096 --target sm89 --dtype f32", "decision    sm80 general\n"},
               {"--s 4096 --target sm90", "decision    sm90 plain\n"},
               {"--s 4096 --target sm90 --backend sm80", "decision    sm80 plain\n"},
               {"--s-q 1 --s-k 8192 --h-q 32 --h-k 8 --target sm90", "decision    sm90 decode\n"},
               {"--s 4096 --softcap 30 --target sm90", "decision    sm90 score\n"},
               {"--s 4096 --target sm100", "decision    sm80 plain\n"},
               {"--s 4096 --target a100", "decision    sm80 plain\n"},
               {"--s 4096 --target h200", "decision    sm90 plain\n"},
               {"--s 4096 --target sm120 --bias", "decision    sm80 general\n"},
               {"--s 4096 --backend sm90", "decision    sm90 plain\n"},
               {"--s 4096 --op linear --d 64 --target sm90", "decision    sm90 plain\n"},
               {"--s 4096 --op linear-backward --d 64 --target sm90 --dtype f32", "decision    sm90 plain\n"},
               {"--s 4096 --op linear --decay token --d 64 --target sm80", "decision    sm80 general\n"},
               {"--s 4096 --op linear-backward --decay head --states --target sm90", "decision    sm80 exact\n"},
               {"--s 4096 --op attention-backward --causal --any-order --target ref", "with        any_order\n"},
               {"--s 64 --op attention-backward --grads f32 --frozen kv --target ref", "decision    ref: "},
               {"--s 4096 --target ref", "decision    ref: "}};
  for (const auto& [arguments, says] : table) {
    const CommandResult x = run(std::string("explain ") + arguments);
    EXPECT_EQ(x.code, 0) << arguments << "\n" << x.error;
    EXPECT_NE(x.out.find(says), std::string::npos) << arguments << "\n" << x.out;
  }
  const Refusal refusals[] = {
      {"explain --s 8 --target cpu --backend ref", "--backend: --target cpu says where"},
      {"explain --s 8 --target sm90 --backend cpu", "--backend: cpu does not run on --target sm90"},
      {"explain --s 8 --target sm90 --level generic", "--level: it is of the CPU, and --target sm90 is a GPU"},
      {"explain --s 8 --target sm90 --threads 2", "--threads: it is of the CPU, and --target sm90 is a GPU"},
      {"explain --s 8 --target sm80 --backend sm90", "sm90"},
      {"explain --s 8 --target sm75", "\"sm75\" is not one of ref, cpu, sm80"},
      {"explain --s 8 --decay head", "--decay: it has no effect here; it is an option of --op linear"},
      {"explain --s 8 --op linear --causal", "--causal: it has no effect here; it is an option of --op attention"},
      {"explain --s 8 --op attention-backward --lse",
       "--lse: it has no effect here; it is an option of --op attention"},
      {"explain --s 8 --grads f32", "--grads: it has no effect here; it is an option of --op attention-backward"},
      {"explain --s 8 --op attention-backward --grad-bias", "grad_bias without bias"},
      {"explain --s-q 8 --s-k 9 --op linear", "s_q = 8 is not s_k = 9"}};
  expect_refusals(refusals);
}

/// A refused problem has its scale and its intensity all the same, and --check makes a refusal the exit code.
TEST_F(CommandLines, ExplainTellsOfRefusalsWithTheirNumbers) {
  const std::string small = run("explain --s 1").out;
  EXPECT_NE(small.find(": 0.50 flop/B\n"), std::string::npos) << small;
  for (const char* arguments : {"--d 512", "--d 512 --target sm90", "--op attention-backward --d 512 --backend cpu",
                                "--op linear --s 64 --d 512", "--d 512 --backend sm90"}) {
    const CommandResult x = run(std::string("explain ") + arguments);
    EXPECT_EQ(x.code, 0) << arguments << "\n" << x.error;
    EXPECT_NE(x.out.find("scale 0.0441942"), std::string::npos) << x.out;
    EXPECT_NE(x.out.find("refused (unsupported)"), std::string::npos) << x.out;
    EXPECT_EQ(run(std::string("explain --check ") + arguments).code, 1) << arguments;
    const CommandResult json = run(std::string("explain --check --json ") + arguments);
    EXPECT_EQ(json.code, 1) << arguments;
    EXPECT_EQ(json.out.find("\"scale\": 0,"), std::string::npos) << json.out;
  }
  for (const char* arguments : {"--s 8", "--s 8 --target sm90", "--op norm --target h100", "--op gemm", "--d 64,128"})
    EXPECT_EQ(run(std::string("explain --check ") + arguments).code, 0) << arguments;
  EXPECT_EQ(run("explain --check --d 64,512").code, 1) << "one of them is refused";
  EXPECT_EQ(run("explain --check --s 8 --causal --dropout 2").code, 2) << "not a refusal, but nonsense";
}

/// The system promises more memory than there is and kills the process that writes to it. So the command has to refuse
/// first.
TEST_F(CommandLines, WhatDoesNotFitIntoMemoryIsSaid) {
  const Refusal table[] = {
      {"bench --h 100 --s 1073741824 --d 256 --backend ref --runs 1",
       "a tensor or a workspace of [0-9.]+ .iB does not fit into memory; this machine has [0-9.]+ .iB"},
      {"bench --op linear --h 100 --s 1073741824 --d 256 --backend ref --runs 1", "does not fit into memory"},
      {"bench --b 1000000 --h 1000 --s 1073741824 --d 256", "b \\* h \\* s \\* d overflows: b = 1000000"}};
  expect_refusals(table);
}

/// A message repeats what was typed, but without the characters that a terminal would obey.
TEST_F(CommandLines, ErrorsHaveNoControlCharacters) {
  for (const char* arguments : {"explain --s \x1b[31m", "explain \x1b[31m", "\x1b[31m", "explain --op '\x1b[31m'",
                                "run --q '\x1b[31m' --k k.npy --v v.npy", "layout print '\x1b[31m'"}) {
    const CommandResult x = run(arguments);
    EXPECT_EQ(x.code, 2) << x.error;
    EXPECT_EQ(x.error.find('\x1b'), std::string::npos) << x.error;
    EXPECT_NE(x.error.find("[31m"), std::string::npos) << x.error;
  }
}

TEST_F(CommandLines, AnOptionIsNoValue) {
  const Refusal table[] = {{"--out --lse lse.npy", "--out: the value is missing; --lse is an option"},
                           {"--bias --causal", "--bias: the value is missing; --causal is an option"},
                           {"--used-k --json", "--used-k: the value is missing; --json is an option"}};
  expect_refusals(table, "run --no-limit " + tensors_);
}

TEST_F(CommandLines, GivenTwiceOrUnknown) {
  const Refusal table[] = {{"frobnicate", "there is no subcommand \"frobnicate\""},
                           {"explain --frobnicate", "--frobnicate"},
                           {"explain --s 8 --threads 1 --threads 2", "--threads"},
                           {"explain --s", "--s"},
                           {"explain positional", "positional"},
                           {"info --s 8", "--s"},
                           {"ladder", "ladder"},
                           {"ladder softmax", "\"softmax\" is not one of attention, backward, linear, gemm"},
                           {"layout", "verb"},
                           {"layout fold 8", "\"fold\" is not one of print, info"},
                           {"layout print", "0 arguments given"},
                           {"completion", "shell"},
                           {"explain --dtype f64", "\"f64\" is not one of f32, f16, bf16"},
                           {"explain --backend tpu", "\"tpu\" is not one of best, ref, cpu"},
                           {"explain --level warp9", "level \"warp9\" does not exist"},
                           {"verify --types f64", "\"f64\" is not one of"},
                           {"verify --match nothing-is-named-so", "no case"},
                           {"roofline --device tpu", "--device: \"tpu\" is not one of a100"}};
  expect_refusals(table);
}

}  // namespace
}  // namespace falchion::testing
