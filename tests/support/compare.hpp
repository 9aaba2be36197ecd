// tests/support/compare.hpp: compares a run's outputs with the definition, by the tolerance rule of src/judge.
#pragma once

#include <gtest/gtest.h>

#include "judge/attention.hpp"
#include "support/instance.hpp"

namespace falchion::testing {

using judge::unit_at;

/// What a result is compared with. The inputs of the instance must not change while this object lives, since a copy of
/// an instance is another view of the same memory.
class Reference {
 public:
  explicit Reference(const Instance& x);

  const judge::AttentionReference& judge() const { return judge_; }
  /// The definition's o, unrounded.
  float exact_o(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const;

 private:
  Instance inputs_;
  judge::AttentionReference judge_;
};

/// Checks every output of x: each row of each sequence must be written and within
/// the rule, and everything else untouched.
::testing::AssertionResult matches(const Instance& x, const Reference& reference);

/// Checks that each element of `value` at which `expected(i, j, k, l)` is true was
/// written, and nothing else of its memory.
template <class Expected>
::testing::AssertionResult written_whole(const char* what, const HostTensor& value, const Expected& expected) {
  std::int64_t count = 0;
  std::string why;
  value.for_each([&](auto i, auto j, auto k, auto l) {
    if (!expected(i, j, k, l)) return;
    ++count;
    if (why.empty() && value.is_poison(i, j, k, l))
      why = text(what, "[", i, ", ", j, ", ", k, ", ", l, "] was not written");
  });
  if (why.empty() && value.written() != count)
    why = text(what, ": ", value.written(), " elements were written, there are ", count);
  return why.empty() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << why;
}

/// Whether a NaN in o[b, i, h, d] is allowed, whatever the definition says. It is on a tensor-core path, where that
/// column of V holds NaN or Inf in some key while x hides keys (Instance::shares_tiles cites the rule).
bool masked_v_may_reach(const Instance& x, const Shape& index);

}  // namespace falchion::testing
