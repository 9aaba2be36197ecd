// tests/ref_test.cpp: compares the definition with numbers worked out by hand and with identities. All other tests
// compare with the definition, so nothing here may use it as its own judge.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "policy/dropout.hpp"
#include "ref/attention_forward.hpp"
#include "support/instance.hpp"

namespace falchion::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// A problem with one query of dim 1 and q = 1, so that key j's dot product is k[j] itself. v[j] has dim 1 too.
struct Row {
  Instance x;
  Row(const std::vector<float>& k, const std::vector<float>& v, Case row) {
    row.b = row.s_q = row.h_q = row.h_k = row.d_qk = row.d_v = 1;
    row.s_k = static_cast<std::int64_t>(k.size());
    if (row.options.score.scale == 0) row.options.score.scale = 1;
    row.options.row_max = row.options.probabilities = true;
    x = make_instance(row, DType::f32);
    x.q.set(0, 0, 0, 0, 1);
    for (std::size_t j = 0; j < k.size(); ++j) {
      x.k.set(0, static_cast<std::int64_t>(j), 0, 0, k[j]);
      x.v.set(0, static_cast<std::int64_t>(j), 0, 0, v[j]);
    }
  }
  void run(ref::Rounding rounding = {}) {
    x.poison_outputs();
    ref::attention_forward(x.problem, x.operands(), rounding);
  }
  void expect_empty() const {
    EXPECT_EQ(o(), 0);
    EXPECT_EQ(lse(), -kInf);
    EXPECT_EQ(row_max(), -kInf);
    EXPECT_EQ(p(0), 0);
  }
  float o() const { return x.o.get(0, 0, 0, 0); }
  float lse() const { return x.lse.get(0, 0, 0, 0); }
  float row_max() const { return x.row_max.get(0, 0, 0, 0); }
  float p(std::int64_t j) const { return x.probabilities.get(0, 0, 0, j); }
};
Case plain() { return Case{"row", 1, 1, 1, 1, 1, 1, 1}; }
const float kLog3 = std::log(3.f);

TEST(Ref, TwoKeysByHand) {
  Row row({0, kLog3}, {0, 4}, plain());
  row.run();
  EXPECT_FLOAT_EQ(row.o(), 3);
  EXPECT_FLOAT_EQ(row.lse(), std::log(4.f));
  EXPECT_FLOAT_EQ(row.row_max(), kLog3);
  EXPECT_FLOAT_EQ(row.p(0), 0.25f);
  EXPECT_FLOAT_EQ(row.p(1), 0.75f);
}

TEST(Ref, ScaleZeroIsOneOverRootD) {
  Instance x = make_instance(Case{"x", 1, 1, 2, 1, 1, 4, 1}, DType::f32);
  for (std::int64_t d = 0; d < 4; ++d) {
    x.q.set(0, 0, 0, d, 1);
    x.k.set(0, 0, 0, d, 0);
    x.k.set(0, 1, 0, d, kLog3 / 2);
  }
  x.v.set(0, 0, 0, 0, 0);
  x.v.set(0, 1, 0, 0, 4);
  ref::attention_forward(x.problem, x.operands(), {});
  EXPECT_FLOAT_EQ(x.o.get(0, 0, 0, 0), 3);  // 4 * log(3) / 2 / sqrt(4) = log(3)
}

TEST(Ref, NegativeScale) {
  Row row({0, kLog3}, {0, 4}, plain().scale(-1));
  row.run();
  EXPECT_FLOAT_EQ(row.o(), 1);
}

TEST(Ref, Softcap) {
  Row row({0, 1.5f}, {0, 1}, plain().softcap(2));
  row.run();
  EXPECT_FLOAT_EQ(row.row_max(), 2 * std::tanh(0.75f));
}

TEST(Ref, SoftcapComesBeforeBiasAndMask) {
  Row row({100, 100}, {1, 2}, plain().softcap(1).bias(Case::Bias::f32));
  row.x.bias.set(0, 0, 0, 0, 5);
  row.x.bias.set(0, 0, 0, 1, -kInf);
  row.run();
  EXPECT_FLOAT_EQ(row.row_max(), 6);
  EXPECT_FLOAT_EQ(row.o(), 1);
}

TEST(Ref, AlibiCountsFromTheDiagonal) {
  Row bottom({0, 0, 0}, {1, 2, 3}, plain().alibi());  // The only query stands at the last key.
  bottom.x.alibi.set(0, 0, 0, 0, kLog3);
  bottom.run();
  EXPECT_FLOAT_EQ(bottom.p(2) / bottom.p(1), 3);
  EXPECT_FLOAT_EQ(bottom.p(1) / bottom.p(0), 3);
  Row top({0, 0, 0}, {1, 2, 3}, plain().alibi().window(Band::unbounded, 2, Align::top_left));
  top.x.alibi.set(0, 0, 0, 0, kLog3);
  top.run();
  EXPECT_FLOAT_EQ(top.p(0) / top.p(1), 3);
}

TEST(Ref, KeysBeforeTheFirstDoNotExist) {
  Row row({NAN, 9, 0, kLog3}, {NAN, 9, 0, 4}, plain().first_k({2}).bias(Case::Bias::f32));
  // The columns of the bias are rows of k.
  for (std::int64_t j = 0; j < 4; ++j) row.x.bias.set(0, 0, 0, j, j == 3 ? kLog3 : 0);
  row.run();
  EXPECT_FLOAT_EQ(row.o(), 3.6f);
  EXPECT_FLOAT_EQ(row.lse(), std::log(10.f));
  EXPECT_EQ(row.p(0), 0);
  EXPECT_EQ(row.p(1), 0);
  EXPECT_FLOAT_EQ(row.p(2), 0.1f);
  EXPECT_FLOAT_EQ(row.p(3), 0.9f);
  // The query stands at key first_k.
  Row top({0, 5, 7}, {1, 2, 3}, plain().first_k({1}).causal(Align::top_left));
  top.run();
  EXPECT_EQ(top.o(), 2);
  // Distances are counted between rows, as always.
  Row alibi({9, 0, 0}, {9, 2, 3}, plain().first_k({1}).alibi());
  alibi.x.alibi.set(0, 0, 0, 0, kLog3);
  alibi.run();
  EXPECT_FLOAT_EQ(alibi.p(2) / alibi.p(1), 3);
  Row none({1, 2}, {3, 4}, plain().first_k({2}));
  none.run();
  none.expect_empty();
}

TEST(Ref, MaskAndBand) {
  // The band leaves keys 0 and 1.
  Row row({0, 0, 0, 0}, {1, 2, 4, 8}, plain().mask().window(1, 1, Align::top_left));
  for (std::int64_t j = 0; j < 4; ++j) row.x.mask.set(0, 0, 0, j, j == 1 ? 1 : 0);
  row.run();
  EXPECT_EQ(row.o(), 2);
  EXPECT_EQ(row.p(0), 0);
}

TEST(Ref, EmptyRows) {
  Row row({1, 2}, {3, 4}, plain().used_k({0}));
  row.run();
  row.expect_empty();
  Row low({-kInf, -kInf}, {3, 4}, plain());
  low.run();
  low.expect_empty();
}

TEST(Ref, NanAndInf) {
  Row score({1, NAN}, {3, 4}, plain());
  score.run();
  EXPECT_TRUE(std::isnan(score.o()) && std::isnan(score.lse()) && std::isnan(score.row_max()));
  Row value({1, 1}, {3, NAN}, plain());
  value.run();
  EXPECT_TRUE(std::isnan(value.o()));
  EXPECT_FLOAT_EQ(value.lse(), 1 + std::log(2.f));
  Row infinite({1, kInf}, {3, 4}, plain());
  infinite.run();
  EXPECT_TRUE(std::isnan(infinite.o()));
  Row value_infinite({1, 1}, {3, -kInf}, plain());
  value_infinite.run();
  EXPECT_EQ(value_infinite.o(), -kInf);
  Row unused({1, NAN}, {3, NAN}, plain().used_k({1}));
  unused.run();
  EXPECT_EQ(unused.o(), 3);
  Row masked({1, 1, NAN}, {3, NAN, NAN}, plain().mask());
  for (std::int64_t j = 0; j < 3; ++j) masked.x.mask.set(0, 0, 0, j, j == 0 ? 1 : 0);
  masked.run();
  EXPECT_EQ(masked.o(), 3);
  EXPECT_EQ(masked.lse(), 1);
  Row outside({NAN, 1}, {NAN, 3}, plain().window(0, 0));  // The band hides key 0.
  outside.run();
  EXPECT_EQ(outside.o(), 3);
}

TEST(Ref, DropoutThinsProbabilitiesAndKeepsLse) {
  Row row({0, 1, 2, 3, 4, 5}, {1, 10, 100, 1000, 10000, 100000}, plain().dropout(0.5f));
  row.run();
  const Attention& a = row.x.problem;
  const DropoutMask mask = DropoutMask::make(a.dropout, row.x.rng.seed, row.x.rng.offset);
  double o = 0, l = 0;
  for (int j = 0; j < 6; ++j) l += std::exp(static_cast<double>(j));
  for (int j = 0; j < 6; ++j)
    o += mask.keep(0, 0, 0, j) ? 2 * std::exp(static_cast<double>(j)) / l * std::pow(10., j) : 0;
  EXPECT_FLOAT_EQ(row.o(), static_cast<float>(o));
  EXPECT_FLOAT_EQ(row.lse(), static_cast<float>(std::log(l)));
}

TEST(Ref, RoundsPAndO) {
  Row row({0, -kLog3}, {0, 1}, plain());
  row.run({.p = DType::bf16});
  // The probability is 1/3 rounded to bf16, and it is divided by the unrounded sum.
  EXPECT_FLOAT_EQ(row.o(), 0.333984375f / (1 + 1 / 3.f));
  row.run({.o = DType::bf16});
  EXPECT_EQ(row.o(), 0.25f);
  Row third({0, 0, 0}, {1, 0, 0}, plain());
  third.run({.o = DType::f16});
  EXPECT_EQ(third.o(), 0.333251953125f);
}

// Query heads 0 and 1 use head 0 of K and V, and query heads 2 and 3 use head 1.
TEST(Ref, GroupedHeads) {
  Instance x = make_instance(Case{"x", 1, 2, 3, 4, 2, 8, 8}, DType::f32);
  for (std::int64_t s = 0; s < 3; ++s)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t d = 0; d < 8; ++d) x.v.set(0, s, h, d, static_cast<float>(h + 1));
  ref::attention_forward(x.problem, x.operands(), {});
  for (std::int64_t h = 0; h < 4; ++h) EXPECT_FLOAT_EQ(x.o.get(0, 1, h, 5), h < 2 ? 1 : 2);
}

// Row i of a causal square is the only row of a problem that ends there.
TEST(Ref, CausalIsPrefixAttention) {
  Instance whole = make_instance(Case{"x", 1, 6, 6, 1, 1, 8, 8}.causal(), DType::f32);
  ref::attention_forward(whole.problem, whole.operands(), {});
  for (std::int64_t i = 0; i < 6; ++i) {
    Instance one = make_instance(Case{"x", 1, 1, i + 1, 1, 1, 8, 8}, DType::f32);
    for (std::int64_t d = 0; d < 8; ++d) {
      one.q.set(0, 0, 0, d, whole.q.get(0, i, 0, d));
      for (std::int64_t j = 0; j <= i; ++j) {
        one.k.set(0, j, 0, d, whole.k.get(0, j, 0, d));
        one.v.set(0, j, 0, d, whole.v.get(0, j, 0, d));
      }
    }
    ref::attention_forward(one.problem, one.operands(), {});
    for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(one.o.get(0, 0, 0, d), whole.o.get(0, i, 0, d));
  }
}

TEST(Ref, PackedIsOneByOne) {
  Instance packed = make_instance(Case{"x", 2, 5, 7, 2, 1, 8, 8}.packed({3, 5}, {7, 2}).causal(), DType::f32);
  ref::attention_forward(packed.problem, packed.operands(), {});
  const std::int64_t q_begin[] = {0, 3}, q_length[] = {3, 5}, k_begin[] = {0, 7}, k_length[] = {7, 2};
  for (int b = 0; b < 2; ++b) {
    Instance one = make_instance(Case{"x", 1, q_length[b], k_length[b], 2, 1, 8, 8}.causal(), DType::f32);
    one.q.for_each(
        [&](auto i, auto j, auto h, auto d) { one.q.set(i, j, h, d, packed.q.get(0, q_begin[b] + j, h, d)); });
    one.k.for_each(
        [&](auto i, auto j, auto h, auto d) { one.k.set(i, j, h, d, packed.k.get(0, k_begin[b] + j, h, d)); });
    one.v.for_each(
        [&](auto i, auto j, auto h, auto d) { one.v.set(i, j, h, d, packed.v.get(0, k_begin[b] + j, h, d)); });
    ref::attention_forward(one.problem, one.operands(), {});
    one.o.for_each([&](auto i, auto j, auto h, auto d) {
      EXPECT_EQ(one.o.get(i, j, h, d), packed.o.get(0, q_begin[b] + j, h, d));
    });
  }
}

TEST(Ref, NaiveIsCloseButNotExact) {
  Instance x = make_instance(Case{"x", 1, 20, 200, 1, 1, 64, 64}, DType::bf16), naive = with_wide_output(x),
           exact = with_wide_output(x);
  ref::attention_forward(x.problem, exact.operands(), {});
  ref::attention_forward(x.problem, naive.operands(), {.p = DType::bf16, .o = DType::bf16, .single_precision = true});
  double error = 0;
  exact.o.for_each([&](auto i, auto j, auto k, auto l) {
    error = std::max(
        error, std::abs(static_cast<double>(exact.o.get(i, j, k, l)) - static_cast<double>(naive.o.get(i, j, k, l))));
  });
  EXPECT_GT(error, 1e-5);
  EXPECT_LT(error, 1e-2);
}

}  // namespace
}  // namespace falchion::testing
