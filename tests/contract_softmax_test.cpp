// tests/contract_softmax_test.cpp: the rules of docs/contract.md where the scores of a row change from one tile of keys
// to the next. Kernels compute probabilities relative to a number that they keep as long as it fits, so these tests
// have rows side by side of which some need a new one and others do not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/contract.hpp"

namespace falchion::testing {
namespace {

/// The head dims of variants with tiles of different sizes: d_qk and d_v.
constexpr std::pair<std::int64_t, std::int64_t> kHeadDims[] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};

constexpr std::int64_t kStep = 64;  // keys with the same score; the tiles of keys on GPUs have 64, 80 or 128

/// By how much the scores of row i change, as a multiple of what the test plants: rows of the same warp rise, stay,
/// fall and rise by half.
float slope(std::int64_t i) {
  constexpr float kSlopes[] = {1, 0, -1, 0.5f};
  return kSlopes[i % 4];
}

/// Plants scores of slope(i) * height(j) bits for row i and key j, besides random ones of about 1.
template <class Height>
void plant_heights(Instance* x, const Height& height) {
  constexpr float kQ = 1024;  // f16 cannot hold all of a large score in K
  x->q.for_each(
      [&](auto b, auto i, auto h, auto d) { x->q.set(b, i, h, d, d == 0 ? kQ * slope(i) : x->q.get(b, i, h, d) / 8); });
  x->k.for_each([&](auto b, auto j, auto h, auto d) {
    if (d == 0) x->k.set(b, j, h, d, height(j) * std::log(2.f) / kQ);
  });
}

/// Which of the keys of a step have its score. All others have a score of 0.
enum class Who { all_keys, one_key_of_each_step };

/// The scores rise or fall by so many bits from 64 keys to the next 64. From 8 bits on a probability may become too
/// large, 7.5 bits are too many for all keys of a tile together and not for one, and 1e6 bits are past 2^20.
TEST(Contract, ScoresThatRiseFromTileToTile) {
  for (const auto& [d_qk, d_v] : kHeadDims) {
    for (const float bits : {5.f, 7.5f, 9.f, 20.f, 200.f, 1e6f}) {
      for (const Who who : {Who::all_keys, Who::one_key_of_each_step}) {
        for (const bool up : {true, false}) {
          SCOPED_TRACE(::testing::Message() << "d " << d_qk << (up ? ", up by " : ", down by ") << bits
                                            << (who == Who::all_keys ? "" : ", one key of each step"));
          planted(
              Case{"x", 1, 24, 290, 1, 1, d_qk, d_v}.scale(1),
              [&](Instance& x) {
                plant_heights(&x, [&](std::int64_t j) {
                  const std::int64_t step = (up ? j : 289 - j) / kStep;
                  return who == Who::all_keys || j % kStep == 13 ? bits * static_cast<float>(step) : 0;
                });
              },
              agreed);
        }
      }
    }
  }
}

/// Rows that see nothing of the first keys that a kernel visits, at one end of the keys or at the other, and whose
/// scores are far below or above 0 when they come.
TEST(Contract, RowsThatSeeNothingOfTheFirstTile) {
  const std::vector<Band> bands = {Band::causal(Align::top_left),
                                   Band::causal(Align::bottom_right),
                                   Band::window(40, 3, Align::bottom_right),
                                   Band::window(130, 130, Align::top_left),
                                   {100, -1, Align::bottom_right}};
  for (const Band& band : bands) {
    for (const float height : {0.f, -3000.f, 2e6f}) {
      for (const std::int64_t d : {64, 128}) {
        SCOPED_TRACE(::testing::Message()
                     << "left " << band.left << ", right " << band.right << ", d " << d << ", height " << height);
        planted(
            Case{"x", 1, 150, 290, 1, 1, d, d}.scale(1).band(band),
            [&](Instance& x) { plant_heights(&x, [&](std::int64_t) { return height; }); }, agreed);
      }
    }
  }
}

/// A row of NaN must not keep the rows beside it from getting what they need, nor reach them.
TEST(Contract, ANanRowBesideRowsThatRise) {
  for (const auto& [d_qk, d_v] : kHeadDims) {
    for (const bool up : {true, false}) {
      SCOPED_TRACE(::testing::Message() << "d " << d_qk << (up ? " up" : " down"));
      planted(
          Case{"x", 1, 24, 290, 1, 1, d_qk, d_v}.scale(1),
          [&](Instance& x) {
            plant_heights(&x, [&](std::int64_t j) { return 20.f * static_cast<float>((up ? j : 289 - j) / kStep); });
            for (const std::int64_t i : {4, 13, 20}) x.q.set(0, i, 0, 1, kNan);
          },
          [](const Instance& x) {
            for (std::int64_t i = 0; i < 24; ++i)
              EXPECT_TRUE(row_has(x, 0, i, 0, i == 4 || i == 13 || i == 20 ? is_nan : is_finite)) << i;
          });
    }
  }
}

/// A score of +inf makes its row NaN, and one of -inf hides its key. Rows that see neither, for whom the product is of
/// numbers, go on.
TEST(Contract, InfiniteScoresBesideRowsThatRise) {
  for (const auto& [d_qk, d_v] : kHeadDims) {
    for (const std::int64_t key : {3, 150, 289}) {
      SCOPED_TRACE(::testing::Message() << "d " << d_qk << ", key " << key);
      planted(
          Case{"x", 1, 24, 290, 1, 1, d_qk, d_v}.scale(1),
          [&](Instance& x) {
            plant_heights(&x, [](std::int64_t j) { return 9.f * static_cast<float>(j / kStep); });
            x.q.for_each([&](auto b, auto i, auto h, auto d) {
              if (d == 2) x.q.set(b, i, h, d, i % 3 == 0 ? 1.f : -1.f);
            });
            x.k.set(0, key, 0, 2, kInf);
          },
          [](const Instance& x) {
            for (std::int64_t i = 0; i < 24; ++i)
              EXPECT_TRUE(row_has(x, 0, i, 0, i % 3 == 0 ? is_nan : is_finite)) << i;
          });
    }
  }
}

}  // namespace
}  // namespace falchion::testing
