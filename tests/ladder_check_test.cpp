// tests/ladder_check_test.cpp: what the check of `falchion ladder gemm` notices, when the ladders check, and how they
// print rows of several problems.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/names.hpp"
#include "ladder/gemm_problem.hpp"
#include "policy/dtype.hpp"

namespace falchion::testing {
namespace {

using tools::GemmLadderProblem;

/// The matrices of a problem on the CPU, as numbers.
class Matrices {
 public:
  explicit Matrices(const GemmLadderProblem& problem) : problem_(problem), at_(problem.tensors(nullptr)) {}

  float get(const void* x, std::int64_t i) const {
    return is_f32() ? static_cast<const float*>(x)[i] : f32_from_bf16(static_cast<const std::uint16_t*>(x)[i]);
  }
  float c(std::int64_t row, std::int64_t column) const { return get(at_.c, row * problem_.sizes().n + column); }
  void set_c(std::int64_t row, std::int64_t column, float x) const {
    const std::int64_t i = row * problem_.sizes().n + column;
    if (is_f32()) {
      static_cast<float*>(at_.c)[i] = x;
    } else {
      static_cast<std::uint16_t*>(at_.c)[i] = bf16_from_f32(x);
    }
  }
  /// As a plain kernel has it: f32 sums in the order of k.
  void multiply() const {
    const auto [m, n, k] = problem_.sizes();
    for (std::int64_t i = 0; i < m; ++i) {
      std::vector<float> sums(static_cast<std::size_t>(n));
      for (std::int64_t l = 0; l < k; ++l)
        for (std::int64_t j = 0; j < n; ++j)
          sums[static_cast<std::size_t>(j)] += get(at_.a, i * k + l) * get(at_.b, l * n + j);
      for (std::int64_t j = 0; j < n; ++j) set_c(i, j, sums[static_cast<std::size_t>(j)]);
    }
  }

 private:
  bool is_f32() const { return problem_.dtype() == DType::f32; }

  const GemmLadderProblem& problem_;
  ladder::gemm::Tensors at_;
};

std::string why(const GemmLadderProblem& problem) { return problem.check().why; }

TEST(LadderCheck, ARightProductPasses) {
  for (const ladder::gemm::Problem& p :
       {ladder::gemm::Problem{1, 1, 1}, {300, 1, 2}, {1, 300, 3}, {200, 200, 1}, {70, 130, 257}, {100, 64, 300}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        const GemmLadderProblem problem(tools::Side::cpu, p, dtype, seed);
        Matrices(problem).multiply();
        EXPECT_EQ(why(problem), "") << p.m << " x " << p.n << " x " << p.k << ", seed " << seed;
      }
    }
  }
}

/// Odd rows and the columns 1 and 2 after each third one are in no sample, so it is the sums that have to notice them.
TEST(LadderCheck, OneWrongElementIsNoticed) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const ladder::gemm::Problem p{127, 190, 300};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const GemmLadderProblem problem(tools::Side::cpu, p, dtype, 5);
    const Matrices x(problem);
    x.multiply();
    ASSERT_EQ(why(problem), "");
    const float usual = std::sqrt(static_cast<float>(p.k));
    int tried = 0;
    for (const std::int64_t row : {1, 125}) {
      for (std::int64_t column = 1; column < p.n; column += 6) {
        const float right = x.c(row, column);
        for (const float wrong : {0.0F, 2 * right, kNan, kInf}) {
          if (std::isfinite(wrong) && std::abs(right) < usual / (dtype == DType::f32 ? 1000 : 5)) continue;
          x.set_c(row, column, wrong);
          EXPECT_NE(why(problem).find("summed with random signs"), std::string::npos)
              << name(dtype) << ": C[" << row << ", " << column << "] = " << wrong << " for " << right;
          ++tried;
        }
        x.set_c(row, column, right);
      }
    }
    EXPECT_GT(tried, 200);
    EXPECT_EQ(why(problem), "");
  }
}

/// A kernel that does nothing from some run on, as one may that finds what others have left in its workspace. The first
/// run is checked, three are timed (the first of them warms up), and the fifth is checked.
TEST(LadderCheck, AFaultOfALaterRunIsNoticed) {
  const GemmLadderProblem problem(tools::Side::cpu, {70, 90, 30}, DType::f32, 1);
  const Matrices x(problem);
  for (const int right_runs : {0, 1, 3, 4, 100}) {
    int runs = 0;
    const auto run = [&] {
      if (++runs <= right_runs) x.multiply();
    };
    tools::LadderRow row;
    const auto check = [&] {
      problem.poison();
      run();
      note_error("c", problem.check(), &row);
    };
    const auto time = [&] { row.time = tools::time_on(problem.side(), 2, run); };
    check_and_time(check, time, &row);
    EXPECT_EQ(row.passed(), right_runs == 100) << right_runs;
    EXPECT_EQ(row.wrong.starts_with("after the timed runs: "), right_runs > 0 && right_runs < 100) << row.wrong;
    EXPECT_EQ(row.time.seconds.size(), 2U);
  }
}

tools::LadderRow row_of(const char* name, const char* problem, double seconds) {
  tools::LadderRow row{.name = name, .title = "title", .file = "file", .why = "why " + std::string(name)};
  row.problem = problem;
  row.problem_json = Json::object({{"name", problem}});
  row.time.seconds = {seconds};
  row.work = 1;
  return row;
}
std::size_t times_in(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

/// Rows are compared with those that have run the same problem alone, and a step that stands in two groups is explained
/// once.
TEST(LadderCheck, RowsOfSeveralProblemsAreGroups) {
  const std::vector<tools::LadderRow> rows = {row_of("parent", "small", 0.004), row_of("one", "small", 0.001),
                                              row_of("parent", "large", 4), row_of("two", "large", 2)};
  const tools::LadderReport report{.side = tools::Side::cpu,
                                   .dtype = "bf16",
                                   .problem = "each",
                                   .problem_json = nullptr,
                                   .unit = "FLOP/s",
                                   .unit_json = "flops_per_second",
                                   .error_title = "max error",
                                   .notes = {},
                                   .folder = "folder",
                                   .climbs = false};
  tools::LadderOptions options;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(tools::tell(options, report, rows), 0);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(times_in(text, "small"), 1U) << text;
  EXPECT_EQ(times_in(text, "large"), 1U) << text;
  EXPECT_EQ(times_in(text, "4.00 x"), 1U) << text;
  EXPECT_EQ(times_in(text, "2.00 x"), 1U) << text;
  EXPECT_EQ(times_in(text, "0.00 x"), 0U) << text;
  EXPECT_EQ(times_in(text, "why parent"), 1U) << text;
  options.as_json = true;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(tools::tell(options, report, rows), 0);
  const std::string json = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(times_in(json, "\"monotone\": true"), 1U) << json;
  EXPECT_EQ(times_in(json, "\"problem\": null"), 1U) << json;
  EXPECT_EQ(times_in(json, "\"name\": \"large\""), 2U) << json;
}

}  // namespace
}  // namespace falchion::testing
