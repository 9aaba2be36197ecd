// tests/train_gpt_test.cpp: tests of examples/train_gpt. Its gradients are derivatives of its loss, and the CPU's
// kernels train it as the definition in double does: equal to rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "adam.hpp"
#include "falchion/falchion.hpp"
#include "model.hpp"
#include "text.hpp"

namespace train_gpt {
namespace {

const Sizes kTiny{.layers = 2, .width = 32, .heads = 2, .context = 40, .batch = 2};
const Sizes kSmall{.layers = 2, .width = 64, .heads = 2, .context = 72, .batch = 2};  // 72 is no multiple of a tile

falchion::Target level(const char* name) {
  falchion::Target target(falchion::Backend::cpu);
  target.cpu_level = name;
  target.threads = 1;
  return target;
}

/// The levels that have attention of this type here, forward and backward.
std::vector<const char*> levels(falchion::DType dtype) {
  std::vector<const char*> here;
  for (const char* name : {"generic", "neon", "avx2", "avx512", "avx512_bf16", "amx_emulated", "amx"}) {
    try {
      CausalAttention(1, 8, 1, 8, dtype, level(name));
      here.push_back(name);
    } catch (const std::runtime_error&) {  // It is not built, or this CPU is another one.
    }
  }
  return here;
}

Batch draw(const Sizes& sizes) {
  std::mt19937_64 random(7);
  return Text(std::string(TRAIN_GPT_TEXT)).draw(sizes, &random);
}

/// Weights so large that attention is far from uniform, in the norms too.
void make_large(Gpt* gpt) {
  std::mt19937_64 random(3);
  for (Parameter* p : gpt->parameters()) p->randomise(&random, p->value.rows == 1 ? 1.F : 0.3F);
}

double norm(const std::vector<float>& x) {
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

/// Each parameter's gradient against a central difference. The largest difference was 1.7e-4 of the gradient's norm.
TEST(TrainGpt, GradientsAreDerivatives) {
  Gpt gpt(kTiny, 1, falchion::Backend::ref);
  make_large(&gpt);
  const Batch batch = draw(kTiny);
  gpt.loss_and_gradients(batch);
  std::map<std::string, std::vector<float>> gradients;
  for (const Parameter* p : gpt.parameters()) gradients[p->name] = p->grad.data;
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  for (Parameter* p : gpt.parameters()) {
    // The direction is half the gradient's own and half random: what is missing and what is too much both show.
    const std::vector<float>&gradient = gradients[p->name], start = p->value.data;
    const double length = norm(gradient), spread = 1 / std::sqrt(static_cast<double>(gradient.size()));
    std::vector<double> direction;
    double expected = 0;
    for (const float g : gradient) {
      direction.push_back(g / length + spread * normal(random));
      expected += direction.back() * g;
    }
    const double step = 2e-3;
    double loss[2];
    for (const int side : {0, 1}) {
      for (std::size_t i = 0; i < start.size(); ++i)
        p->value.data[i] = static_cast<float>(start[i] + (side == 1 ? step : -step) * direction[i]);
      loss[side] = gpt.loss_and_gradients(batch);
    }
    p->value.data = start;
    const double found = (loss[1] - loss[0]) / (2 * step);
    EXPECT_NEAR(found, expected, 2e-3 * length) << p->name << ", whose gradient has the norm " << length;
  }
}

/// The gradients of a model whose attention has this type are those of the definition, but for `limit` of their norm.
void expect_gradients_of_the_definition(falchion::DType dtype, double limit) {
  const Batch batch = draw(kSmall);
  Gpt exact(kSmall, 1, falchion::Backend::ref);
  make_large(&exact);
  const double loss = exact.loss_and_gradients(batch);
  if (levels(dtype).empty()) GTEST_SKIP() << "no CPU level with attention of this type is built";
  for (const char* name : levels(dtype)) {
    Sizes sizes = kSmall;
    sizes.dtype = dtype;
    Gpt gpt(sizes, 1, level(name));
    make_large(&gpt);
    EXPECT_NEAR(gpt.loss_and_gradients(batch), loss, limit) << name;
    for (std::size_t n = 0; n < gpt.parameters().size(); ++n) {
      const Parameter &of_kernels = *gpt.parameters()[n], &of_definition = *exact.parameters()[n];
      std::vector<float> difference = of_kernels.grad.data;
      for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= of_definition.grad.data[i];
      EXPECT_LE(norm(difference), limit * norm(of_definition.grad.data)) << name << ", " << of_kernels.name;
    }
  }
}

/// The largest difference of all levels and parameters was 3.1e-6 of the gradient's norm.
TEST(TrainGpt, GradientsOfKernelsAreThoseOfTheDefinition) {
  expect_gradients_of_the_definition(falchion::DType::f32, 1e-5);
}

/// Attention sees q, k, v, o and grad_o rounded to 8 bits then, and the largest difference was 0.038 of the norm.
TEST(TrainGpt, GradientsInBf16AreNearThoseOfTheDefinition) {
  expect_gradients_of_the_definition(falchion::DType::bf16, 0.1);
}

std::vector<double> losses(falchion::Target target, int steps) {
  const Text text{std::string(TRAIN_GPT_TEXT)};
  Gpt gpt(kSmall, 1, target);
  Adam adam(gpt.parameters(), 3e-3F, 5);
  std::mt19937_64 random(1);
  std::vector<double> out;
  for (int step = 0; step < steps; ++step) {
    out.push_back(gpt.loss_and_gradients(text.draw(kSmall, &random)));
    adam.step();
  }
  return out;
}

/// The curves of all levels were within 1.7e-5 of that of the definition.
TEST(TrainGpt, KernelsTrainAsTheDefinitionDoes) {
  constexpr int kSteps = 40;
  if (levels(falchion::DType::f32).empty()) GTEST_SKIP() << "no CPU level with attention in f32 is built";
  const std::vector<double> exact = losses(falchion::Backend::ref, kSteps);
  EXPECT_NEAR(exact.front(), std::log(256.0), 0.3) << "before training all bytes are as likely";
  EXPECT_LT(exact.back(), 3.2);
  for (const char* name : levels(falchion::DType::f32)) {
    const std::vector<double> curve = losses(level(name), kSteps);
    for (int step = 0; step < kSteps; ++step) EXPECT_NEAR(curve[step], exact[step], 1e-4) << name << ", step " << step;
  }
}

}  // namespace
}  // namespace train_gpt
