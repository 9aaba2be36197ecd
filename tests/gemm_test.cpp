// tests/gemm_test.cpp: runs each case of gemm_cases.def on every path of this build in every dtype. Laws of every GEMM
// are here too: sums of ones are exact, and a plan gives the same bits in every run.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "judge/gemm.hpp"
#include "support/gemm.hpp"

namespace falchion::testing {
namespace {

/// The reference in double takes most of the time, so the paths of a case share it.
TEST(Gemm, Cases) {
  const std::vector<Path> paths = usable_paths(kGemm);
  std::uint64_t seed = 100;
  for (const GemmCase& row : gemm_cases()) {
    SCOPED_TRACE(row.name);
    ++seed;
    for (const DType dtype : kTypes) {
      const GemmInstance fresh = make_gemm_instance(row, dtype, seed);
      const judge::GemmReference reference(fresh.problem, fresh.operands());
      for (const Path& path : paths) {
        if (!path.has(dtype, kGemm)) continue;
        SCOPED_TRACE(path.name() + " " + name(dtype));
        const GemmInstance x = make_gemm_instance(row, dtype, seed);
        const Status status = run(path.target(), x);
        EXPECT_TRUE(status) << status.why;
        if (status) { EXPECT_TRUE(matches(x, reference)); }
      }
    }
  }
}

/// Each k counts exactly once: with operands of 1 every element of an f32 d is k, on both sides of register tiles, of
/// blocks of k and of few rows.
TEST(Gemm, OnesSumToK) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t m : {1, 16, 37}) {
          for (std::int64_t k = 0; k < 1100; k += k < 36 || (k > 253 && k < 259) ? 1 : 73) {
            GemmInstance x = make_gemm_instance(GemmCase{"ones", 1, m, 35, k}.d_f32(), dtype);
            const auto set_ones = [](HostTensor* tensor) {
              tensor->for_each([&](auto... at) { tensor->set(at..., 1); });
            };
            set_ones(&x.a);
            set_ones(&x.b);
            const Status status = run(path.target(), x);
            ASSERT_TRUE(status) << status.why;
            bool exact = true;
            x.d.for_each([&](auto... at) { exact = exact && x.d.get(at...) == static_cast<float>(k); });
            ASSERT_TRUE(exact) << "m " << m << ", k " << k;
          }
        }
      },
      kGemm);
}

/// The workers of a plan take items from a counter, so who computes what differs from run to run. On a GPU a long k is
/// summed in parts.
TEST(Gemm, APlanGivesTheSameBitsAgain) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const auto& [m, k] : {std::pair<std::int64_t, std::int64_t>{9, 60}, {150, 60}, {40, 3000}, {90, 3000}}) {
          const GemmInstance x = make_gemm_instance(GemmCase{"bits", 2, m, 200, k}, dtype);
          Plan plan;
          ASSERT_TRUE(Plan::make(x.problem, path.target(3), &plan));
          ASSERT_TRUE(run(plan, x));
          GemmInstance again = x;
          again.d = x.d.like();
          for (int i = 0; i < 4; ++i) {
            again.d.fill_poison();
            ASSERT_TRUE(run(plan, again));
            ASSERT_EQ(std::memcmp(x.d.memory(), again.d.memory(), x.d.memory_bytes()), 0);
          }
        }
      },
      kGemm);
}

/// The o of attention is an a without a copy, whatever its memory order: heads and head dim are the two axes of k.
TEST(Gemm, HeadsAreTheTwoAxesOfK) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const GemmInstance heads =
            make_gemm_instance(GemmCase{"heads", 2, 21, 40, 96}.k2(6).layout(Layout::heads_first), dtype);
        GemmInstance dense = make_gemm_instance(GemmCase{"dense", 2, 21, 40, 96}, dtype);
        const auto copy = [](const HostTensor& from, HostTensor* to) {
          from.for_each([&](auto b, auto i, auto h, auto d) { to->set(b, i, 0, h * 16 + d, from.get(b, i, h, d)); });
        };
        copy(heads.a, &dense.a);
        copy(heads.b, &dense.b);
        ASSERT_TRUE(run(path.target(), heads));
        EXPECT_TRUE(matches(heads, dense));
      },
      kGemm);
}

/// The judge finds one k that was left out, one element that is off by twice the limit, and a NaN in the place of a
/// number; and it passes what the definition gives.
TEST(Judge, AGemmThatIsOffIsFound) {
  for (const DType dtype : kTypes) {
    GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 20, 30, 64}.bias_n(), dtype);
    ASSERT_TRUE(run(Backend::ref, x));
    const judge::GemmReference reference(x.problem, x.operands());
    EXPECT_TRUE(reference.check(x.d.view()).passed());
    const float right = x.d.get(0, 7, 0, 9), term = x.a.get(0, 7, 0, 63) * x.b.get(0, 9, 0, 63);
    x.d.set(0, 7, 0, 9, right + 100);  // what is granted counts in the limit once it is needed
    const float limit = static_cast<float>(reference.check(x.d.view()).limit());
    for (const float wrong : {right - term, right + 2 * limit, std::numeric_limits<float>::quiet_NaN()}) {
      x.d.set(0, 7, 0, 9, wrong);
      EXPECT_FALSE(reference.check(x.d.view()).passed()) << name(dtype) << ": " << wrong << " for " << right;
    }
  }
}

/// In f32 the judge finds one of 4096 k that was left out, and a row that is off by a thousandth of itself.
TEST(Judge, AGemmOfManyKThatIsOffIsFound) {
  GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 4, 30, 4096}, DType::f32);
  ASSERT_TRUE(run(Backend::ref, x));
  const judge::GemmReference reference(x.problem, x.operands());
  EXPECT_TRUE(reference.check(x.d.view()).passed());
  const auto row_passes = [&](const auto& wrong) {
    const GemmInstance right = x;
    HostTensor d = right.d.like();
    d.for_each([&](auto b, auto i, auto k, auto j) {
      const float z = right.d.get(b, i, k, j);
      d.set(b, i, k, j, i == 2 ? wrong(j, z) : z);
    });
    return reference.check(d.view()).passed();
  };
  EXPECT_TRUE(row_passes([](auto, float z) { return z * (1 + 0x1p-23F); }));
  EXPECT_FALSE(row_passes([](auto, float z) { return z * 1.001F; }));
  EXPECT_FALSE(row_passes([&](auto j, float z) { return z - x.a.get(0, 2, 0, 4095) * x.b.get(0, j, 0, 4095); }));
}

/// Noise of two f32 sums that multiply each other passes, where the naive computation of so few elements is lucky.
TEST(Judge, ASwigluOfFewElementsPasses) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const GemmInstance x =
        make_gemm_instance(GemmCase{"x", 1, 1, 1, 1500}.activation(Activation::swiglu), DType::f32, seed * 7);
    ASSERT_TRUE(run(host_target(), x));
    EXPECT_TRUE(matches(x, x)) << seed;
  }
}

}  // namespace
}  // namespace falchion::testing
