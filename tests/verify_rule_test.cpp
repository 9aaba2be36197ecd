// tests/verify_rule_test.cpp: tests the tolerance rule of src/judge where the naive computation happens to be nearly
// exact. A right result must still pass, and a wrong one must still be found.
#include <gtest/gtest.h>

#include <random>

#include "judge/linear_attention.hpp"
#include "problem/errors.hpp"
#include "problem/levels.hpp"

namespace falchion::tools {
namespace {

/// Returns a problem of one query on a few keys. It has so few numbers that the naive sum is now and then nearly exact.
Instance small_problem(DType dtype, std::uint64_t seed) {
  Attention a{.b = 1};
  a.dtype = dtype;
  a.s_q = 1;
  a.s_k = 1 + static_cast<std::int64_t>(seed % 7);
  a.d_qk = 1 + static_cast<std::int64_t>(seed % 5);
  a.d_v = 1;
  a.lse = true;
  return make_instance(a, seed);
}

TEST(VerifyRule, CorrectOneTokenProblemsPassHoweverLuckyTheNaiveSumWas) {
  int needed = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Path& path : usable_paths(dtype, false, false)) {
      for (std::uint64_t seed = 0; seed < 400; ++seed) {
        const Instance x = small_problem(dtype, seed);
        const Reference reference(x);
        const Verdict verdict = verify_path(x, reference, path.target(1));
        ASSERT_TRUE(verdict.passed()) << path.name() << " seed " << seed << ": " << verdict.why;
        for (const auto& [output, report] : verdict.outputs)
          needed += report.error > 2 * report.naive_error + report.unit ? 1 : 0;
      }
    }
  }
  EXPECT_GT(needed, 0) << "the rule without what is granted would do";
}

/// One key of many is left out, or has the weight of another key. Errors of that kind, which faults make, are far
/// beyond what is granted.
TEST(VerifyRule, AWrongResultIsFound) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Attention a{.b = 1};
    a.dtype = dtype;
    a.s_q = 20;
    a.s_k = 100;
    a.d_qk = a.d_v = 32;
    a.lse = true;
    const Instance x = make_instance(a, 1);
    const Reference reference(x);
    Attention fewer = a;
    fewer.s_k = 99;
    Operands operands = x.operands();
    operands.k.shape[1] = operands.v.shape[1] = 99;
    const Outputs outputs(x, dtype);
    outputs.attach(&operands);
    const Prepared prepared(fewer, Target(Backend::ref));
    ASSERT_TRUE(prepared.run(operands));
    EXPECT_FALSE(reference.check_o(outputs.o.view).passed());
    EXPECT_FALSE(reference.check_lse(outputs.lse.view).passed());
  }
}

/// All scores are -1e9. What is granted must leave equal weights equal, so that a weight that is 1 % off is found there
/// too.
TEST(VerifyRule, EqualScoresFarDownAreHeldToTheUsualLimit) {
  Attention a{.b = 1};
  a.dtype = DType::f32;
  a.s_q = 1;
  a.s_k = 50;
  a.d_qk = a.d_v = 8;
  a.bias = true;
  Instance x = make_instance(a, 1);
  for (std::int64_t d = 0; d < 8; ++d) store_element(x.q.view, 0, 0, 0, d, 0);
  for (std::int64_t j = 0; j < 50; ++j) store_element(x.bias.view, 0, 0, 0, j, -1e9);
  const Reference reference(x);
  const Outputs outputs(x, DType::f32);
  Operands operands = x.operands();
  outputs.attach(&operands);
  ASSERT_TRUE(Prepared(a, Target(Backend::ref)).run(operands));
  EXPECT_TRUE(reference.check_o(outputs.o.view).passed());
  store_element(outputs.o.view, 0, 0, 0, 3, 1.01 * load_element(outputs.o.view, 0, 0, 0, 3));
  EXPECT_FALSE(reference.check_o(outputs.o.view).passed());
}

TEST(VerifyRule, NanAndInfAreWhereTheyMustBe) {
  using judge::same_special;
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(same_special(DType::f32, nan, nan));
  EXPECT_FALSE(same_special(DType::f32, 1, nan));
  EXPECT_FALSE(same_special(DType::f32, nan, 1));
  EXPECT_FALSE(same_special(DType::f32, inf, -inf));
  EXPECT_FALSE(same_special(DType::f16, inf, 60000));
  EXPECT_TRUE(same_special(DType::f16, inf, 65500));  // One unit more would be past f16's range.
  EXPECT_FALSE(same_special(DType::f16, -inf, 65500));
}

}  // namespace
}  // namespace falchion::tools
