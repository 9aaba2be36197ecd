// tests/backward_laws_test.cpp: tests the laws that gradients of attention obey on every path.
// tests/backward_derivative_test.cpp shows that those of the definition are the derivatives. A case with no feature but
// a band, in bf16, runs on the plain variants of a GPU, any other case on the general ones.
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <utility>

#include "support/gradients.hpp"

namespace falchion::testing {
namespace {

using Bias = Case::Bias;

class BackwardLaws : public OnBackwardPaths {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackwardLaws);  // A build may have no variants.
INSTANTIATE_TEST_SUITE_P(Paths, BackwardLaws, ::testing::ValuesIn(built_paths(kAttentionBackward)), path_name);

Case small(const char* name) { return Case{name, 2, 4, 5, 4, 2, 8, 8}; }

/// Copies as many rows as `to` has.
void copy_rows(const HostTensor& from, std::int64_t begin, HostTensor* to) {
  to->for_each([&](auto b, auto s, auto h, auto d) { to->set(b, s, h, d, from.get(0, begin + s, h, d)); });
}
void multiply(HostTensor* x, float factor) {
  x->for_each([&](auto i, auto j, auto k, auto l) { x->set(i, j, k, l, factor * x->get(i, j, k, l)); });
}
/// Gradients are linear in what comes from above, and a factor of 2 changes no digit.
TEST_P(BackwardLaws, TwiceTheGradientFromAboveIsTwiceEachGradient) {
  for (const auto& [dtype, bias] : {std::pair{DType::f32, true}, {DType::bf16, true}, {DType::bf16, false}}) {
    const Wanted wanted{.grad_lse = true, .grad_bias = bias ? Shape{1, 4, 4, 5} : Shape{}};
    const Bias kind = bias ? Bias::f32 : Bias::none;
    Gradients once(small("once").bias(kind).causal(), dtype, wanted);
    Gradients twice(small("twice").bias(kind).causal(), dtype, wanted);
    multiply(&twice.grad_o, 2);
    multiply(&twice.grad_lse, 2);
    once.run(GetParam());
    twice.run(GetParam());
    for_each_gradient(once, twice, [](const char* name, const HostTensor& x, const HostTensor& y) {
      x.for_each([&](auto i, auto j, auto k, auto l) { ASSERT_EQ(2 * x.get(i, j, k, l), y.get(i, j, k, l)) << name; });
    });
  }
}

/// To add a number to all scores of a row moves its lse by that number, and nothing else.
TEST_P(BackwardLaws, TheGradientsOfARowsScoresSumToThatOfItsLse) {
  Gradients all(small("row").bias(Bias::f32), DType::f32, {.grad_lse = true, .grad_bias = {2, 4, 4, 5}});
  all.run(GetParam());
  all.grad_lse.for_each([&](auto b, auto h, auto i, auto) {
    double sum = 0;
    for (std::int64_t j = 0; j < 5; ++j) sum += all.grad_bias.get(b, h, i, j);
    ASSERT_NEAR(sum, all.grad_lse.get(b, h, i, 0), 5e-6);
  });
}

/// q and k enter by their products alone: what q grows by k may shrink by. P V is linear in V.
TEST_P(BackwardLaws, ProductsWithTheOperandsAgree) {
  Gradients all(small("products").causal().softcap(2), DType::f32, {});
  all.run(GetParam());
  const auto product = [](const HostTensor& x, const HostTensor& y) {
    double sum = 0;
    x.for_each([&](auto i, auto j, auto k, auto l) { sum += double{x.get(i, j, k, l)} * y.get(i, j, k, l); });
    return sum;
  };
  EXPECT_NEAR(product(all.x.q, all.grad_q), product(all.x.k, all.grad_k), 2e-5);
  EXPECT_NEAR(product(all.x.v, all.grad_v), product(all.x.o, all.grad_o), 2e-5);
}

/// Keys in two parts, with the o and lse of all of them: the gradients of q add, and those of the keys are the same.
/// This is a step of ring attention.
TEST_P(BackwardLaws, PartsOfTheKeysUnderTheMergedLse) {
  Gradients whole(small("whole"), DType::f32, {.grad_lse = true});
  Gradients parts(small("parts"), DType::f32, {.grad_lse = true, .grads = Grads::accumulate});
  whole.run(GetParam());
  for (HostTensor* x : {&parts.grad_q, &parts.grad_k, &parts.grad_v}) fill(x, 0);
  Attention problem = parts.x.problem;
  for (const auto& [from, length] : {std::pair{0, 2}, {2, 3}}) {
    Operands x = parts.operands();
    for (Tensor* keys : {&x.k, &x.v, &x.grad_k, &x.grad_v}) {
      keys->data = static_cast<float*>(keys->data) + from * keys->stride[1];
      keys->shape[1] = problem.s_k = length;
    }
    const Status status = run_backward(backward_target(GetParam(), DType::f32), problem, x);
    ASSERT_TRUE(status) << status.why;
  }
  expect_near("grad_q", whole.grad_q, parts.grad_q, 1e-6);
  expect_same("grad_k", whole.grad_k, parts.grad_k);
  expect_same("grad_v", whole.grad_v, parts.grad_v);
}

/// What is added to all keys of a head moves all scores of a row alike, which a softmax does not see. And the weights
/// of a row sum to 1.
TEST_P(BackwardLaws, GradientsOfAllKeysTogether) {
  Gradients all(small("sums").window(3, 1), DType::f32, {});
  all.run(GetParam());
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t d = 0; d < 8; ++d) {
        double of_k = 0, of_v = 0, of_o = 0;
        for (std::int64_t j = 0; j < 5; ++j) {
          of_k += all.grad_k.get(b, j, h, d);
          of_v += all.grad_v.get(b, j, h, d);
        }
        for (std::int64_t i = 0; i < 4; ++i)
          of_o += all.grad_o.get(b, i, 2 * h, d) + all.grad_o.get(b, i, 2 * h + 1, d);
        ASSERT_NEAR(of_v, of_o, 1e-5);
        ASSERT_NEAR(of_k, 0, 1e-5);
      }
    }
  }
}

/// Query heads that share a K/V head are as heads of their own with the same keys, whose gradients are added.
TEST_P(BackwardLaws, SharedHeadsAreRepeatedHeads) {
  Gradients shared(small("shared").causal(), DType::f32, {});
  Case row = small("repeated").causal();
  row.h_k = 4;
  Gradients repeated(row, DType::f32, {});
  for (const auto& [from, to] : {std::pair{&shared.x.k, &repeated.x.k}, {&shared.x.v, &repeated.x.v}})
    to->for_each([&](auto b, auto s, auto h, auto d) { to->set(b, s, h, d, from->get(b, s, h / 2, d)); });
  repeated.run_forward();
  shared.run(GetParam());
  repeated.run(GetParam());
  expect_same("grad_q", shared.grad_q, repeated.grad_q);
  shared.grad_k.for_each([&](auto b, auto s, auto h, auto d) {
    ASSERT_NEAR(shared.grad_k.get(b, s, h, d),
                repeated.grad_k.get(b, s, 2 * h, d) + repeated.grad_k.get(b, s, 2 * h + 1, d), 1e-6);
    ASSERT_NEAR(shared.grad_v.get(b, s, h, d),
                repeated.grad_v.get(b, s, 2 * h, d) + repeated.grad_v.get(b, s, 2 * h + 1, d), 1e-6);
  });
}

/// A band hides what a mask of the same keys hides.
TEST_P(BackwardLaws, ABandIsAMask) {
  Gradients band(small("band").window(1, 1), DType::f32, {.grad_lse = true});
  Gradients mask(small("mask").mask(), DType::f32, {.grad_lse = true});
  mask.x.mask.for_each([&](auto b, auto h, auto i, auto j) {
    const std::int64_t x = j - i - 1;  // bottom right: query 3 of 4 stands at key 4 of 5
    mask.x.mask.set(b, h, i, j, -1 <= x && x <= 1 ? 1 : 0);
  });
  mask.run_forward();
  band.run(GetParam());
  mask.run(GetParam());
  expect_all_near(band, mask, 2e-6);  // kernels scale the scores in another step where there is a mask
}

/// Sequences of a packed batch have the gradients of separate calls, bit for bit. s_q leaves room for the rows of no
/// sequence, which a GPU's workspace holds too.
TEST_P(BackwardLaws, PackedSequencesAreSeparateCalls) {
  Case row = Case{"packed", 2, 5, 5, 4, 2, 8, 8}.packed({3, 4}, {5, 2}).causal();
  Gradients packed(row, DType::bf16, {});
  packed.run(GetParam());
  for (std::int64_t b = 0; b < 2; ++b) {
    const Instance::Rows q = packed.x.q_rows(b), k = packed.x.k_rows(b);
    Gradients one(Case{"one", 1, q.length, k.length, 4, 2, 8, 8}.causal(), DType::bf16, {});
    copy_rows(packed.x.q, q.begin, &one.x.q);
    copy_rows(packed.x.k, k.begin, &one.x.k);
    copy_rows(packed.x.v, k.begin, &one.x.v);
    copy_rows(packed.grad_o, q.begin, &one.grad_o);
    one.run_forward();
    one.run(GetParam());
    for (const auto& [from, begin, own] : {std::tuple{&packed.grad_q, q.begin, &one.grad_q},
                                           {&packed.grad_k, k.begin, &one.grad_k},
                                           {&packed.grad_v, k.begin, &one.grad_v}}) {
      HostTensor part = own->like();
      copy_rows(*from, begin, &part);
      expect_same("a gradient", part, *own);
    }
  }
}

TEST_P(BackwardLaws, WhatIsFrozenDoesNotChangeTheRest) {
  expect_frozen_as_full(backward_target(GetParam(), DType::bf16), [](std::uint8_t frozen) {
    return Gradients(small("frozen"), DType::bf16, {.frozen = frozen});
  });
}

TEST_P(BackwardLaws, GradientsAreRoundedOrF32OrAdded) {
  for (const bool plain : {false, true}) {
    const auto make = [&](Grads grads) {
      if (plain) return Gradients(small("grads").causal(), DType::bf16, {.grads = grads});
      return Gradients(small("grads").causal().bias(Bias::f32).alibi(), DType::bf16,
                       {.grad_bias = {1, 4, 4, 5}, .grad_alibi = {1, 1, 4, 1}, .grads = grads});
    };
    Gradients rounded = make(Grads::rounded), wide = make(Grads::f32), added = make(Grads::accumulate);
    for (HostTensor* x : {&added.grad_q, &added.grad_k, &added.grad_v, &added.grad_bias, &added.grad_alibi}) fill(x, 3);
    for (Gradients* x : {&rounded, &wide, &added}) x->run(GetParam());
    for_each_gradient(rounded, wide, [](const char* name, const HostTensor& x, const HostTensor& y) {
      x.for_each([&](auto i, auto j, auto k, auto l) {
        const float value = y.get(i, j, k, l);
        const bool is_f32 = x.view().dtype == DType::f32;
        ASSERT_EQ(x.get(i, j, k, l), is_f32 ? value : f32_from_bf16(bf16_from_f32(value))) << name;
      });
    });
    for_each_gradient(wide, added, [](const char* name, HostTensor x, const HostTensor& y) {
      x.for_each([&](auto i, auto j, auto k, auto l) { x.set(i, j, k, l, x.get(i, j, k, l) + 3); });
      expect_near(name, x, y, 2e-6);
    });
  }
}

}  // namespace
}  // namespace falchion::testing
