// tests/attention_forward_test.cpp: runs each case of cases.def on every path of this build in every dtype and judges
// the results by the tolerance rule (support/compare.hpp).
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "plan/text.hpp"
#include "support/compare.hpp"
#include "support/instance.hpp"
#include "support/paths.hpp"

namespace falchion::testing {
namespace {

/// The inputs and the results that they must give. They are computed once and serve all paths.
struct Prepared {
  Instance instance;
  Reference reference;
};
Prepared& prepared(std::size_t index, DType dtype) {
  static std::map<std::pair<std::size_t, DType>, Prepared> all;
  const auto found = all.find({index, dtype});
  if (found != all.end()) return found->second;
  Instance x = make_instance(cases()[index], dtype, 100 + index);
  Reference reference(x);
  return all.emplace(std::pair(index, dtype), Prepared{std::move(x), std::move(reference)}).first->second;
}

/// The cases of a level share a test, so that ctest starts one process for each level and dtype and not for each case.
class AttentionForward : public ::testing::TestWithParam<std::tuple<Path, DType>> {};

TEST_P(AttentionForward, Cases) {
  const auto& [path, dtype] = GetParam();
  if (const std::string why_not = path.why_not(); !why_not.empty()) GTEST_SKIP() << path.name() << ": " << why_not;
  if (!path.has(dtype)) GTEST_SKIP() << path.name() << " " << name(dtype) << ": this build has no such variant";
  int count = 0;
  for (std::size_t i = 0; i < cases().size(); ++i) {
    SCOPED_TRACE(cases()[i].name);
    Prepared& x = prepared(i, dtype);
    const Status status = run(path, &x.instance);
    if (path.backend == Backend::sm90 && status.code == Code::unsupported) continue;
    ASSERT_TRUE(status) << status.why;
    EXPECT_TRUE(matches(x.instance, x.reference));
    ++count;
  }
  EXPECT_GT(count, 0);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionForward);  // A build may have no variants.
INSTANTIATE_TEST_SUITE_P(Levels, AttentionForward,
                         ::testing::Combine(::testing::ValuesIn(built_paths()), ::testing::ValuesIn(kTypes)),
                         [](const auto& info) {
                           return text(std::get<0>(info.param).name(), "_", name(std::get<1>(info.param)));
                         });

INSTANTIATE_TEST_SUITE_P(NamedHopper, AttentionForward,
                         ::testing::Combine(::testing::ValuesIn(named_hopper()), ::testing::Values(DType::f32)),
                         [](const auto& info) { return std::string("sm90_") + name(std::get<1>(info.param)); });

}  // namespace
}  // namespace falchion::testing
