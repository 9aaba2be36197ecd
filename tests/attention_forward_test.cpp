// tests/attention_forward_test.cpp: cases.def x every CPU level x every dtype, by the tolerance rule
// (support/compare.hpp).
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "cpu/levels.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "support/compare.hpp"
#include "support/instance.hpp"
#include "support/paths.hpp"

namespace falchion::testing {
namespace {

/// The inputs and what they must give: computed once for all levels.
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

/// Rows of a level share a test, so that ctest starts a process a level and dtype, not one a row.
class AttentionForward : public ::testing::TestWithParam<std::tuple<Path, DType>> {};

TEST_P(AttentionForward, Cases) {
  const auto& [path, dtype] = GetParam();
  for (const cpu::Level& level : cpu::cpu_levels()) {
    if (path.level == level.name && !level.usable) GTEST_SKIP() << path.name() << ": " << level.why_not;
  }
  if (!path.has(dtype)) GTEST_SKIP() << path.name() << " " << name(dtype) << ": this build has no such row";
  for (std::size_t i = 0; i < cases().size(); ++i) {
    SCOPED_TRACE(cases()[i].name);
    Prepared& x = prepared(i, dtype);
    const Status status = run(path, &x.instance);
    ASSERT_TRUE(status) << status.why;
    EXPECT_TRUE(matches(x.instance, x.reference));
  }
}

std::vector<Path> built_paths() {
  std::vector<Path> out{{}};
  for (const cpu::Level& level : cpu::cpu_levels()) {
    for (const Variant& variant : variants()) {
      if (std::string(variant.level) != level.name) continue;
      out.push_back({Backend::cpu, level.name});
      break;
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Levels, AttentionForward,
                         ::testing::Combine(::testing::ValuesIn(built_paths()), ::testing::ValuesIn(kTypes)),
                         [](const auto& info) {
                           return text(std::get<0>(info.param).name(), "_", name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace falchion::testing
