// tests/cuda/eight_test.cpp: attention of q and k of 8 bits on Hopper's kinds int8_scores (v of 16 bits) and fp8 (v of
// e4m3). The features of the forward pass, scales of each kind, and what wrong scales do.
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "eight.hpp"

namespace falchion::testing {
namespace {

VariantKind kind_of(const Instance& x) {
  return dtype_of_v(x.problem) == DType::e4m3 ? VariantKind::fp8 : VariantKind::int8_scores;
}

class EightOnHopper : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = kHopper.why_not(); !why.empty()) GTEST_SKIP() << why;
  }
};

/// On its own kind of Hopper.
void expect_right(Instance* x) { expect_right_on(kHopper, kind_of(*x), x); }

/// f(d, types) of each.
template <class F>
void in_each_type(const F& f) {
  for (const std::int64_t d : {64, 128, 256}) {
    for (const EightTypes& types : kEightTypes) {
      if (d == 256 && types.v == DType::e4m3) continue;  // fp8 has head dims up to 128
      SCOPED_TRACE(text("d ", d, ", ", name(types)));
      f(d, types);
    }
  }
}

/// Each case, its scales shared in each way in turn. edit(x) changes the instance.
template <class Edit>
void expect_each_right(const EightTypes& types, std::initializer_list<Case> cases, const Edit& edit) {
  std::size_t turn = static_cast<std::size_t>(types.q) + static_cast<std::size_t>(types.v);
  for (const Case& row : cases) {
    const Shares shares = kAllShares[turn++ % std::size(kAllShares)];
    SCOPED_TRACE(text(row.name, ", scales ", static_cast<int>(shares)));
    Instance x = make_eight(row, types, shares);
    edit(x);
    expect_right(&x);
  }
}

TEST_F(EightOnHopper, BandsGroupsAndSinks) {
  in_each_type([](std::int64_t d, const EightTypes& types) {
    expect_each_right(
        types,
        {Case{"full", 1, 150, 300, 2, 1, d, d}, Case{"causal", 1, 300, 300, 2, 1, d, d}.causal(),
         Case{"window", 1, 400, 400, 1, 1, d, d}.window(150, 20), Case{"one row", 2, 1, 700, 8, 2, d, d},
         Case{"one key", 2, 70, 1, 2, 2, d, d}, Case{"narrow", 1, 200, 260, 1, 1, d - 16, d - 32}.causal(),
         Case{"sinks", 1, 150, 300, 2, 2, d, d}.sinks(), Case{"split", 1, 4, 9000, 2, 1, d, d}},
        [](Instance&) {});
  });
}

/// The last tile of a sequence is short, and behind it in memory are keys of the next one, or rows of no sequence.
TEST_F(EightOnHopper, PackedAndUsedLengths) {
  in_each_type([](std::int64_t d, const EightTypes& types) {
    expect_each_right(types,
                      {Case{"packed", 4, 200, 400, 2, 1, d, d}.packed({3, 200, 0, 129}, {130, 400, 5, 257}),
                       Case{"packed causal", 3, 300, 300, 2, 2, d, d}.packed({1, 300, 129}, {1, 300, 129}).causal(),
                       Case{"used", 3, 150, 400, 2, 1, d, d}.used_k({0, 129, 400}),
                       Case{"used causal", 3, 150, 400, 2, 1, d, d}.used_k({0, 129, 400}).causal()},
                      [](Instance&) {});
  });
}

TEST_F(EightOnHopper, Softcap) {
  in_each_type([](std::int64_t d, const EightTypes& types) {
    if (types.v == DType::e4m3) return;  // fp8 has none
    expect_each_right(types, {Case{"full", 1, 200, 300, 2, 1, d, d}, Case{"causal", 2, 200, 300, 2, 1, d, d}.causal()},
                      [](Instance& x) { x.problem.score.softcap = 2; });
  });
}

/// Parts of the keys begin with a tile of 128 keys.
TEST_F(EightOnHopper, SplitKeys) {
  in_each_type([](std::int64_t d, const EightTypes& types) {
    expect_each_right(types, {Case{"parts", 1, 70, 1000, 2, 1, d, d}.causal(), Case{"all", 1, 40, 700, 2, 2, d, d}},
                      [](Instance& x) { x.problem.split_keys = 256; });
  });
}

/// Scales of neighbouring blocks of keys differ much, so that m is raised within a row and P made once more.
TEST_F(EightOnHopper, ScalesOfAnySize) {
  in_each_type([](std::int64_t d, const EightTypes& types) {
    for (const int power : {-140, -60, 6, 12}) {
      SCOPED_TRACE(text("d ", d, ", 2^", power));
      Instance x = make_eight(Case{"x", 1, 140, 500, 1, 1, d, d}, types, Shares::token);
      x.k_scale.for_each([&](auto b, auto s, auto h, auto) {
        x.k_scale.set(b, s, h, 0, std::ldexp(x.k_scale.get(b, s, h, 0), s % 2 == 0 ? power : 0));
      });
      expect_right(&x);
    }
  });
}

/// O before it is divided by l, times such a scale of V, would be above what f32 can hold.
TEST_F(EightOnHopper, LargeScaleOfV) {
  in_each_type([](std::int64_t d, const EightTypes& types) {
    if (types.v != DType::e4m3 || types.o == DType::f16) return;
    Instance x = make_eight(Case{"x", 1, 140, 500, 1, 1, d, d}, types, Shares::tensor);
    x.v_scale.set(0, 0, 0, 0, 0x1p117F);
    expect_right(&x);
  });
}

/// The largest sums: all numbers are -128, or 127 against -128.
TEST_F(EightOnHopper, LargestSums) {
  in_each_type([](std::int64_t d, const EightTypes& types) {
    if (types.q != DType::i8) return;
    Instance x = make_eight(Case{"x", 1, 130, 300, 1, 1, d, d}, types, Shares::no);
    x.problem.score.scale = 1.F / 2048;
    x.q.for_each([&](auto b, auto s, auto h, auto c) { x.q.set(b, s, h, c, s % 2 == 0 ? -128.F : 127.F); });
    x.k.for_each([&](auto b, auto s, auto h, auto c) { x.k.set(b, s, h, c, s % 3 == 0 ? -128.F : 127.F); });
    expect_right(&x);
  });
}

/// A scale of 0 makes scores of 0. One that is negative, NaN or infinite makes NaN in the rows that it is of, and of
/// keys in the rows that see them, and nowhere else: rows of a band see some tiles of keys in part, and others not.
TEST_F(EightOnHopper, WrongScales) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  in_each_type([&](std::int64_t d, const EightTypes& types) {
    for (const float wrong : {0.F, -1.F, nan, inf}) {
      if (d != 128 && !std::isnan(wrong)) continue;
      for (const bool of_k : {false, true}) {
        for (const Case& row :
             {Case{"causal", 1, 300, 300, 2, 1, d, d}.causal(), Case{"window", 1, 300, 300, 2, 1, d, d}.window(70, 3),
              Case{"packed", 2, 300, 300, 2, 1, d, d}.packed({300, 130}, {300, 130}).causal()}) {
          SCOPED_TRACE(text("d ", d, ", a scale of ", of_k ? "k" : "q", " of ", wrong, ", ", row.name));
          Instance x = make_eight(row, types, Shares::token);
          if (of_k) {
            x.k_scale.set(0, 2, 0, 0, wrong);
          } else {
            for (const std::int64_t i : {0, 5, 64, 299}) x.q_scale.set(0, i, i % 2, 0, wrong);
          }
          expect_right(&x);
        }
      }
    }
  });
}

TEST_F(EightOnHopper, CtasGoOverSeveralTiles) {
  in_each_type([](std::int64_t d, const EightTypes& types) {
    Instance x = make_eight(Case{"x", 48, 40, 40, 8, 8, d, d}.causal(), types, Shares::token);
    OnDevice device(kHopper, &x);
    ASSERT_OK(device.status());
    const PlanData& plan = *data_of(device.plan());
    EXPECT_GT(plan.items, plan.attention().walkers) << d;
    ASSERT_OK(device.run());
    ASSERT_OK(device.download());
    EXPECT_TRUE(matches(x, Reference(x))) << d;
  });
}

}  // namespace
}  // namespace falchion::testing
