// tests/backward_derivative_test.cpp: shows that the gradients of the definition (src/ref/attention_backward.cpp) are
// the derivatives of attention. The loss sum(grad_o o) + sum(grad_lse lse) is computed here in complex numbers, from
// the formula and without the library's code. Where one input is moved by a tiny imaginary step, the imaginary part of
// the loss, divided by the step, is the derivative to all digits of double, because nothing is subtracted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "policy/dropout.hpp"
#include "support/gradients.hpp"

namespace falchion::testing {
namespace {

using Complex = std::complex<double>;
constexpr double kStep = 1e-40;

/// The loss as a function of one element of one input.
class Loss {
 public:
  Loss(const Gradients& all, const HostTensor* moved, const Shape& at) : all_(all), moved_(moved), at_(at) {}

  double derivative() const {
    const Attention& a = all_.x.problem;
    Complex loss = 0;
    for (std::int64_t b = 0; b < a.b; ++b)
      for (std::int64_t h = 0; h < a.h_q; ++h)
        for (std::int64_t i = 0; i < all_.x.q_rows(b).length; ++i) loss += row(b, h, i);
    return loss.imag() / kStep;
  }

 private:
  Complex value(const HostTensor& x, std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
    const Shape& n = x.shape();
    const Shape at{n[0] == 1 ? 0 : i, n[1] == 1 ? 0 : j, n[2] == 1 ? 0 : k, n[3] == 1 ? 0 : l};
    return {x.get(at[0], at[1], at[2], at[3]), &x == moved_ && at == at_ ? kStep : 0};
  }
  std::int64_t shift(std::int64_t b) const {
    const Band& band = all_.x.problem.band;
    if (band.align == Align::at) return band.offset;
    return band.align == Align::top_left ? 0 : all_.x.k_rows(b).length - all_.x.q_rows(b).length;
  }
  std::int64_t column(std::int64_t b, std::int64_t j) const {
    return all_.x.problem.first_k ? all_.x.k_rows(b).begin + j : j;  // no packed problem has both
  }
  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const Attention& a = all_.x.problem;
    const std::int64_t x = j - i - shift(b);
    if ((a.band.left >= 0 && x < -a.band.left) || (a.band.right >= 0 && x > a.band.right)) return false;
    if (a.mask && value(all_.x.mask, b, h, i, column(b, j)).real() == 0) return false;
    return !a.bias || std::isfinite(value(all_.x.bias, b, h, i, column(b, j)).real());
  }
  Complex score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const Attention& a = all_.x.problem;
    const Instance::Rows q = all_.x.q_rows(b), k = all_.x.k_rows(b);
    Complex s = 0;
    for (std::int64_t d = 0; d < a.d_qk; ++d) {
      s += value(all_.x.q, q.batch, q.begin + i, h, d) * value(all_.x.k, k.batch, k.begin + j, h / (a.h_q / a.h_k), d);
    }
    s *= a.score.scale != 0 ? a.score.scale : 1 / std::sqrt(static_cast<double>(a.d_qk));
    const double cap = a.score.softcap;
    if (cap > 0) s = cap * std::tanh(s / cap);
    if (a.alibi) s -= value(all_.x.alibi, b, 0, h, 0) * static_cast<double>(std::abs(i + shift(b) - j));
    return a.bias ? s + value(all_.x.bias, b, h, i, column(b, j)) : s;
  }
  /// What one row adds to the loss.
  Complex row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const Attention& a = all_.x.problem;
    const Instance::Rows q = all_.x.q_rows(b), k = all_.x.k_rows(b);
    const DropoutMask dropout = DropoutMask::make(a.dropout, all_.x.rng.seed, all_.x.rng.offset);
    Complex sum = 0, product = 0;
    for (std::int64_t j = 0; j < k.length; ++j) {
      if (!sees(b, h, i, j)) continue;
      const Complex weight = std::exp(score(b, h, i, j));
      sum += weight;
      if (a.dropout > 0 && !dropout.keep(0, b * a.h_q + h, i, j)) continue;
      for (std::int64_t d = 0; d < a.d_v; ++d) {
        product += weight * value(all_.x.v, k.batch, k.begin + j, h / (a.h_q / a.h_k), d) *
                   static_cast<double>(all_.grad_o.get(q.batch, q.begin + i, h, d));
      }
    }
    if (a.sinks) sum += std::exp(value(all_.x.sinks, b, 0, h, 0));
    if (sum == 0.0) return 0;
    const double keep_scale = a.dropout > 0 ? dropout.keep_scale : 1;
    const Complex lse =
        a.grad_lse ? std::log(sum) * static_cast<double>(all_.grad_lse.get(q.batch, h, q.begin + i, 0)) : 0;
    return keep_scale * product / sum + lse;
  }

  const Gradients& all_;
  const HostTensor* moved_;
  const Shape at_;
};

/// Compares each element of a gradient with the derivative. o and lse are f32, so neither is exact beyond some 1e-7.
void expect_derivatives(const char* name, const Gradients& all, const HostTensor& input, const HostTensor& gradient) {
  double largest = 0, worst = 0;
  gradient.for_each([&](auto i, auto j, auto k, auto l) {
    if (gradient.is_poison(i, j, k, l)) return;  // a row of no sequence
    const double wanted = Loss(all, &input, {i, j, k, l}).derivative();
    largest = std::max(largest, std::abs(wanted));
    const double error = std::abs(gradient.get(i, j, k, l) - wanted);
    worst = error <= worst ? worst : error;  // a NaN becomes the worst
  });
  EXPECT_GT(largest, 0.01) << name << ": there is nothing to compare";
  EXPECT_LE(worst, 2e-6 * std::max(largest, 1.0)) << name << ": the largest is " << largest;
}

/// Whether exactly the rows of some sequence are written.
void expect_written(const char* name, const HostTensor& gradient, const auto& is_row) {
  int wrong = 0;
  gradient.for_each([&](auto b, auto s, auto h, auto d) { wrong += gradient.is_poison(b, s, h, d) == is_row(b, s); });
  EXPECT_EQ(wrong, 0) << name << " is written where it should not be, or left out";
}

struct Feature {
  Case row;
  Wanted wanted;
};
using Bias = Case::Bias;

std::vector<Feature> features() {
  const auto small = [](const char* name) { return Case{name, 2, 4, 5, 4, 2, 3, 2}; };
  std::vector<Feature> all = {
      {small("full"), {}},
      {small("lse"), {.grad_lse = true}},
      {small("causal").causal(), {}},
      {small("causal_top_left").causal(Align::top_left), {.grad_lse = true}},
      {small("causal_at").causal(Align::at, 2), {.grad_lse = true}},
      {small("alibi_at").alibi().causal(Align::at, 2), {.grad_alibi = {1, 1, 4, 1}}},
      {small("window").window(2, 1), {}},
      {small("negative_scale").scale(-0.7f), {}},
      {small("softcap").softcap(0.8f).scale(1), {.grad_lse = true}},
      {small("alibi").alibi(), {.grad_alibi = {1, 1, 4, 1}}},
      {small("alibi_by_batch").alibi_by_batch(), {.grad_lse = true, .grad_alibi = {2, 1, 4, 1}}},
      {small("alibi_top_left").alibi().causal(Align::top_left), {.grad_alibi = {1, 1, 4, 1}}},
      {small("bias").bias(Bias::f32), {.grad_bias = {2, 4, 4, 5}}},
      {small("bias_broadcast").bias(Bias::broadcast), {.grad_lse = true, .grad_bias = {1, 1, 1, 5}}},
      {small("mask").mask(), {}},
      {small("dropout").dropout(0.4f), {.grad_lse = true}},
      {small("sinks").sinks(), {.grad_sinks = {1, 1, 4, 1}}},
      {small("sinks_lse").sinks().causal(Align::at, -2), {.grad_lse = true, .grad_sinks = {1, 1, 4, 1}}},
      {small("sinks_by_batch").sinks_by_batch().dropout(0.4f).softcap(0.8f),
       {.grad_lse = true, .grad_sinks = {2, 1, 4, 1}}},
      {small("sinks_packed").sinks().packed({3, 0, 2}, {2, 1, 4}).causal(),
       {.grad_lse = true, .grad_sinks = {1, 1, 4, 1}}},
      {small("sinks_used").sinks_by_batch().used_q({3, 0}).used_k({2, 5}),
       {.grad_lse = true, .grad_sinks = {2, 1, 4, 1}}},
      {small("used_lengths").used_q({3, 0}).used_k({2, 5}), {.grad_lse = true}},
      {small("used_lengths_bias").used_q({3, 0}).used_k({2, 5}).bias(Bias::f32).alibi(),
       {.grad_bias = {2, 4, 4, 5}, .grad_alibi = {2, 1, 4, 1}}},
      {small("left_padding").first_k({1, 4}).causal(), {.grad_lse = true}},
      {small("left_padding_bias").first_k({2, 0}).bias(Bias::f32), {.grad_bias = {2, 4, 4, 5}}},
      {small("packed").packed({3, 0, 2}, {2, 1, 4}).causal(), {.grad_lse = true}},
      {small("gaps").layout(Layout::gaps), {}},
      {small("heads_first").layout(Layout::heads_first), {}},
      {small("everything").causal().softcap(1.5f).alibi().sinks().bias(Bias::f32).mask().dropout(0.2f),
       {.grad_lse = true, .grad_bias = {2, 4, 4, 5}, .grad_alibi = {1, 1, 4, 1}, .grad_sinks = {1, 1, 4, 1}}},
  };
  for (Feature& x : all) {
    if (!x.row.lengths_q.empty()) x.row.b = static_cast<std::int64_t>(x.row.lengths_q.size());
  }
  return all;
}

class Backward : public ::testing::TestWithParam<Feature> {};

TEST_P(Backward, IsTheDerivative) {
  Gradients all(GetParam().row, DType::f32, GetParam().wanted);
  all.run();
  if (HasFatalFailure()) return;
  expect_derivatives("grad_q", all, all.x.q, all.grad_q);
  expect_derivatives("grad_k", all, all.x.k, all.grad_k);
  expect_derivatives("grad_v", all, all.x.v, all.grad_v);
  if (all.x.problem.grad_bias) expect_derivatives("grad_bias", all, all.x.bias, all.grad_bias);
  if (all.x.problem.grad_sinks) expect_derivatives("grad_sinks", all, all.x.sinks, all.grad_sinks);
  if (all.x.problem.grad_alibi) expect_derivatives("grad_alibi", all, all.x.alibi, all.grad_alibi);
  expect_written("grad_q", all.grad_q, [&](auto b, auto s) { return all.is_row(b, s); });
  expect_written("grad_k", all.grad_k, [&](auto b, auto s) { return all.is_key(b, s); });
  expect_written("grad_v", all.grad_v, [&](auto b, auto s) { return all.is_key(b, s); });
  expect_written("grad_bias", all.grad_bias, [](auto, auto) { return true; });
  expect_written("grad_alibi", all.grad_alibi, [](auto, auto) { return true; });
  expect_written("grad_sinks", all.grad_sinks, [](auto, auto) { return true; });
}
INSTANTIATE_TEST_SUITE_P(Ref, Backward, ::testing::ValuesIn(features()),
                         [](const auto& info) { return std::string(info.param.row.name); });

/// A bias that has one element for all heads or all queries has a gradient that is summed over them, whatever the shape
/// of the bias itself.
TEST(BackwardBias, IsSummedOverEachAxisOfOneElement) {
  const Case row = Case{"bias", 2, 4, 5, 4, 2, 3, 2}.bias(Bias::f32);
  Gradients whole(row, DType::f32, {.grad_lse = true, .grad_bias = {2, 4, 4, 5}});
  whole.run();
  for (const Shape& shape :
       {Shape{1, 4, 4, 5}, Shape{2, 1, 4, 5}, Shape{2, 4, 1, 5}, Shape{2, 4, 4, 1}, Shape{1, 1, 1, 1}}) {
    Gradients some(row, DType::f32, {.grad_lse = true, .grad_bias = shape});
    some.run();
    HostTensor sums(DType::f32, shape);
    sums.for_each([&](auto i, auto j, auto k, auto l) { sums.set(i, j, k, l, 0); });
    whole.grad_bias.for_each([&](auto i, auto j, auto k, auto l) {
      const Shape at{shape[0] == 1 ? 0 : i, shape[1] == 1 ? 0 : j, shape[2] == 1 ? 0 : k, shape[3] == 1 ? 0 : l};
      sums.set(at[0], at[1], at[2], at[3], sums.get(at[0], at[1], at[2], at[3]) + whole.grad_bias.get(i, j, k, l));
    });
    some.grad_bias.for_each([&](auto i, auto j, auto k, auto l) {
      ASSERT_NEAR(some.grad_bias.get(i, j, k, l), sums.get(i, j, k, l), 2e-5) << text("shape ", shape);
    });
  }
}

}  // namespace
}  // namespace falchion::testing
