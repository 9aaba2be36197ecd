// tests/command_gemm_test.cpp: GEMMs of the command: verify's table, run on files, points of a roofline, and what is
// refused of them.
#include <cstring>
#include <string>

#include "support/command_lines.hpp"

namespace falchion::testing {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The floats at the end of a .npy file.
std::vector<float> last_floats(const std::string& file, std::size_t count) {
  std::vector<float> out(count);
  if (file.size() >= count * 4) std::memcpy(out.data(), file.data() + file.size() - count * 4, count * 4);
  return out;
}

TEST_F(CommandLines, VerifyHasATableOfGemms) {
  const CommandResult table = run("verify --op gemm --types f32 --backend ref --match of");
  EXPECT_EQ(table.code, 0) << table.out << table.error;
  EXPECT_TRUE(has(table.out, "gemm       ref      f32")) << table.out;
  const CommandResult bytes = run("verify --op gemm --types e4m3,i8 --backend ref");
  EXPECT_EQ(bytes.code, 0) << bytes.out << bytes.error;
  EXPECT_TRUE(has(bytes.out, "e4m3") && has(bytes.out, "i8")) << bytes.out;
  const CommandResult json = run("verify --op gemm --json --types bf16 --match heads");
  EXPECT_EQ(json.code, 0);
  EXPECT_TRUE(has(json.out, "\"op\": \"gemm\"") && has(json.out, "\"failures\": 0")) << json.out;
}

/// q.npy is (1, 8, 2, 4) of 0.5: A has 8 rows of k = 2 * 4, and A A^T is 2 everywhere.
TEST_F(CommandLines, RunComputesAGemmOfFiles) {
  write_array(folder_ / "n.npy", io::Kind::f32, {8}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
  write_array(folder_ / "c.npy", io::Kind::f32, {8, 8}, std::vector<float>(64, -4));
  const CommandResult x = run("run --no-limit --op gemm --a q.npy --b k.npy --out d.npy");
  ASSERT_EQ(x.code, 0) << x.error;
  EXPECT_TRUE(has(x.out, "problem  f32 m8 n8 k8 gemm")) << x.out;
  EXPECT_EQ(last_floats(contents(folder_ / "d.npy"), 64), std::vector<float>(64, 2));
  const CommandResult y =
      run("run --no-limit --json --op gemm --a q.npy --b k.npy --c c.npy --beta 0.5 --alpha 2 --bias-n n.npy --bias-m "
          "n.npy "
          "--activation relu --residual c.npy --out e.npy");
  ASSERT_EQ(y.code, 0) << y.error;
  EXPECT_TRUE(has(y.out, "\"activation\": \"relu\"")) << y.out;
  std::vector<float> right;
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) right.push_back(static_cast<float>(4 - 2 + j + i - 4));
  EXPECT_EQ(last_floats(contents(folder_ / "e.npy"), 64), right);
}

TEST_F(CommandLines, ARooflineHasMeasuredGemms) {
  ASSERT_EQ(run("bench --op gemm --dtype f32 --backend ref --m 8 --n 8 --k 8 --runs 1 --json g.json").code, 0);
  const CommandResult x = run("roofline --op gemm --points g.json --dtype f32 --tflops 1 --tbps 1");
  EXPECT_EQ(x.code, 0) << x.error;
  EXPECT_TRUE(has(x.out, "falchion gemm/ref/any/f32")) << x.out;
}

TEST_F(CommandLines, WhatAGemmDoesNotHaveIsRefused) {
  const Refusal table[] = {
      {"run --op gemm", "no matrices: give --a and --b"},
      {"run --op gemm --a q.npy", "--b is missing: give --a and --b"},
      {"run --op gemm --a six.npy --b q.npy", "six.npy: 1 axes; a matrix has two"},
      {"run --op gemm --a q.npy --b q.npy --bias-n q.npy", "q.npy: 4 axes; a bias has one"},
      {"run --op gemm --a q.npy --b q.npy --bias-n nan.npy", "bias_n.shape\\[3\\] = 1, but the problem's is 8"},
      {"run --op gemm --a q.npy --b square.npy", "b.shape\\[2\\] = 1, but a's is 2"},
      {"run --op gemm --a square.npy --b square.npy --activation swiglu", "--b: 1 rows; with swiglu"},
      {"run --op gemm --a q.npy --b q.npy --beta 2", "--beta: it is the factor of --c"},
      {"run --op gemm --a q.npy --b q.npy --softcap 2", "--softcap: it has no effect here"},
      {"run --op gemm --a q.npy --b k.npy --out k.npy", "--b k.npy and --out k.npy are one file"},
      {"run --q q.npy --k k.npy --v v.npy --a q.npy", "--a: it has no effect here; it is an option of --op gemm"},
      {"verify --op gemm --types i32", "--types: \"i32\" is not one of f32, f16, bf16, e4m3, i8"},
      {"verify --types bf16,i8", "--types: i8 is no type of --op attention"},
      {"verify --op gemm --q q.npy --k k.npy --v v.npy", "--op gemm: --q, --k and --v are tensors of attention"},
      {"roofline --op gemm --mode decode", "--mode: --op gemm is a kind of work of its own"},
  };
  expect_refusals(table);
}

}  // namespace
}  // namespace falchion::testing
