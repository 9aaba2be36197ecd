// tests/support/compare.cpp: implements compare.hpp.
#include "support/compare.hpp"

#include "plan/text.hpp"
#include "ref/elements.hpp"

namespace falchion::testing {

using judge::AttentionOutput;
using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

bool masked_v_may_reach(const Instance& x, const Shape& index) {
  return x.shares_tiles && judge::masked_v_may_reach(x.problem, x.operands(), index);
}

Reference::Reference(const Instance& x) : inputs_(x), judge_(inputs_.problem, inputs_.operands()) {}

float Reference::exact_o(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const {
  const Tensor& o = judge_.exact(AttentionOutput::o);
  return ref::load(o, ref::at(o, b, i, h, d));
}

AssertionResult matches(const Instance& x, const Reference& reference) {
  const judge::AttentionReference& judge = reference.judge();
  const HostTensor* const outputs[] = {&x.o, &x.lse, &x.row_max, &x.probabilities};
  for (std::size_t n = 0; n < 4; ++n) {
    const auto which = static_cast<AttentionOutput>(n);
    if (!judge.has(which)) continue;
    const auto is_row = [&](std::int64_t b, std::int64_t i, std::int64_t j, std::int64_t) {
      return judge.is_row(b, which == AttentionOutput::o ? i : j);
    };
    const HostTensor& value = *outputs[n];
    if (AssertionResult whole = written_whole(judge::kAttentionOutputs[n], value, is_row); !whole) return whole;
    const judge::ErrorReport report = judge.check(which, value.view(), x.shares_tiles);
    if (!report.passed()) return AssertionFailure() << report.why;
  }
  return AssertionSuccess();
}

}  // namespace falchion::testing
