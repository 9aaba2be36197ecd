// tests/moments_test.cpp: how the threads of a GPU put together the mean and the squares of a row, on the host: the
// very code of the kernel's threads and lanes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "support/host_warp.hpp"
#include "support/random.hpp"

#include "gpu/blocks/moments.cuh"  // This comes after the warp of the host.

namespace falchion::gpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kChunk = 8, kChunks = 4, kWarp = 32;

/// The numbers of a thread, as a tile of kWhole deals them: chunks, or single numbers where it cannot.
template <bool kWhole>
Moments of_thread(const std::vector<float>& row, int thread, int threads) {
  constexpr int kTile = kWhole ? kChunks : 1;
  const int d = static_cast<int>(row.size());
  Moments out;
  for (int first = 0; first < d; first += kTile * kChunk * threads) {
    const auto at = [&](int c, int e) {
      return first + (kWhole ? (c * threads + thread) * kChunk + e : (c * kChunk + e) * threads + thread);
    };
    const auto there = [&](int c, int e) { return at(c, e) < d; };
    const auto number = [&](int c, int e) { return there(c, e) ? row[static_cast<std::size_t>(at(c, e))] : 0.F; };
    float count = 0;
    for (int c = 0; c < kTile; ++c) {
      for (int e = 0; e < kChunk; ++e) count += there(c, e) ? 1.F : 0.F;
    }
    if (count == 0) break;
    const Moments tile =
        moments_of<kTile, kChunk, kWhole>(NumberCount::of(count), number, there, [](int, int, float) {});
    out = out.count == 0 ? tile : both(out, tile);
  }
  return out;
}

/// Puts the parts of up to 32 lanes together. All lanes of a group get the same bits.
std::vector<Moments> of_lanes(const std::vector<Moments>& parts, int width) {
  std::vector<Moments> out(kWarp);
  EXPECT_TRUE(testing::HostWarp::run([&] {
    const auto lane = static_cast<std::size_t>(testing::HostWarp::lane());
    const MomentLanes lanes{~0U, width};
    const Moments& part = parts[lane % parts.size()];
    out[lane] = lanes.all(part, NumberCount::of(lanes.sum(part.count)));
  }));
  for (std::size_t lane = 1; lane < static_cast<std::size_t>(width); ++lane) {
    if (std::isnan(out[0].squares)) continue;
    EXPECT_EQ(out[lane].mean, out[0].mean);
    EXPECT_EQ(out[lane].squares, out[0].squares);
  }
  return out;
}

template <bool kWhole>
Moments of_row(const std::vector<float>& row, int threads) {
  std::vector<Moments> warps;
  for (int first = 0; first < threads; first += kWarp) {
    std::vector<Moments> parts;
    for (int thread = first; thread < std::min(first + kWarp, threads); ++thread)
      parts.push_back(of_thread<kWhole>(row, thread, threads));
    warps.push_back(of_lanes(parts, std::min(threads, kWarp))[0]);
  }
  return threads <= kWarp ? warps[0] : of_lanes(warps, threads / kWarp)[0];
}

/// Rows and threads: full tiles, partial ones, threads and warps without numbers, several tiles.
constexpr std::pair<int, int> kCuts[] = {{8, 4},      {24, 4},      {40, 4},      {128, 4},     {136, 8},
                                         {1000, 32},  {1024, 32},   {2000, 64},   {4104, 256},  {16384, 512},
                                         {8200, 512}, {16392, 512}, {32768, 512}, {100000, 512}};
/// Single numbers.
constexpr std::pair<int, int> kSingles[] = {{1, 1},      {2, 1},      {7, 1},       {37, 8},
                                            {1000, 128}, {1003, 128}, {16400, 512}, {33333, 512}};

void on_every_cut(const std::function<void(int d, const std::function<Moments(const std::vector<float>&)>&)>& f) {
  for (const auto& [d, threads] : kCuts)
    f(d, [n = threads](const std::vector<float>& x) { return of_row<true>(x, n); });
  for (const auto& [d, threads] : kSingles)
    f(d, [n = threads](const std::vector<float>& x) { return of_row<false>(x, n); });
}

template <class F>
std::vector<float> row_of(int d, const F& number) {
  std::vector<float> out;
  for (int j = 0; j < d; ++j) out.push_back(number(j));
  return out;
}

/// The largest relative errors of the mean, in deviations, and of the variance.
void expect_near(const Moments& found, const std::vector<float>& row, double limit) {
  double mean = 0, squares = 0;
  for (const float x : row) mean += x;
  mean /= static_cast<double>(row.size());
  for (const float x : row) squares += (x - mean) * (x - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(row.size()));
  EXPECT_EQ(found.count, static_cast<float>(row.size()));
  EXPECT_NEAR(double{found.mean} + found.rest, mean, limit * deviation + 1e-45) << row.size();
  EXPECT_NEAR(found.squares, squares, limit * squares) << row.size();
}

std::vector<float> normal(int d, std::uint64_t seed) {
  return row_of(d, [&](int j) { return testing::random_normal(seed, static_cast<std::uint64_t>(j)); });
}

TEST(Moments, AreThoseOfTheRow) {
  on_every_cut([](int d, const auto& of) {
    if (d < 2) return;
    const std::vector<float> row = normal(d, 7);
    expect_near(of(row), row, 4e-7);
    std::vector<float> far = row;  // a mean of 10000 deviations
    for (float& x : far) x += 10000;
    expect_near(of(far), far, 4e-7);
    std::vector<float> first = row, last = row;  // one number that is most of the squares
    first.front() = 1e6F;
    last.back() = -1e6F;
    expect_near(of(first), first, 1e-6);
    expect_near(of(last), last, 1e-6);
  });
}

/// Numbers that f32 has and whose mean it has not, and a row that falls, so that each part has another mean.
TEST(Moments, AreRightWhereTheMeanIsRounded) {
  on_every_cut([](int d, const auto& of) {
    if (d < 2) return;
    const std::vector<float> turns = row_of(d, [](int j) { return 16777216.F + 2.F * static_cast<float>(j % 2); });
    expect_near(of(turns), turns, 1e-6);
    const std::vector<float> falls = row_of(d, [](int j) { return 3000.F - static_cast<float>(j); });
    expect_near(of(falls), falls, 4e-6);
  });
}

TEST(Moments, OfEqualNumbersAreExact) {
  on_every_cut([](int d, const auto& of) {
    for (const float value : {0.F, 0.1F, -1234.5F, 1.F / 3, 7e-20F, 65504.F, 1e15F}) {
      const Moments found = of(row_of(d, [&](int) { return value; }));
      EXPECT_EQ(found.mean + found.rest, value) << d;
      EXPECT_LE(found.squares, 0) << d << " of " << value;
    }
  });
}

/// The kernel tells such rows by that, and sums them once more.
TEST(Moments, OfInfHaveNoFiniteSquares) {
  on_every_cut([](int d, const auto& of) {
    for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::size_t place : {std::size_t{0}, static_cast<std::size_t>(d - 1)}) {
        std::vector<float> row = normal(d, 3);
        row[place] = bad;
        EXPECT_FALSE(std::isfinite(of(row).squares)) << d;
      }
    }
  });
}

}  // namespace
}  // namespace falchion::gpu
