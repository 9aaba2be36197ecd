// tests/quantise_test.cpp: Quantise on every path: by hand, beside the definition in double, and beside the definition
// step by step, of which every path has the same bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "judge/quantise.hpp"
#include "support/quantise.hpp"

namespace falchion::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
constexpr DType kE4m3 = DType::e4m3, kI8 = DType::i8;

/// One row of f32.
QuantiseInstance of_row(const std::vector<float>& row, Quantise q = {}) {
  q.dtype = DType::f32;
  q.b = q.s = q.h = 1;
  q.d = static_cast<std::int64_t>(row.size());
  QuantiseInstance out(q);
  out.x.for_each([&](auto, auto, auto, auto j) { out.x.set(0, 0, 0, j, row[static_cast<std::size_t>(j)]); });
  return out;
}
std::vector<float> codes_of(const QuantiseInstance& x) {
  std::vector<float> out;
  x.y.for_each([&](auto i, auto j, auto k, auto l) { out.push_back(x.y.get(i, j, k, l)); });
  return out;
}
float scale_of(const QuantiseInstance& x) { return x.scale.get(0, 0, 0, 0); }
Status run(const Path& path, const QuantiseInstance& x) { return run_with(path, x.problem, x.operands()); }

template <class F>
void on_each_path(const F& f) {
  for (const Path& path : usable_paths(kQuantised)) {
    SCOPED_TRACE(path.name());
    f(path);
  }
}

TEST(Quantise, RowsByHand) {
  on_each_path([](const Path& path) {
    using V = std::vector<float>;
    const QuantiseInstance e4m3 = of_row({448, -1, 17, 19, 1.0625F, 1.1875F, 0.0009F, 0});
    ASSERT_TRUE(run(path, e4m3));
    EXPECT_EQ(scale_of(e4m3), 1);
    EXPECT_EQ(codes_of(e4m3), (V{448, -1, 16, 20, 1, 1.25F, 0, 0})) << "halves go to the even neighbour";
    const QuantiseInstance i8 = of_row({-254, 3, 5, 4, 0, 1, 252.9F, 253.1F}, {.dtype_y = kI8});
    ASSERT_TRUE(run(path, i8));
    EXPECT_EQ(scale_of(i8), 2);
    EXPECT_EQ(codes_of(i8), (V{-127, 2, 2, 2, 0, 0, 126, 127}));
    const QuantiseInstance power = of_row({127.5F, 2, -127.5F}, {.dtype_y = kI8, .powers_of_two = true});
    ASSERT_TRUE(run(path, power));
    EXPECT_EQ(scale_of(power), 2) << "1.004 rounded up to a power of two";
    EXPECT_EQ(codes_of(power), (V{64, 1, -64}));
    QuantiseInstance given = of_row({1000, -1000, 3, 0.5F}, {.dtype_y = kI8, .scale_given = true});
    given.scale.set(0, 0, 0, 0, 2);
    ASSERT_TRUE(run(path, given));
    EXPECT_EQ(codes_of(given), (V{127, -127, 2, 0})) << "what is beyond the range becomes its end";
    const QuantiseInstance turned = of_row({1, 2, 3, 4}, {.dtype_y = kI8, .rotate = true});
    ASSERT_TRUE(run(path, turned));
    EXPECT_EQ(scale_of(turned), 5 / 127.F);
    EXPECT_EQ(codes_of(turned), (V{127, -25, -51, 0})) << "(5, -1, -2, 0)";
  });
}

/// FP8's edge rules: what is NaN, Inf, 0, tiny or huge.
TEST(Quantise, NumbersAtTheEdge) {
  on_each_path([](const Path& path) {
    const QuantiseInstance nan = of_row({kNan, 448, kInf, -kInf, 7, 0, 0, 0});
    ASSERT_TRUE(run(path, nan));
    EXPECT_EQ(scale_of(nan), 1) << "of the finite numbers";
    for (const int at : {0, 2, 3}) EXPECT_TRUE(std::isnan(codes_of(nan)[static_cast<std::size_t>(at)])) << at;
    EXPECT_EQ(codes_of(nan)[1], 448);
    EXPECT_EQ(codes_of(nan)[4], 7);
    for (const float bad : {kNan, kInf, -kInf}) {
      const QuantiseInstance i8 = of_row({1, bad, 2}, {.dtype_y = kI8});
      ASSERT_TRUE(run(path, i8));
      EXPECT_TRUE(std::isnan(scale_of(i8)));
      EXPECT_EQ(codes_of(i8), (std::vector<float>{0, 0, 0}));
    }
    const QuantiseInstance zero = of_row({0, -0.F, 0});
    ASSERT_TRUE(run(path, zero));
    EXPECT_EQ(scale_of(zero), 1);
    EXPECT_EQ(codes_of(zero), (std::vector<float>{0, 0, 0}));
    const QuantiseInstance tiny = of_row({0x1p-126F, 0x1p-149F, -0x1p-127F});
    ASSERT_TRUE(run(path, tiny));
    EXPECT_EQ(scale_of(tiny), 0x1p-126F);
    EXPECT_EQ(codes_of(tiny), (std::vector<float>{1, 0, -0.5F}));
    const float most = std::numeric_limits<float>::max();
    for (const bool power : {false, true}) {
      const QuantiseInstance huge = of_row({most, -most / 2}, {.powers_of_two = power});
      ASSERT_TRUE(run(path, huge));
      EXPECT_EQ(codes_of(huge), power ? (std::vector<float>{256, -128}) : (std::vector<float>{448, -224}));
    }
  });
}

/// (x - mean) rotated, in double, by the matrix whose element (i, j) is (-1)^(common bits of i and j) / sqrt(size).
std::vector<double> exact_row(const QuantiseInstance& x, std::int64_t b, std::int64_t s, std::int64_t h) {
  const Quantise& q = x.problem;
  std::vector<double> in(static_cast<std::size_t>(q.d)), out(in.size(), 0);
  for (std::int64_t j = 0; j < q.d; ++j)
    in[static_cast<std::size_t>(j)] = x.x.get(b, s, h, j) - (q.smooth ? double{x.mean.get(b, 0, h, j)} : 0);
  if (!q.rotate) return in;
  std::size_t size = 1;
  while (in.size() % (2 * size) == 0) size *= 2;
  for (std::size_t i = 0; i < in.size(); ++i)
    for (std::size_t j = i / size * size; j < i / size * size + size; ++j)
      out[i] += (std::popcount(i % size & j % size) % 2 == 0 ? in[j] : -in[j]) / std::sqrt(size);
  return out;
}

/// y * scale is right to half a step of y, and the largest magnitude of a block has the largest code.
void expect_near(const QuantiseInstance& x) {
  const Quantise& q = x.problem;
  const double bound = q.dtype_y == kE4m3 ? 448 : 127;
  const std::int64_t rows = rows_of_a_block(q);
  for (std::int64_t b = 0; b < q.b; ++b)
    for (std::int64_t h = 0; h < q.h; ++h)
      for (std::int64_t block = 0; block < blocks_of(q); ++block) {
        const double scale = x.scale.get(b, block, h, 0);
        double most = 0;
        for (std::int64_t s = block * rows; s < std::min((block + 1) * rows, q.s); ++s) {
          const std::vector<double> exact = exact_row(x, b, s, h);
          for (std::int64_t j = 0; j < q.d; ++j) {
            const double wanted = exact[static_cast<std::size_t>(j)], y = x.y.get(b, s, h, j);
            const double step =
                q.dtype_y == kI8 ? 1 : std::max(std::exp2(std::floor(std::log2(std::abs(y))) - 3), 0x1p-9);
            ASSERT_NEAR(y * scale, wanted, scale * (0.5 * step + bound * 1e-6))
                << b << " " << s << " " << h << " " << j;
            most = std::max(most, std::abs(y));
          }
        }
        if (q.powers_of_two) { EXPECT_EQ(std::exp2(std::round(std::log2(scale))), scale); }
        if (!q.scale_given) {
          EXPECT_TRUE(q.powers_of_two ? most >= bound / 2 && most <= bound : most == bound) << most;
        }
      }
}

std::vector<Quantise> problems() {
  std::vector<Quantise> out;
  const auto add = [&](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d, std::int64_t rows,
                       const Quantise& flags) {
    out.push_back(flags);
    out.back().b = b;
    out.back().s = s;
    out.back().h = h;
    out.back().d = d;
    out.back().rows = rows;
  };
  // Blocks of a part of a warp, of a warp, of a CTA with four and with eight chunks a thread, and of several pieces.
  const Quantise turned{.rotate = true}, smooth{.smooth = true},
      all{.powers_of_two = true, .smooth = true, .rotate = true};
  for (const std::int64_t d : {1, 6, 8, 20, 64, 96, 128, 192, 256})
    for (const std::int64_t rows : {1, 3, 128}) {
      add(2, 150, 3, d, rows, {});
      add(1, 131, 2, d, rows, rows == 3 ? all : turned);
    }
  for (const std::int64_t d : {40, 128, 256}) {
    add(1, 300, 2, d, 0, {});
    add(2, 300, 2, d, 0, all);
    add(1, 700, 3, d, 300, smooth);
    add(1, 300, 2, d, 64, {.scale_given = true, .smooth = true, .mean_given = true});
    add(1, 100, 2, d, 1, {.scale_given = true, .rotate = true});
  }
  add(1, 1, 1, 1, 5, {});
  return out;
}

TEST(Quantise, IsRightToHalfAStep) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (Quantise q : problems())
          for (const DType to : {kE4m3, kI8}) {
            q.dtype = dtype;
            q.dtype_y = to;
            QuantiseInstance x(q);
            if (q.scale_given)
              x.scale.for_each(
                  [&](auto i, auto j, auto k, auto l) { x.scale.set(i, j, k, l, to == kI8 ? 0.06F : 0.02F); });
            SCOPED_TRACE(text(q.b, " ", q.s, " ", q.h, " ", q.d, " rows ", q.rows, " ", name(to)));
            const Status status = run(path, x);
            ASSERT_TRUE(status) << status.why;
            expect_near(x);
          }
      },
      kQuantised);
}

TEST(Quantise, HasTheBitsOfTheDefinition) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const Layout layout : {Layout::dense, Layout::odd, Layout::transposed})
          for (Quantise q : problems())
            for (const DType to : {kE4m3, kI8}) {
              q.dtype = dtype;
              q.dtype_y = to;
              const QuantiseInstance x(q, layout, 7);
              const Status status = run(path, x);
              ASSERT_TRUE(status) << status.why;
              EXPECT_EQ(judge::check_quantise(q, x.operands(), x.operands()), "")
                  << q.b << " " << q.s << " " << q.h << " " << q.d << " rows " << q.rows << " " << name(to);
            }
      },
      kQuantised);
}

/// One row's NaN is nothing to other blocks, and with one scale for a head nothing to other heads.
TEST(Quantise, NanStaysInItsBlock) {
  on_each_path([](const Path& path) {
    for (const std::int64_t rows : {1, 100, 0}) {
      QuantiseInstance x({.dtype = DType::bf16, .dtype_y = kI8, .b = 1, .s = 900, .h = 2, .d = 128, .rows = rows});
      x.x.set(0, 250, 1, 5, kNan);
      ASSERT_TRUE(run(path, x));
      const std::int64_t block = rows == 0 ? 0 : 250 / rows;
      x.scale.for_each([&](auto, auto i, auto h, auto) {
        EXPECT_EQ(std::isnan(x.scale.get(0, i, h, 0)), h == 1 && i == block) << rows << " " << i << " " << h;
      });
    }
  });
}

TEST(Quantise, TensorsMayLieInAnyWay) {
  on_each_path([](const Path& path) {
    for (const Layout layout : {Layout::gaps, Layout::heads_first, Layout::reversed, Layout::across})
      for (const std::int64_t rows : {1, 128, 0}) {
        const Quantise q{
            .dtype = DType::bf16, .b = 2, .s = 150, .h = 3, .d = 96, .rows = rows, .smooth = true, .rotate = true};
        const QuantiseInstance x(q, layout, 7);
        ASSERT_TRUE(run(path, x));
        EXPECT_EQ(judge::check_quantise(q, x.operands(), x.operands()), "") << rows;
      }
  });
}

/// One scale for all, and one mean for all.
TEST(Quantise, InputsMayBeShared) {
  on_each_path([](const Path& path) {
    QuantiseInstance x({.dtype = DType::f32,
                        .b = 2,
                        .s = 30,
                        .h = 3,
                        .d = 64,
                        .rows = 4,
                        .scale_given = true,
                        .smooth = true,
                        .mean_given = true});
    x.scale = HostTensor(DType::f32, {1, 1, 1, 1});
    x.scale.set(0, 0, 0, 0, 0.01F);
    x.mean = HostTensor(DType::f32, {1, 1, 1, 64});
    x.mean.fill_normal(3);
    ASSERT_TRUE(run(path, x));
    EXPECT_EQ(judge::check_quantise(x.problem, x.operands(), x.operands()), "");
  });
}

TEST(Quantise, WithoutTokensTheMeanIsZero) {
  on_each_path([](const Path& path) {
    const QuantiseInstance x({.dtype = DType::f32, .b = 2, .s = 0, .h = 3, .d = 8, .smooth = true});
    const Status status = run(path, x);
    ASSERT_TRUE(status) << status.why;
    x.mean.for_each([&](auto i, auto j, auto k, auto l) { EXPECT_EQ(x.mean.get(i, j, k, l), 0); });
    for (const Quantise& empty : {Quantise{.b = 0, .s = 4, .h = 3, .d = 8}, {.b = 1, .s = 4, .h = 0, .d = 8}})
      EXPECT_TRUE(run(path, QuantiseInstance(empty)));
  });
}

}  // namespace
}  // namespace falchion::testing
