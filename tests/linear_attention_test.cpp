// tests/linear_attention_test.cpp: runs each case of linear_cases.def on every path of this build in every dtype,
// forward and backward. linear_laws_test.cpp tests the operator's own laws.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/text.hpp"
#include "support/linear.hpp"

namespace falchion::testing {
namespace {

/// The inputs and the results that they must give. They are computed once and serve all paths.
struct Prepared {
  LinearInstance instance, exact;
};
Prepared& prepared(std::size_t index, DType dtype, Pass pass) {
  static std::map<std::tuple<std::size_t, DType, Pass>, Prepared> all;
  const auto found = all.find({index, dtype, pass});
  if (found != all.end()) return found->second;
  LinearInstance x = make_linear_instance(linear_cases()[index], dtype, 100 + 10 * index);
  LinearInstance exact = linear_reference(x, pass);
  return all.emplace(std::tuple(index, dtype, pass), Prepared{std::move(x), std::move(exact)}).first->second;
}

void run_cases(const Path& path, DType dtype, Pass pass) {
  const char* operation = pass == Pass::forward ? kLinearForward : kLinearBackward;
  if (const std::string why_not = path.why_not(); !why_not.empty()) GTEST_SKIP() << path.name() << ": " << why_not;
  if (!path.has(dtype, operation))
    GTEST_SKIP() << path.name() << " " << name(dtype) << ": this build has no such variant";
  for (std::size_t i = 0; i < linear_cases().size(); ++i) {
    SCOPED_TRACE(linear_cases()[i].name);
    Prepared& x = prepared(i, dtype, pass);
    const Status status = run(path.target(), pass, &x.instance);
    EXPECT_TRUE(status) << status.why;
    if (!status) continue;
    EXPECT_TRUE(matches(x.instance, x.exact, pass));
  }
}

class LinearForward : public ::testing::TestWithParam<std::tuple<Path, DType>> {};
class LinearBackward : public ::testing::TestWithParam<std::tuple<Path, DType>> {};
TEST_P(LinearForward, Cases) { run_cases(std::get<0>(GetParam()), std::get<1>(GetParam()), Pass::forward); }
TEST_P(LinearBackward, Cases) { run_cases(std::get<0>(GetParam()), std::get<1>(GetParam()), Pass::backward); }

const auto path_and_type = [](const auto& info) {
  return text(std::get<0>(info.param).name(), "_", name(std::get<1>(info.param)));
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LinearForward);  // A build may have no variants.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LinearBackward);
INSTANTIATE_TEST_SUITE_P(Levels, LinearForward,
                         ::testing::Combine(::testing::ValuesIn(built_paths(kLinearForward)),
                                            ::testing::ValuesIn(kTypes)),
                         path_and_type);
INSTANTIATE_TEST_SUITE_P(Levels, LinearBackward,
                         ::testing::Combine(::testing::ValuesIn(built_paths(kLinearBackward)),
                                            ::testing::ValuesIn(kTypes)),
                         path_and_type);

}  // namespace
}  // namespace falchion::testing
