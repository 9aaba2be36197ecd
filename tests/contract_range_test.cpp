// tests/contract_range_test.cpp: the rules of docs/contract.md at the ends of the number range, where the shortcuts of
// the kernels could become visible: masks made of large finite numbers, scores past 2^20, and values so small that AMX
// counts them as 0.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "api/data_of.hpp"
#include "plan/plan_data.hpp"
#include "support/contract.hpp"

namespace falchion::testing {
namespace {

/// Plants left padding and a causal mask as inference engines write them: a large negative number for each key that is
/// not meant to be seen.
void pad_with(Instance* x, float value, std::int64_t padding) {
  x->bias.for_each([&](auto b, auto h, auto i, auto j) { x->bias.set(b, h, i, j, j < padding || j > i ? value : 0); });
}

TEST(Contract, FiniteMasksInABias) {
  for (const float value : {-1e9f, -1e10f, -1e30f, -2.38e38f, -3.3895e38f}) {
    for (const std::int64_t padding : {0, 70}) {
      SCOPED_TRACE(::testing::Message() << value << " padding " << padding);
      planted(
          Case{"x", 1, 96, 96, 2, 1, 32, 32}.bias(Case::Bias::f32), [&](Instance& x) { pad_with(&x, value, padding); },
          [&](const Instance& x) {
            for (std::int64_t i = 0; i < 96; ++i) EXPECT_TRUE(row_has(x, 0, i, 0, is_finite)) << i;
          });
      planted(
          Case{"x", 1, 1, 96, 2, 1, 32, 32}.bias(Case::Bias::f32),
          [&](Instance& x) {
            x.bias.for_each([&](auto b, auto h, auto i, auto j) { x.bias.set(b, h, i, j, j < padding ? value : 0); });
          },
          agreed);
    }
  }
}

// One key wins by far, in the first chunk of keys or in a later one.
TEST(Contract, LargeFiniteScores) {
  for (const std::int64_t winner : {0, 7, 70, 199}) {
    for (const float size : {1e3f, 1e5f, 1e9f, 1.2e19f}) {
      SCOPED_TRACE(::testing::Message() << winner << " of size " << size);
      const auto plant = [&](Instance& x) {
        x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, d == 0 ? size : 0); });
        x.k.for_each([&](auto b, auto s, auto h, auto d) { x.k.set(b, s, h, d, d == 0 ? size : 0); });
        x.k.set(0, winner, 0, 0, 1.5f * size);
      };
      on_every_path([&](const Path& path, DType dtype) {
        if (dtype == DType::f16 && size > 6e4f) return;  // The value is past f16's range.
        Instance x = make_instance(Case{"x", 1, 40, 200, 1, 1, 16, 16}.scale(1), dtype);
        plant(x);
        ASSERT_TRUE(run(path, &x));
        for (std::int64_t d = 0; d < 16; ++d) EXPECT_EQ(x.o.get(0, 3, 0, d), x.v.get(0, winner, 0, d));
        EXPECT_NEAR(x.lse.get(0, 0, 3, 0) / (1.5f * x.q.get(0, 3, 0, 0) * x.q.get(0, 3, 0, 0)), 1, 4e-3);
      });
    }
  }
}

/// Every tile of keys has larger scores than the one before, so O is rescaled each time. The scores rise in both
/// directions, because the CPU walks up the keys and the GPU walks down. From 1e4 on a score is beyond 2^20, where the
/// kernels subtract before they scale.
TEST(Contract, ScoresThatKeepRising) {
  for (const bool up : {true, false}) {
    for (const float size : {1.f, 300.f, 6e4f}) {
      SCOPED_TRACE(::testing::Message() << (up ? "up to " : "down from ") << size);
      planted(
          Case{"x", 1, 20, 600, 1, 1, 32, 32}.scale(1),
          [&](Instance& x) {
            x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, d == 0 ? size : 0); });
            x.k.for_each([&](auto b, auto s, auto h, auto d) {
              x.k.set(b, s, h, d, d == 0 ? static_cast<float>((up ? s : 599 - s) / 4) : 0);
            });
          },
          agreed);
    }
  }
}

/// Two keys have the same score, far above all others, and lie in different tiles. Each must get half the weight,
/// however high the score is. A kernel that raised its maximum by a rounded step would give one of them more.
TEST(Contract, EqualScoresFarApartShareTheWeight) {
  for (const int power : {17, 22, 25, 29}) {
    SCOPED_TRACE(::testing::Message() << "1.5 * 2^" << power);
    on_every_path([&](const Path& path, DType dtype) {
      Instance x = make_instance(Case{"x", 1, 40, 600, 1, 1, 16, 16}.scale(1), dtype);
      x.q.for_each(
          [&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, d == 0 ? std::ldexp(1.f, power / 2) : 0); });
      x.k.for_each([&](auto b, auto s, auto h, auto d) {
        const bool high = s == 70 || s == 300;
        x.k.set(b, s, h, d, d != 0 ? 0 : high ? std::ldexp(1.5f, power - power / 2) : s % 2 == 0 ? 0.f : 0.25f);
      });
      ASSERT_TRUE(run(path, &x));
      for (std::int64_t d = 0; d < 16; ++d) {
        const float mean = (x.v.get(0, 70, 0, d) + x.v.get(0, 300, 0, d)) / 2;
        EXPECT_NEAR(x.o.get(0, 3, 0, d), mean, 2 * unit_at(dtype, 1)) << d;
      }
    });
  }
}

TEST(Contract, OneKeyHasProbabilityOne) {
  planted(Case{"x", 1, 40, 1, 2, 1, 32, 32}.probabilities().row_max(), nothing, [](const Instance& x) {
    // The LSE of one score is that score, up to the error of exp2, which depends on the type (cpu/blocks/exp2.hpp).
    const double error = x.problem.dtype == DType::f32 ? 1e-6 : x.problem.dtype == DType::f16 ? 1e-5 : 1e-4;
    for (std::int64_t i = 0; i < 40; ++i) {
      EXPECT_EQ(x.probabilities.get(0, 0, i, 0), 1);
      EXPECT_NEAR(x.lse.get(0, 0, i, 0), x.row_max.get(0, 0, i, 0), error);
    }
  });
}

// The range of f32 includes numbers whose bf16 parts would overflow or be flushed to 0.
TEST(Contract, RangeOfF32) {
  on_every_path([](const Path& path, DType dtype) {
    if (dtype != DType::f32) return;
    Instance x = make_instance(Case{"x", 1, 40, 90, 1, 1, 1, 8}.scale(1), dtype);
    x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, 1.0001e25f); });
    x.k.for_each([&](auto b, auto s, auto h, auto d) { x.k.set(b, s, h, d, s == 7 ? 1e-25f : -1.003e25f); });
    ASSERT_TRUE(run(path, &x));
    for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(x.o.get(0, 3, 0, d), x.v.get(0, 7, 0, d));
  });
  for (const float size : {1e-36f, 1e-33f, 1e30f}) {
    SCOPED_TRACE(size);
    on_every_path([&](const Path& path, DType dtype) {
      if (dtype != DType::f32) return;
      Instance x = make_instance(Case{"x", 1, 40, 90, 1, 1, 16, 16}, dtype);
      x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, size); });
      ASSERT_TRUE(run(path, &x));
      for (std::int64_t d = 0; d < 16; ++d) EXPECT_NEAR(x.o.get(0, 3, 0, d) / size, 1, 1e-5);
    });
  }
}

/// f32 must hold 256 s_k times the largest V, because P may reach 2^8 and O is divided only at the end.
TEST(Contract, LargeFiniteValues) {
  for (const std::int64_t s_q : {1, 40}) {
    on_every_path([&](const Path& path, DType dtype) {
      Instance x = make_instance(Case{"x", 1, s_q, 600, 1, 1, 16, 16}.scale(1), dtype);
      const float size = dtype == DType::f16 ? 6e4f : 2e33f;  // 256 * 600 * 2e33 = 3.1e38
      x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, d == 0 ? 1 : 0); });
      // The scores rise by less than the kernels' slack before they rescale, so that P does become large.
      x.k.for_each([&](auto b, auto s, auto h, auto d) { x.k.set(b, s, h, d, d == 0 && s >= 64 ? 5.25f : 0); });
      x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, s % 2 == 0 ? size : size / 2); });
      ASSERT_TRUE(run(path, &x));
      for (std::int64_t d = 0; d < 16; ++d) EXPECT_NEAR(x.o.get(0, 0, 0, d) / size, 0.75, 0.01);
    });
  }
}

TEST(Contract, InfUnderAVanishingProbability) {
  for (const std::int64_t s_q : {1, 40}) {
    on_every_path([&](const Path& path, DType dtype) {
      Instance x = make_instance(Case{"x", 1, s_q, 90, 1, 1, 16, 16}.scale(1), dtype);
      x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, d == 0 ? 1 : 0); });
      x.k.for_each([&](auto b, auto s, auto h, auto d) { x.k.set(b, s, h, d, d == 0 && s == 7 ? -200.f : 0); });
      x.v.set(0, 7, 0, 3, kInf);
      ASSERT_TRUE(run(path, &x));
      const Reference exact(x);
      for (std::int64_t i = 0; i < s_q; ++i) {
        EXPECT_EQ(exact.exact_o(0, i, 0, 3), kInf);  // In double e^-200 is not 0.
        EXPECT_TRUE(x.o.get(0, i, 0, 3) == kInf || std::isnan(x.o.get(0, i, 0, 3)));
        EXPECT_NEAR(x.o.get(0, i, 0, 4), exact.exact_o(0, i, 0, 4), 0.01);
      }
    });
  }
}

TEST(Contract, ProbabilitiesOfUnseenKeysAreZero) {
  const auto unseen_is_zero = [](const Instance& x) {
    const std::int64_t used = x.used_k.empty() ? x.problem.s_k : x.used_k[0];
    for (std::int64_t i = 0; i < x.problem.s_q; ++i) {
      for (std::int64_t j = 0; j < x.problem.s_k; ++j) {
        const bool seen = j < used && (x.problem.band.right < 0 || j <= i);
        if (!seen) { ASSERT_EQ(x.probabilities.get(0, 0, i, j), 0) << i << ", " << j; }
      }
    }
  };
  for (const std::int64_t s_q : {4, 64}) {
    for (const std::int32_t used : {0, 40})
      planted(Case{"x", 1, s_q, 64, 1, 1, 16, 16}.used_k({used}).probabilities(), nothing, unseen_is_zero);
    planted(
        Case{"x", 1, s_q, 64, 1, 1, 16, 16}.causal(Align::top_left).probabilities(),
        [](Instance& x) { set_row(&x.q, 0, 1, 0, kNan); }, unseen_is_zero);
  }
}

/// Plants inputs for which every key scores `score`. Then each has the same weight, however high or low the score is.
void plant_equal_scores(Instance* x, float q, float k) {
  x->q.for_each([&](auto b, auto s, auto h, auto d) { x->q.set(b, s, h, d, d == 0 ? q : 0); });
  x->k.for_each([&](auto b, auto s, auto h, auto d) { x->k.set(b, s, h, d, d == 0 ? k : 0); });
}

/// Sizes at which the plan cuts the keys: on the CPU one query only from d 128 on, and on a GPU only without row_max.
struct CutKeys {
  std::int64_t s_q, d;
  bool row_max;

  Case row() const {
    Case out = Case{"x", 1, s_q, 1100, 4, 1, d, d}.bias(Case::Bias::f32);
    return row_max ? std::move(out).row_max() : out;
  }
  bool are_cut(const Path& path) const {
    return path.backend == Backend::cpu ? s_q < 40 : path.backend != Backend::ref && !row_max;
  }
};

/// An f32 LSE near 1e9 cannot tell 640 keys from 460.
TEST(Contract, PartsOfTheKeysMergeAtAnyHeight) {
  for (const CutKeys& keys : {CutKeys{1, 128, true}, CutKeys{10, 16, true}, CutKeys{40, 16, false}}) {
    on_every_path([&](const Path& path, DType dtype) {  // Without a cut this test would test nothing.
      Target target = path.target();
      target.threads = 3;
      Plan plan;
      ASSERT_TRUE(Plan::make(make_instance(keys.row(), dtype, 7).problem, Pass::forward, target, &plan));
      if (!keys.are_cut(path)) return;
      EXPECT_GT(data_of(plan)->attention().splits, 1) << path.name() << " " << keys.s_q;
    });
    for (const float bias : {-1e4f, -1e9f, -1e30f, 3e7f}) {
      SCOPED_TRACE(::testing::Message() << "bias " << bias << ", " << keys.s_q << " queries");
      planted(
          keys.row(),
          [&](Instance& x) {
            plant_equal_scores(&x, 0, 0);
            x.v.for_each([&](auto b, auto j, auto h, auto d) { x.v.set(b, j, h, d, j >= 640 ? 1 : 0); });
            x.bias.for_each([&](auto b, auto h, auto i, auto j) { x.bias.set(b, h, i, j, bias); });
          },
          [&](const Instance& x) { EXPECT_NEAR(x.o.get(0, keys.s_q - 1, 3, 7), 460. / 1100, 2e-3); });
    }
  }
}

TEST(Contract, ProbabilitiesOfLargeScores) {
  for (const std::int64_t s_q : {1, 64}) {
    for (const float size : {300.f, 1e4f, 6e4f}) {
      SCOPED_TRACE(::testing::Message() << s_q << " queries of " << size);
      planted(
          Case{"x", 1, s_q, 3, 1, 1, 1, 1}.scale(1).probabilities(),
          [&](Instance& x) { plant_equal_scores(&x, size, size); },
          [](const Instance& x) {
            for (std::int64_t j = 0; j < 3; ++j) EXPECT_NEAR(x.probabilities.get(0, 0, 0, j), 1. / 3, 1e-3) << j;
          });
    }
  }
}

// Such a row has NaN at each key that it sees, even one that scores -inf, and 0 elsewhere.
TEST(Contract, ProbabilitiesOfANanRow) {
  for (const std::int64_t s_q : {4, 64}) {
    for (const float spoiled : {kNan, kInf}) {
      SCOPED_TRACE(::testing::Message() << s_q << " queries, a score of " << spoiled);
      const auto plant = [&](Instance& x) {
        x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, 1); });
        set_row(&x.k, 0, 1, 0, -kInf);
        set_row(&x.k, 0, 2, 0, spoiled);
      };
      planted(Case{"x", 1, s_q, 64, 1, 1, 16, 16}.causal(Align::top_left).probabilities(), plant,
              [](const Instance& x) {
                EXPECT_EQ(x.probabilities.get(0, 0, 1, 1), 0);  // The row before is not affected.
                for (std::int64_t j = 0; j < 4; ++j) EXPECT_TRUE(std::isnan(x.probabilities.get(0, 0, 3, j))) << j;
                EXPECT_EQ(x.probabilities.get(0, 0, 3, 4), 0);
              });
      planted(
          Case{"x", 1, s_q, 64, 1, 1, 16, 16}.mask().bias(Case::Bias::f32).probabilities(),
          [&](Instance& x) {
            plant(x);
            x.bias.for_each([&](auto b, auto h, auto i, auto j) {
              if (j == 9) x.bias.set(b, h, i, j, -kInf);
            });
          },
          agreed);
    }
  }
}

TEST(Contract, NanInVOfADroppedKey) {
  for (const float p : {0.5f, 1.f}) {
    for (const std::int64_t s_q : {4, 64})
      planted(
          Case{"x", 1, s_q, 90, 1, 1, 16, 16}.dropout(p), [](Instance& x) { set_row(&x.v, 0, 5, 0, kNan); }, agreed);
  }
}

TEST(Contract, RowMaxOfInfiniteScores) {
  for (const std::int64_t s_q : {4, 64})
    planted(
        Case{"x", 1, s_q, 90, 1, 1, 16, 16}.row_max(), [](Instance& x) { x.k.set(0, 5, 0, 2, kInf); }, agreed);
}

TEST(Contract, PackedWithAHintOfZero) {
  planted(Case{"x", 2, 0, 20, 2, 1, 32, 32}.packed({6, 4}, {10, 10}), nothing, agreed);
}

}  // namespace
}  // namespace falchion::testing
