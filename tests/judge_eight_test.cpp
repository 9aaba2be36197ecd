// tests/judge_eight_test.cpp: what the tolerance rule lets through and what it does not, of attention of q of 8 bits
// (docs/contract.md, "8 bits: the tolerance").
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "support/contract.hpp"
#include "support/eight.hpp"

namespace falchion::testing {
namespace {

/// A kernel of tiles of `tile` keys: r of the tile alone, `lower` bits above it, a rescale for each tile. What it does
/// wrong:
struct Kernel {
  std::int64_t tile = 128;
  int lower = 0;
  std::function<float(float)> round = [](float p) { return f32_from_e4m3(e4m3_from_f32(p)); };
  std::function<float(float)> keep = [](float sum) { return sum; };  // what an accumulator has after an addition
  bool rounded_sum = true;                                           // else divided by the sum of what was rounded
};

constexpr double kLog2e = 1.4426950408889634;

/// o of an unpacked problem without a band.
void compute(const Kernel& kernel, Instance* x) {
  const Attention& a = x->problem;
  const float scale = a.score.scale != 0 ? a.score.scale : 1 / std::sqrt(static_cast<float>(a.d_qk));
  x->o.for_each([&](auto b, auto i, auto h, auto d) {
    if (d != 0) return;
    const std::int64_t h_k = h / (a.h_q / a.h_k);
    std::vector<float> o(static_cast<std::size_t>(a.d_v)), s;
    for (std::int64_t j = 0; j < a.s_k; ++j) {
      float dot = 0;
      for (std::int64_t c = 0; c < a.d_qk; ++c) dot += x->q.get(b, i, h, c) * x->k.get(b, j, h_k, c);
      s.push_back(static_cast<float>(kLog2e) * scale * dot);
    }
    float l = 0, reference = -1e30F;
    for (std::int64_t first = 0; first < a.s_k; first += kernel.tile) {
      const auto begin = s.begin() + first, end = s.begin() + std::min(a.s_k, first + kernel.tile);
      const float r = std::ceil(*std::max_element(begin, end)) + static_cast<float>(kernel.lower);
      const float from = std::exp2(reference - std::max(reference, r)), to = std::exp2(r - std::max(reference, r));
      reference = std::max(reference, r);
      l *= from;
      for (float& one : o) one *= from;
      for (auto at = begin; at != end; ++at) {
        const float p = std::exp2(8 + *at - r), rounded = kernel.round(p);
        l += to * (kernel.rounded_sum ? rounded : p);
        for (std::int64_t c = 0; c < a.d_v; ++c) {
          float& one = o[static_cast<std::size_t>(c)];
          one = kernel.keep(one + to * rounded * x->v.get(b, at - s.begin(), h_k, c));
        }
      }
    }
    for (std::int64_t c = 0; c < a.d_v; ++c) x->o.set(b, i, h, c, o[static_cast<std::size_t>(c)] / l);
  });
}

Instance normal(std::int64_t s_k, float mean = 0, std::int64_t s_q = 16) {
  Case row{"x", 1, s_q, s_k, 2, 2, 32, 128};
  row.options.lse = false;
  Instance x = make_eight(row, kEightTypes[1], Shares::no, 5);
  if (mean != 0) x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, mean + x.v.get(b, s, h, d)); });
  return x;
}

bool passes(const Kernel& kernel, Instance* x) {
  compute(kernel, x);
  return matches(*x, Reference(*x));
}

/// With one bit of fraction less than e4m3 has.
float coarse(float p) {
  int exponent = 0;
  const float fraction = std::frexp(p, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 3)), exponent - 3);
}

TEST(JudgeEight, TilesAndHigherReferencesAreRight) {
  for (const std::int64_t s_k : {1, 7, 500}) {
    for (const float mean : {0.F, 2.F}) {
      Instance x = normal(s_k, mean);
      EXPECT_TRUE(passes({}, &x)) << s_k;
      EXPECT_TRUE(passes({.tile = 16}, &x)) << s_k;
      EXPECT_TRUE(passes({.lower = 2}, &x)) << s_k;
    }
  }
}

TEST(JudgeEight, CoarseProbabilitiesAreNotRight) {
  Instance x = normal(500);
  EXPECT_FALSE(passes({.round = coarse}, &x)) << "by the root mean square";
  x = normal(500);
  EXPECT_FALSE(passes({.lower = 12}, &x)) << "P is at most 2^-4";
}

/// P off by 0.07, up and down: within each element's bound, but more than rounding does on the whole.
TEST(JudgeEight, FewProbabilitiesAreNotHeldToTheMean) {
  const auto off = [](float p) { return p * (std::fmod(p * 4096, 2.F) < 1 ? 1.07F : 0.93F); };
  Instance many = normal(500), few = normal(100), short_rows = normal(50, 0, 60);
  EXPECT_FALSE(passes({.round = off}, &many)) << "32 rows see 16000 keys";
  EXPECT_TRUE(passes({.round = off}, &few)) << "32 rows see 3200 keys";
  EXPECT_TRUE(passes({.round = off}, &short_rows)) << "120 rows see 6000 keys, but each only 50";
}

/// The same V for all keys comes back.
TEST(JudgeEight, AConstantVIsNoMatterOfRounding) {
  for (const std::int64_t s_k : {1, 3, 500}) {
    Instance x = normal(s_k);
    x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, 1.25F); });
    EXPECT_TRUE(passes({}, &x));
    if (s_k <= 3) { EXPECT_FALSE(passes({.rounded_sum = false}, &x)); }
  }
}

/// Of 13 bits, as the accumulators of e4m3 on Hopper: over 8000 keys in one of them O of a V of mean 1 is far off.
TEST(JudgeEight, AnAccumulatorOf13BitsIsNotRight) {
  const auto keep = [](float sum) {
    int exponent = 0;
    const float fraction = std::frexp(sum, &exponent);
    return std::ldexp(std::trunc(std::ldexp(fraction, 14)), exponent - 14);
  };
  Instance x = normal(8000, 1);
  x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, 0); });
  EXPECT_TRUE(passes({}, &x));
  EXPECT_FALSE(passes({.keep = keep}, &x));
}

TEST(JudgeEight, OneElementOfMany) {
  for (const EightTypes& types : kEightTypes) {
    SCOPED_TRACE(name(types));
    Instance x = make_eight(Case{"x", 2, 30, 300, 4, 2, 64, 64}.causal().softcap(20).sinks(), types, Shares::token);
    ASSERT_TRUE(run(Target(Backend::ref), &x));
    const Reference reference(x);
    EXPECT_TRUE(matches(x, reference));
    const float o = x.o.get(1, 20, 3, 9), lse = x.lse.get(1, 2, 20, 0);
    x.o.set(1, 20, 3, 9, o + 0.1F);
    EXPECT_FALSE(matches(x, reference));
    x.o.set(1, 20, 3, 9, kNan);
    EXPECT_FALSE(matches(x, reference));
    x.o.set(1, 20, 3, 9, o);
    // The sum of the P that are multiplied with V of e4m3 may be off by 0.085 of itself.
    x.lse.set(1, 2, 20, 0, lse + (types.v == DType::e4m3 ? 0.12F : 0.05F));
    EXPECT_FALSE(matches(x, reference));
  }
}

/// What `falchion verify` prints of it.
TEST(JudgeEight, TheErrorOfTheWhole) {
  Instance x = normal(500);
  compute({}, &x);
  const Reference reference(x);
  const judge::ErrorReport report = reference.judge().check(judge::AttentionOutput::o, x.o.view(), false);
  EXPECT_EQ(report.count, 16 * 2 * 128);
  EXPECT_NEAR(report.relative_rms(), 0.03, 0.01);
  EXPECT_NEAR(report.one_minus_cosine(), 0.5 * report.relative_rms() * report.relative_rms(), 1e-4);
  x.o.for_each([&](auto b, auto i, auto h, auto d) { x.o.set(b, i, h, d, 2 * reference.exact_o(b, i, h, d)); });
  const judge::ErrorReport twice = reference.judge().check(judge::AttentionOutput::o, x.o.view(), false);
  EXPECT_NEAR(twice.relative_rms(), 1, 0.01);
  EXPECT_NEAR(twice.one_minus_cosine(), 0, 1e-4);
  EXPECT_FALSE(twice.passed());
}

}  // namespace
}  // namespace falchion::testing
