// tests/roofline_backward_test.cpp: the model of attention's backward pass in `falchion roofline`, worked out by hand.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "roofline/model.hpp"
#include "roofline/points.hpp"

namespace falchion::tools::roofline {
namespace {

Attention square(double s, double group) {
  Attention a;
  a.s_q = a.s_k = s;
  a.h_k = a.h_q / group;
  return a;
}

TEST(RooflineBackward, CountsFiveProductsAndEightTensors) {
  Attention a = square(4096, 1);  // 32 heads, d 128, bf16
  const Work forward = attention(a), backward = attention_backward(a);
  EXPECT_DOUBLE_EQ(backward.flop, 2.5 * forward.flop);
  EXPECT_DOUBLE_EQ(backward.exps, forward.exps);
  EXPECT_DOUBLE_EQ(backward.hbm, 2 * forward.hbm + 4.0 * 32 * 4096);  // eight tensors instead of four, and the LSE
  // K, V and their gradients are moved once. 32 blocks of 128 keys read Q and the gradient of O, and each adds d
  // numbers in f32 to each row.
  EXPECT_DOUBLE_EQ(backward.l2, forward.hbm + 32.0 * 32 * 4096 * (2 * 256 + 4 * 128));
  a.causal = true;
  EXPECT_DOUBLE_EQ(attention_backward(a).flop, backward.flop / 2);
  EXPECT_DOUBLE_EQ(attention_backward(a).hbm, backward.hbm);
  a.d_v = 64;
  EXPECT_DOUBLE_EQ(attention_backward(a).flop, 2 * (3 * 128 + 2 * 64) * 32.0 * 4096 * 4096 / 2);
}

TEST(RooflineBackward, AtTheCrossoverTheIntensityIsTheRidge) {
  for (const Device& x : devices()) {
    for (const double group : {1.0, 8.0}) {
      for (const bool causal : {false, true}) {
        Attention a = square(1, group);
        a.causal = causal;
        a.s_q = a.s_k = backward_crossover(x, a);
        EXPECT_NEAR(attention_backward(a).intensity() / x.ridge(), 1, 1e-9) << x.key;
      }
    }
  }
}

TEST(RooflineBackward, PointsOfItsSectionHaveItsIntensity) {
  const auto path =
      std::filesystem::path(::testing::TempDir()) / ("falchion_backward_points_" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << R"({"rows": [{"section": "backward", "name": "burst/bf16/d:128/s:4096/full", "unit": "TFLOP/s",
    "ms": {"falchion": 1}, "rate": {"falchion": 500}}]})";
  const auto points = read_points(path.string());
  std::filesystem::remove(path);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].series, "falchion backward d 128 full, burst");
  EXPECT_NEAR(points[0].intensity, 10 * 4096.0 * 128 / (16 * 128 + 4), 1e-6);  // 10 s^2 d over 8 s d bf16 and 4 s
  EXPECT_DOUBLE_EQ(points[0].flops, 500e12);
}

}  // namespace
}  // namespace falchion::tools::roofline
