// tests/contract_merge_test.cpp: the rules of docs/contract.md about partial results (O, LSE) and their merge.
#include <gtest/gtest.h>

#include <limits>

#include <array>
#include <cmath>

#include "support/contract.hpp"

namespace falchion::testing {
namespace {

TEST(Contract, MergeOfPartialResults) {
  on_every_path([](const Path& path, DType dtype) {
    if (dtype != DType::f32) return;
    Instance whole = make_instance(Case{"x", 2, 6, 90, 2, 2, 32, 32}, DType::f32);
    Instance part[2] = {make_instance(Case{"x", 2, 6, 40, 2, 2, 32, 32}, DType::f32),
                        make_instance(Case{"x", 2, 6, 50, 2, 2, 32, 32}, DType::f32)};
    for (int p = 0; p < 2; ++p) {
      part[p].q = whole.q;
      part[p].k.for_each([&](auto b, auto s, auto h, auto d) {
        part[p].k.set(b, s, h, d, whole.k.get(b, s + p * 40, h, d));
        part[p].v.set(b, s, h, d, whole.v.get(b, s + p * 40, h, d));
      });
      ASSERT_TRUE(run(path, &part[p]));
    }
    whole.poison_outputs();
    ASSERT_TRUE(merge(part[0].o.view(), part[0].lse.view(), part[1].o.view(), part[1].lse.view(), whole.o.view(),
                      whole.lse.view()));
    EXPECT_TRUE(matches(whole, Reference(whole)));
    Instance swapped = make_instance(Case{"x", 2, 6, 90, 2, 2, 32, 32}, DType::f32);
    ASSERT_TRUE(merge(part[1].o.view(), part[1].lse.view(), part[0].o.view(), part[0].lse.view(), swapped.o.view(),
                      swapped.lse.view()));
    whole.o.for_each(
        [&](auto b, auto s, auto h, auto d) { ASSERT_EQ(whole.o.get(b, s, h, d), swapped.o.get(b, s, h, d)); });
    whole.lse.for_each(
        [&](auto b, auto h, auto s, auto) { ASSERT_EQ(whole.lse.get(b, h, s, 0), swapped.lse.get(b, h, s, 0)); });
  });
}

/// The stride of an axis with one element means nothing, so two views that differ in it alone are the same memory.
TEST(Contract, MergeIntoAnInputWhoseAxesOfOneElementSayOtherStrides) {
  HostTensor o_a(DType::f32, {1, 2, 1, 4}), o_b(DType::f32, {1, 2, 1, 4});
  HostTensor lse_a(DType::f32, {1, 1, 2, 1}), lse_b(DType::f32, {1, 1, 2, 1});
  for (std::int64_t i = 0; i < 2; ++i) {
    set_row(&o_a, 0, i, 0, 3);
    set_row(&o_b, 0, i, 0, 5);
    lse_a.set(0, 0, i, 0, 0);
    lse_b.set(0, 0, i, 0, 0);
  }
  Tensor o = o_a.view(), lse = lse_a.view();
  o.stride[0] = 1000;
  o.stride[2] = 7;
  lse.stride[0] = 77;
  EXPECT_EQ(merge(o_a.view(), lse_a.view(), o_b.view(), lse_b.view(), o, lse).why, "");
  EXPECT_EQ(o_a.get(0, 1, 0, 3), 4);
}

TEST(Contract, MergeOfEmptyAndBrokenStates) {
  HostTensor o_a(DType::f32, {1, 2, 1, 4}), o_b(DType::f32, {1, 2, 1, 4}), o(DType::f32, {1, 2, 1, 4});
  HostTensor lse_a(DType::f32, {1, 1, 2, 1}), lse_b(DType::f32, {1, 1, 2, 1}), lse(DType::f32, {1, 1, 2, 1});
  const auto merged = [&] { return merge(o_a.view(), lse_a.view(), o_b.view(), lse_b.view(), o.view(), lse.view()); };
  for (std::int64_t i = 0; i < 2; ++i) {
    set_row(&o_a, 0, i, 0, 3);
    set_row(&o_b, 0, i, 0, kNan);
    lse_b.set(0, 0, i, 0, -kInf);
  }
  lse_a.set(0, 0, 0, 0, 0.5f);
  lse_a.set(0, 0, 1, 0, -kInf);
  ASSERT_TRUE(merge(o_b.view(), lse_b.view(), o_a.view(), lse_a.view(), o.view(), lse.view()));
  EXPECT_EQ(o.get(0, 0, 0, 2), 3);
  EXPECT_EQ(lse.get(0, 0, 0, 0), 0.5f);
  ASSERT_TRUE(merged());
  EXPECT_EQ(o.get(0, 0, 0, 2), 3);  // An empty state adds nothing, whatever its O holds.
  EXPECT_EQ(lse.get(0, 0, 0, 0), 0.5f);
  EXPECT_EQ(o.get(0, 1, 0, 2), 0);  // Here both states are empty.
  EXPECT_EQ(lse.get(0, 0, 1, 0), -kInf);
  for (const float bad : {kInf, kNan}) {
    lse_a.set(0, 0, 1, 0, bad);
    o.fill_poison();
    EXPECT_EQ(merged().code, Code::invalid) << bad;
    EXPECT_EQ(o.written(), 0);
  }
}

/// The weights of a merge come from the LSEs, which are f32. Here two states cover 3 keys and 1 key that all score
/// `score`. Near 1e9 their LSEs are equal in f32, and so are the weights.
TEST(Contract, MergeIsAsExactAsTheLse) {
  const struct {
    float score;
    double error;
  } all[] = {{0, 1e-7}, {100, 1e-5}, {1e4f, 5e-4}, {1e9f, 0.2501}};
  for (const auto& [score, error] : all) {
    SCOPED_TRACE(score);
    HostTensor o_a(DType::f32, {1, 1, 1, 4}), o_b(DType::f32, {1, 1, 1, 4}), o(DType::f32, {1, 1, 1, 4});
    HostTensor lse_a(DType::f32, {1, 1, 1, 1}), lse_b(DType::f32, {1, 1, 1, 1}), lse(DType::f32, {1, 1, 1, 1});
    set_row(&o_a, 0, 0, 0, 1);
    set_row(&o_b, 0, 0, 0, 0);
    lse_a.set(0, 0, 0, 0, static_cast<float>(score + std::log(3.0)));
    lse_b.set(0, 0, 0, 0, score);
    ASSERT_TRUE(merge(o_a.view(), lse_a.view(), o_b.view(), lse_b.view(), o.view(), lse.view()));
    EXPECT_NEAR(o.get(0, 0, 0, 0), 0.75, error);
  }
}

TEST(Contract, MergeOfStatesWithoutElements) {
  for (const Shape& o : {Shape{0, 3, 2, 4}, Shape{2, 0, 2, 4}, Shape{2, 3, 0, 4}}) {
    Tensor x = Tensor::dense(nullptr, DType::bf16, o);
    Tensor lse = Tensor::dense(nullptr, DType::f32, {o[0], o[2], o[1], 1});
    constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
    for (const Shape& strides : {x.stride, Shape{}, Shape{kHuge, kHuge, kHuge, kHuge}}) {
      x.stride = lse.stride = strides;
      const Status status = merge(x, lse, x, lse, x, lse);
      EXPECT_TRUE(status) << status.why;
    }
  }
}

/// merge asks of its tensors what a run asks of its operands, in the same words: the axis, its extent and the limit.
TEST(Contract, MergeNamesTheTensorThatDoesNotFit) {
  struct Tensors {
    std::array<float, 64> memory[6]{};
    Tensor o_a, lse_a, o_b, lse_b, o, lse;
  };
  const struct {
    void (*spoil)(Tensors& t);
    const char* why;
  } all[] = {
      {[](Tensors& t) { t.o_a.shape[1] = 4; }, "o_a.shape[1] = 4, with this o it is 3"},
      {[](Tensors& t) { t.lse_b.shape[2] = 2; }, "lse_b.shape[2] = 2, with this o it is 3"},
      {[](Tensors& t) { t.lse.shape[3] = 2; }, "lse.shape[3] = 2, with this o it is 1"},
      {[](Tensors& t) { t.lse.dtype = DType::bf16; }, "lse.dtype = bf16, with this o it is f32"},
      {[](Tensors& t) { t.o_b.dtype = DType::i8; }, "o_b.dtype = i8: it must be f32, f16 or bf16"},
      {[](Tensors& t) { t.o.shape[2] = -1; }, "o.shape[2] = -1: an extent must be 0 or more"},
      {[](Tensors& t) { t.o.shape[3] = t.o_a.shape[3] = t.o_b.shape[3] = 0; },
       "o.shape[3] = 0: a head dim must be 1 or more"},
      {[](Tensors& t) {
         t.o.stride[0] = 0;
         t.o.shape[0] = t.o_a.shape[0] = t.o_b.shape[0] = 2;
       },
       "o.stride[0] = 0: strides of an output must be above 0"},
      {[](Tensors& t) { t.o_a.data = nullptr; }, "o_a.data is null"},
      {[](Tensors& t) { t.o.data = &t.memory[0][1]; }, "o overlaps o_a"},
      {[](Tensors& t) { t.lse.data = t.o.data; }, "o overlaps lse"},
      {[](Tensors& t) { t.o.data = t.memory[0].data(); }, ""},
      {[](Tensors& t) { t.lse.data = t.memory[3].data(); }, ""},
  };
  for (const auto& [spoil, why] : all) {
    Tensors t;
    const Shape states{1, 3, 2, 4}, rows{1, 2, 3, 1};
    t.o_a = Tensor::dense(t.memory[0].data(), DType::f32, states);
    t.lse_a = Tensor::dense(t.memory[1].data(), DType::f32, rows);
    t.o_b = Tensor::dense(t.memory[2].data(), DType::f32, states);
    t.lse_b = Tensor::dense(t.memory[3].data(), DType::f32, rows);
    t.o = Tensor::dense(t.memory[4].data(), DType::f32, states);
    t.lse = Tensor::dense(t.memory[5].data(), DType::f32, rows);
    spoil(t);
    EXPECT_EQ(merge(t.o_a, t.lse_a, t.o_b, t.lse_b, t.o, t.lse).why, why);
  }
}

}  // namespace
}  // namespace falchion::testing
