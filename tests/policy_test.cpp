// tests/policy_test.cpp: tests which query sees which key, exhaustively on small sizes, Philox by its published
// vectors, the derivative of a score by differences, and the conversions of every 16-bit number.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "policy/dropout.hpp"
#include "policy/dtype.hpp"
#include "policy/mask.hpp"
#include "policy/score.hpp"
#include "support/random.hpp"

namespace falchion::testing {
namespace {

bool in(const Range& range, std::int64_t k) { return range.begin <= k && k < range.end; }

/// Calls f(mask, s_q) for every band on every pair of small sizes, with both alignments.
template <class F>
void for_each_band(const F& f) {
  for (std::int64_t s_q = 1; s_q <= 6; ++s_q)
    for (std::int64_t s_k = 0; s_k <= 6; ++s_k)
      for (const std::int64_t shift : {s_k - s_q, std::int64_t{0}})
        for (std::int64_t left = -1; left <= 7; ++left)
          for (std::int64_t right = -1; right <= 7; ++right) f(BandMask::make(s_k, shift, left, right), s_q);
}

TEST(BandMask, KeepIsTheBand) {
  for (const bool bottom_right : {true, false}) {
    // Here s_q is 5 and s_k is 7.
    const BandMask mask = BandMask::make(7, bottom_right ? 2 : 0, 2, 1);
    for (std::int64_t q = 0; q < 5; ++q)
      for (std::int64_t k = -2; k < 10; ++k) {
        const std::int64_t x = k - (q + (bottom_right ? 2 : 0));
        EXPECT_EQ(mask.keep(q, k), k >= 0 && k < 7 && x >= -2 && x <= 1) << q << " " << k;
      }
  }
}

TEST(BandMask, UnboundedSidesAndHugeBoundsSeeAll) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const BandMask mask : {BandMask::make(9, -3, -1, -1), BandMask::make(9, -3, most, most)}) {
    for (std::int64_t q = 0; q < 12; ++q) EXPECT_TRUE(mask.keep(q, 0) && mask.keep(q, 8));
    EXPECT_EQ(mask.visible(0, 12).end, 9);
    EXPECT_EQ(mask.unmasked(0, 12).begin, 0);
  }
}

TEST(BandMask, KeysAreThoseThatAQuerySees) {
  for_each_band([](const BandMask& mask, std::int64_t s_q) {
    for (std::int64_t q = 0; q < s_q; ++q)
      for (std::int64_t k = -1; k <= mask.s_k; ++k) ASSERT_EQ(in(mask.keys(q), k), mask.keep(q, k));
  });
}

TEST(BandMask, VisibleIsWhatSomeQuerySees) {
  for_each_band([](const BandMask& mask, std::int64_t s_q) {
    for (std::int64_t q0 = 0; q0 < s_q; ++q0)
      for (std::int64_t q1 = q0 + 1; q1 <= s_q; ++q1)
        for (std::int64_t k = -1; k <= mask.s_k; ++k) {
          bool some = false;
          for (std::int64_t q = q0; q < q1; ++q) some = some || mask.keep(q, k);
          ASSERT_EQ(in(mask.visible(q0, q1), k), some);
        }
  });
}

TEST(BandMask, UnmaskedIsWhatEveryQuerySees) {
  for_each_band([](const BandMask& mask, std::int64_t s_q) {
    for (std::int64_t q0 = 0; q0 < s_q; ++q0)
      for (std::int64_t q1 = q0 + 1; q1 <= s_q; ++q1)
        for (std::int64_t k = -1; k <= mask.s_k; ++k) {
          bool all = true;
          for (std::int64_t q = q0; q < q1; ++q) all = all && mask.keep(q, k);
          ASSERT_EQ(in(mask.unmasked(q0, q1), k), all);
        }
  });
}

// These are Random123's kat_vectors for philox4x32 with 10 rounds.
TEST(Philox, PublishedVectors) {
  const auto expect = [](const Philox::Block& block, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                         std::uint32_t d) {
    const std::uint32_t want[] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], want[i]) << i;
  };
  constexpr std::uint32_t ones = 0xFFFFFFFFu;
  expect(Philox{{0, 0}}(0, 0, 0, 0), 0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8);
  expect(Philox{{ones, ones}}(ones, ones, ones, ones), 0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD);
  expect(Philox{{0xA4093822, 0x299F31D0}}(0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0xD16CFE09, 0x94FDCCEB,
         0x5001E420, 0x24126EA1);
}

TEST(Dropout, KeepsItsShare) {
  for (const float p : {0.f, 0.1f, 0.5f, 0.999f, 1.f}) {
    const DropoutMask mask = DropoutMask::make(p, 42, 7);
    int kept = 0;
    constexpr int n = 200;
    for (std::int64_t bh = 0; bh < 4; ++bh)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) kept += mask.keep(0, bh, i, j) ? 1 : 0;
    const double total = 4. * n * n, sigma = std::sqrt(total * p * (1 - p));
    EXPECT_NEAR(kept, total * (1 - p), 4 * sigma) << p;
    EXPECT_FLOAT_EQ(mask.keep_scale, p < 1 ? 1 / (1 - p) : 0);
  }
}

TEST(Dropout, ProbabilityHas32Bits) {
  EXPECT_EQ(DropoutMask::make(0x1p-32f, 0, 0).threshold, 1u);
  EXPECT_EQ(DropoutMask::make(1.f, 0, 0).threshold, std::uint64_t{1} << 32);
}

TEST(Dropout, EachNumberOfTheKeyCounts) {
  const auto bits = [](std::uint64_t seed, std::uint64_t offset, std::int64_t bh, std::int64_t i) {
    const DropoutMask mask = DropoutMask::make(0.5f, seed, offset);
    std::uint64_t out = 0;
    for (int j = 0; j < 64; ++j) out = out << 1 | (mask.keep(0, bh, i, j) ? 1 : 0);
    return out;
  };
  const std::uint64_t base = bits(1, 2, 3, 4);
  EXPECT_EQ(bits(1, 2, 3, 4), base);
  EXPECT_NE(bits(2, 2, 3, 4), base);
  EXPECT_NE(bits(1 + (std::uint64_t{1} << 32), 2, 3, 4), base);
  EXPECT_NE(bits(1, 3, 3, 4), base);
  EXPECT_NE(bits(1, 2 + (std::uint64_t{1} << 32), 3, 4), base);
  EXPECT_NE(bits(1, 2, 4, 4), base);
  EXPECT_NE(bits(1, 2, 3, 5), base);
}

TEST(ScoreMod, GradIsTheDerivative) {
  for (const double scale : {0.125, 1.0, -0.7})
    for (const double softcap : {0.0, 2.0, 30.0})
      for (const double slope : {0.0, 0.25})
        for (double dot = -9; dot <= 9; dot += 0.75) {
          const ScoreMod<double> mod{scale, softcap, slope};
          constexpr double h = 1e-5;
          const double difference = (mod.apply(dot + h, -3) - mod.apply(dot - h, -3)) / (2 * h);
          EXPECT_NEAR(mod.grad(dot), difference, 1e-8) << scale << " " << softcap << " " << dot;
        }
}

// The order is softcap(scale * dot) - slope * |distance|.
TEST(ScoreMod, InOrder) {
  EXPECT_DOUBLE_EQ((ScoreMod<double>{0.5, 0, 0}.apply(6, 4)), 3);
  EXPECT_DOUBLE_EQ((ScoreMod<double>{0.5, 2, 0}.apply(6, 4)), 2 * std::tanh(1.5));
  EXPECT_DOUBLE_EQ((ScoreMod<double>{0.5, 2, 0.25}.apply(6, -4)), 2 * std::tanh(1.5) - 1);
}

TEST(DType, Every16BitNumberSurvives) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float half = f32_from_f16(bits), brain = f32_from_bf16(bits);
    if (std::isnan(half)) {
      ASSERT_TRUE(std::isnan(f32_from_f16(f16_from_f32(half))));
    } else {
      ASSERT_EQ(f16_from_f32(half), bits);
    }
    if (std::isnan(brain)) {
      ASSERT_EQ(bf16_from_f32(brain), bits | 0x40) << "a NaN keeps its payload and is quiet";
    } else {
      ASSERT_EQ(bf16_from_f32(brain), bits);
    }
  }
}

TEST(DType, F16Values) {
  EXPECT_EQ(f32_from_f16(0x3C00), 1.f);
  EXPECT_EQ(f32_from_f16(0xC500), -5.f);
  EXPECT_EQ(f32_from_f16(0x7BFF), 65504.f);
  EXPECT_EQ(f32_from_f16(0x0001), 0x1p-24f);
  EXPECT_EQ(f32_from_f16(0x03FF), 1023 * 0x1p-24f);
  EXPECT_EQ(f32_from_f16(0xFC00), -INFINITY);
}

/// An f32 must be rounded to the nearer neighbour, and to the even one if it lies in the middle.
template <class From, class To>
void check_rounding(From from_f32, To to_f32, std::uint16_t largest) {
  for (std::uint16_t low = 0; low < largest; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float a = to_f32(low), b = to_f32(high);
    const float middle = static_cast<float>((static_cast<double>(a) + static_cast<double>(b)) / 2);
    const std::uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(from_f32(middle), even) << low;
    ASSERT_EQ(from_f32(-middle), even | 0x8000) << low;
    ASSERT_EQ(from_f32(std::nextafter(middle, a)), low);
    ASSERT_EQ(from_f32(std::nextafter(middle, b)), high);
  }
}
TEST(DType, RoundsToNearestEven) {
  check_rounding([](float x) { return f16_from_f32(x); }, [](std::uint16_t x) { return f32_from_f16(x); }, 0x7BFF);
  check_rounding([](float x) { return bf16_from_f32(x); }, [](std::uint16_t x) { return f32_from_bf16(x); }, 0x7F7F);
  EXPECT_EQ(f16_from_f32(65519.99f), 0x7BFF);
  EXPECT_EQ(f16_from_f32(65520.f), 0x7C00);
  EXPECT_EQ(f16_from_f32(-1e30f), 0xFC00);
  EXPECT_EQ(bf16_from_f32(3.4e38f), 0x7F80);
}

TEST(RandomNormal, IsNormal) {
  double sum = 0, squares = 0;
  constexpr int n = 100000;
  for (std::uint64_t i = 0; i < n; ++i) {
    const double x = random_normal(5, i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.03);
}

}  // namespace
}  // namespace falchion::testing
