// tests/command_norm_test.cpp: norms of the command, run on files, and what is refused of them.
#include <cstring>
#include <string>

#include "support/command_lines.hpp"

namespace falchion::testing {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The shape of a .npy file of f32, and its numbers.
using Numbers = std::pair<std::vector<std::int64_t>, std::vector<float>>;
Numbers numbers_of(const fs::path& path) {
  io::Array array;
  EXPECT_TRUE(io::read_npy(path, &array)) << path;
  Numbers out{array.shape, std::vector<float>(array.bytes.size() / sizeof(float))};
  if (!out.second.empty()) std::memcpy(out.second.data(), array.bytes.data(), array.bytes.size());
  return out;
}

/// Two rows of two numbers. With the residual they are (1, 3) and (-2, 6): means 2 and 2, variances 1 and 16.
TEST_F(CommandLines, RunComputesANormOfFiles) {
  const auto write = [&](const char* name, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    write_array(folder_ / name, io::Kind::f32, shape, values);
  };
  write("x.npy", {2, 2}, {0, 1, 1, 2});
  write("r.npy", {2, 2}, {1, 2, -3, 4});
  write("w.npy", {2}, {1, 3});
  write("b.npy", {2}, {10, 20});
  const CommandResult x = run(
      "run --no-limit --op norm --x x.npy --residual r.npy --weight w.npy --zero-centered --bias b.npy --eps 0 --out "
      "y.npy --residual-out v.npy --mean m.npy --rstd d.npy");
  ASSERT_EQ(x.code, 0) << x.error;
  EXPECT_TRUE(has(x.out, "problem  f32 rows2 d2 norm layer 1+weight bias residual in-out")) << x.out;
  EXPECT_EQ(numbers_of(folder_ / "y.npy"), Numbers({2, 2}, {8, 24, 8, 24}));
  EXPECT_EQ(numbers_of(folder_ / "v.npy"), Numbers({2, 2}, {1, 3, -2, 6}));
  EXPECT_EQ(numbers_of(folder_ / "m.npy"), Numbers({2}, {2, 2}));
  EXPECT_EQ(numbers_of(folder_ / "d.npy"), Numbers({2}, {1, 0.25}));
  write("x.npy", {3, 1, 1, 2}, {3, 3, -3, 3, 0, 0});
  const CommandResult rms =
      run("run --no-limit --json --op norm --as bf16 --y-f32 --kind rms --eps 7 --x x.npy --out y.npy");
  ASSERT_EQ(rms.code, 0) << rms.error;
  EXPECT_TRUE(has(rms.out, "\"kind\": \"rms\"") && has(rms.out, "\"dtype\": \"bf16\"")) << rms.out;
  const auto [shape, y] = numbers_of(folder_ / "y.npy");
  EXPECT_EQ(shape, (std::vector<std::int64_t>{3, 1, 1, 2}));
  EXPECT_EQ(y, (std::vector<float>{0.75F, 0.75F, -0.75F, 0.75F, 0, 0}));
}

/// Without --kind a norm is the same one everywhere, that of Norm{}.
TEST_F(CommandLines, EverySubcommandHasTheSameUsualNorm) {
  for (const char* arguments : {"run --no-limit --json --op norm --x q.npy", "explain --json --op norm --rows 2 --d 8",
                                "bench --json --op norm --rows 2 --d 8 --dtype f32 --runs 1 --warm"}) {
    const CommandResult x = run(arguments);
    EXPECT_TRUE(has(x.out, "\"kind\": \"layer\"")) << arguments << "\n" << x.out << x.error;
  }
  const CommandResult line = run("verify --problem 'op=norm dtype=f32 rows=2 d=8' --json");
  EXPECT_TRUE(has(line.out, "norm cpu") && has(line.out, " layer ")) << line.out;
}

TEST_F(CommandLines, ExplainOfANormSpeaksOfKernels) {
  for (const char* arguments : {"explain --op norm", "explain --op norm --target sm90", "explain --op norm --json",
                                "explain --op norm --kind rms --backend sm90"}) {
    const std::string out = run(arguments).out;
    EXPECT_FALSE(has(out, "variants.def")) << out;
    EXPECT_FALSE(has(out, "later version")) << out;
  }
  EXPECT_TRUE(
      has(run("explain --op norm --target sm90").out, "Falchion has no kernel of norm for sm90; those of sm80"));
}

TEST_F(CommandLines, WhatANormDoesNotHaveIsRefused) {
  const Refusal table[] = {
      {"run --op norm", "no rows: give --x"},
      {"run --op norm --x q.npy --weight six.npy", "six.npy: int32 is no type of the engine"},
      {"run --op norm --x q.npy --weight nan.npy", "weight.shape\\[3\\] = 1, but it must be 4"},
      {"run --op norm --x q.npy --zero-centered", "zero_centered without weight"},
      {"run --op norm --x q.npy --residual-out v.npy", "residual_out without residual"},
      {"run --op norm --x q.npy --kind rms --mean m.npy", "mean with kind = rms"},
      {"run --op norm --x q.npy --eps -1", "eps = -1: it must be finite"},
      {"run --op norm --x q.npy --softcap 2", "--softcap: it has no effect here"},
      {"run --op norm --x q.npy --beta 2", "--beta: it has no effect here; it is an option of --op gemm"},
      {"run --op norm --x q.npy --out y.npy --mean y.npy", "--out y.npy and --mean y.npy are one file"},
      {"run --op gemm --a q.npy --b q.npy --bias q.npy", "--bias: it has no effect here"},
      {"run --q q.npy --k k.npy --v v.npy --eps 1", "--eps: it has no effect here; it is an option of --op norm"},
      {"run --q q.npy --k k.npy --v v.npy --residual q.npy", "it is an option of --op gemm and norm"},
  };
  expect_refusals(table);
}

}  // namespace
}  // namespace falchion::testing
