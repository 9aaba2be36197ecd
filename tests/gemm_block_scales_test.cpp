// tests/gemm_block_scales_test.cpp: GEMMs of e4m3 with scales of blocks of 128 on every path that has them
// (docs/contract.md, "GEMM: scales of blocks").
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "support/gemm.hpp"

namespace falchion::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

/// Calls f(path) for each path of a CPU that has e4m3, and so scales of blocks.
template <class F>
void on_every_block_path(const F& f) {
  for (const Path& path : usable_paths(kGemm)) {
    if (!path.has(DType::e4m3, kGemm)) continue;
    SCOPED_TRACE(path.name());
    f(path);
  }
}

GemmInstance instance(GemmCase row, std::uint64_t seed = 1) {
  row.terms.scaling = Scaling::block128;
  return make_gemm_instance(row, DType::e4m3, seed);
}

void fill(HostTensor* x, float value) {
  x->for_each([&](auto... at) { x->set(at..., value); });
}

void run_and_match(const Path& path, const GemmInstance& x, const GemmInstance& fresh) {
  const Status status = run(path.target(), x);
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(x, fresh, sums_on(path)));
}

/// Every case that other types have. The scales lie as a and b do.
TEST(GemmBlockScales, Cases) {
  std::uint64_t seed = 500;
  for (const GemmCase& row : gemm_cases()) {
    SCOPED_TRACE(row.name);
    const GemmInstance fresh = instance(row, ++seed);
    const judge::GemmReference reference(fresh.problem, fresh.operands());
    on_every_block_path([&](const Path& path) {
      const GemmInstance x = instance(row, seed);
      const Status status = run(path.target(), x);
      ASSERT_TRUE(status) << status.why;
      EXPECT_TRUE(matches(x, reference, sums_on(path)));
    });
  }
}

/// With ones for a and b, and whole numbers for scales, D is a whole number that says which scales met. Row r of b has
/// the scale of block r / 128, also where with swiglu a block has the last gates and the first rows of "up".
TEST(GemmBlockScales, EachProductHasTheScalesOfItsBlock) {
  on_every_block_path([](const Path& path) {
    for (const bool swiglu : {false, true}) {
      for (const std::int64_t m : {7, 40}) {
        for (const std::int64_t k : {1, 128, 129, 300, 4096 + 130}) {
          const std::int64_t n = m == 40 ? 300 : 200, k2 = k == 300 ? 10 : k == 4226 ? 2 : 1;
          GemmCase row = GemmCase{"x", 1, m, n, k}.k2(k2).d_f32();
          if (swiglu) row.terms.activation = Activation::swiglu;
          GemmInstance x = instance(row);
          fill(&x.a, 1);
          fill(&x.b, swiglu ? 0x1p-9F : 1);
          const auto s_a = [](auto i, auto block) { return static_cast<float>(1 + (i + 5 * block) % 7); };
          const auto s_b = [](auto rows, auto block) { return static_cast<float>(1 + (3 * rows + block) % 5); };
          x.scale_a.for_each([&](auto b, auto i, auto block, auto l) { x.scale_a.set(b, i, block, l, s_a(i, block)); });
          x.scale_b.for_each([&](auto b, auto r, auto block, auto l) { x.scale_b.set(b, r, block, l, s_b(r, block)); });
          const auto z = [&](std::int64_t i, std::int64_t row_of_b) {
            double sum = 0;
            for (std::int64_t block = 0; 128 * block < k; ++block)
              sum += static_cast<double>(std::min<std::int64_t>(128, k - 128 * block)) * s_a(i, block) *
                     s_b(row_of_b / 128, block);
            return swiglu ? sum * 0x1p-9 : sum;
          };
          ASSERT_TRUE(run(path.target(), x));
          x.d.for_each([&](auto, auto i, auto, auto j) {
            const double gate = z(i, j), right = swiglu ? gate / (1 + std::exp(-gate)) * z(i, n + j) : gate;
            ASSERT_NEAR(x.d.get(0, i, 0, j), right, swiglu ? 1e-5 * std::abs(right) : 0)
                << m << " x " << n << " x " << k << " at " << i << ", " << j;
          });
        }
      }
    }
  });
}

/// A scale of 0, below 0, NaN or Inf counts in the row or in the 128 columns of its block, and nowhere else.
TEST(GemmBlockScales, AnyScale) {
  on_every_block_path([](const Path& path) {
    for (const std::int64_t m : {9, 21}) {
      for (const float scale : {0.F, -2.F, kNan, kInf, 1e-30F, 1e30F}) {
        GemmInstance x = instance(GemmCase{"x", 1, m, 150, 300}.d_f32());
        const GemmInstance plain = instance(GemmCase{"x", 1, m, 150, 300}.d_f32());
        x.scale_a.set(0, 4, 1, 0, scale);
        x.scale_b.set(0, 1, 1, 0, scale);
        ASSERT_TRUE(run(path.target(), x));
        ASSERT_TRUE(run(path.target(), plain));
        x.d.for_each([&](auto, auto i, auto, auto j) {
          const float got = x.d.get(0, i, 0, j);
          if (i != 4 && j / 128 != 1) {
            ASSERT_EQ(got, plain.d.get(0, i, 0, j)) << i << ", " << j;
          } else if (i != 4 || j / 128 != 1) {  // both in one block: 1e30 squared is beyond f32
            ASSERT_EQ(std::isfinite(got), std::isfinite(scale)) << i << ", " << j << " is " << got;
            ASSERT_TRUE(!std::isnan(scale) || std::isnan(got)) << i << ", " << j << " is " << got;
          }
        });
        EXPECT_TRUE(matches(x, x, sums_on(path))) << scale;
      }
    }
  });
}

/// Where there is no product, no scale is read.
TEST(GemmBlockScales, WithoutAProductScalesAreNotRead) {
  on_every_block_path([](const Path& path) {
    for (const std::int64_t k : {0, 200}) {
      GemmInstance x = instance(GemmCase{"x", 1, 20, 30, k}.alpha(k == 0 ? 1 : 0).beta(2));
      fill(&x.scale_a, kNan);
      fill(&x.scale_b, kNan);
      run_and_match(path, x, x);
    }
  });
}

/// Scales may lie in any way (DeepGEMM stores those of a column by column), and a block of k may hold the end of one
/// head and the beginning of the next.
TEST(GemmBlockScales, ScalesLieInAnyWay) {
  on_every_block_path([](const Path& path) {
    for (const Layout layout : {Layout::across, Layout::gaps, Layout::reversed, Layout::transposed}) {
      for (const std::int64_t m : {5, 40}) {
        GemmInstance x = instance(GemmCase{"x", 1, m, 150, 300}.k2(5));
        x.scale_a = HostTensor(DType::f32, x.scale_a.shape(), layout);
        x.scale_b = HostTensor(DType::f32, x.scale_b.shape(), layout);
        x.scale_a.fill_normal(8);
        x.scale_b.fill_normal(9);
        run_and_match(path, x, x);
      }
    }
  });
}

/// Entries of a batch that share b may each have scales of their own, or share them. They are rows of one matrix only
/// where that is right.
TEST(GemmBlockScales, EntriesOverOneBMayHaveTheirOwnScales) {
  on_every_block_path([](const Path& path) {
    for (const std::int64_t m : {1, 20}) {
      for (const auto& [of_a, of_b] : {std::pair{3, 1}, {3, 3}, {1, 1}}) {  // entries of each scale
        GemmInstance x = instance(GemmCase{"x", 3, m, 130, 200}.shared_b());
        x.scale_a = HostTensor(DType::f32, {of_a, m, 2, 1});
        x.scale_b = HostTensor(DType::f32, {of_b, 2, 2, 1});
        x.scale_a.fill_normal(6);
        x.scale_b.fill_normal(7);
        SCOPED_TRACE(std::to_string(of_a) + " and " + std::to_string(of_b) + " entries of scales");
        run_and_match(path, x, x);
      }
    }
  });
}

TEST(GemmBlockScales, APlanOfACpuTellsOfBlocks) {
  on_every_block_path([](const Path& path) {
    if (path.backend != Backend::cpu) return;
    const std::string story = explain(instance(GemmCase{"x", 1, 40, 50, 600}).problem, path.target());
    EXPECT_NE(story.find(" over 128 of k at a time"), std::string::npos) << story;
  });
}

}  // namespace
}  // namespace falchion::testing
