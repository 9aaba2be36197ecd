// tests/contract_merge_test.cpp: the rules of docs/contract.md about partial results (O, LSE) and their merge.
#include <gtest/gtest.h>

#include <limits>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "support/contract.hpp"

namespace falchion::testing {
namespace {

/// States by their index, as merge takes them.
struct States {
  std::vector<Tensor> o, lse;
  void add(const Instance& x) {
    o.push_back(x.o.view());
    lse.push_back(x.lse.view());
  }
};

bool same_elements(const HostTensor& x, const HostTensor& y) {
  bool same = true;
  x.for_each([&](auto i, auto j, auto k, auto l) { same = same && x.get(i, j, k, l) == y.get(i, j, k, l); });
  return same;
}

/// The keys are cut into parts of these lengths, and the parts merged.
void merge_parts(const Path& path, const std::vector<std::int64_t>& lengths) {
  std::int64_t first = 0, all = 0;
  for (const std::int64_t length : lengths) all += length;
  const auto instance = [](std::int64_t keys) {
    return make_instance(Case{"x", 2, 6, keys, 2, 2, 32, 32}, DType::f32);
  };
  Instance whole = instance(all), swapped = instance(all);
  std::vector<Instance> parts;
  States states;
  for (const std::int64_t length : lengths) {
    Instance& part = parts.emplace_back(instance(length));
    part.q = whole.q;
    part.k.for_each([&](auto b, auto s, auto h, auto d) {
      part.k.set(b, s, h, d, whole.k.get(b, s + first, h, d));
      part.v.set(b, s, h, d, whole.v.get(b, s + first, h, d));
    });
    first += length;
    ASSERT_TRUE(run(path, &part));
    states.add(part);
  }
  whole.poison_outputs();
  const Status status = merge(states.o.data(), states.lse.data(), lengths.size(), whole.o.view(), whole.lse.view());
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(whole, Reference(whole)));
  if (lengths.size() != 2) return;
  ASSERT_TRUE(merge(states.o[1], states.lse[1], states.o[0], states.lse[0], swapped.o.view(), swapped.lse.view()));
  EXPECT_TRUE(same_elements(whole.o, swapped.o) && same_elements(whole.lse, swapped.lse)) << "commutative to the bit";
}

TEST(Contract, MergeOfPartialResults) {
  on_every_path([](const Path& path, DType dtype) {
    if (dtype != DType::f32) return;
    for (const std::vector<std::int64_t>& lengths :
         std::vector<std::vector<std::int64_t>>{{40, 50}, {90}, {17, 0, 1, 40, 32}, std::vector<std::int64_t>(32, 3)})
      merge_parts(path, lengths);
  });
}

/// Each part has its own type and strides, and the outputs are the second part.
TEST(Contract, MergeOfPartsOfAnyTypeAndStridesInPlace) {
  const Shape shape{2, 3, 2, 24}, rows{2, 2, 3, 1};
  const std::pair<DType, Layout> kinds[] = {{DType::bf16, Layout::transposed},
                                            {DType::f32, Layout::gaps},
                                            {DType::f16, Layout::reversed},
                                            {DType::f32, Layout::odd},
                                            {DType::bf16, Layout::heads_first}};
  std::vector<HostTensor> os, lses;
  States states;
  for (const auto& [dtype, layout] : kinds) {
    os.emplace_back(dtype, shape, layout).fill_normal(os.size());
    lses.emplace_back(DType::f32, rows, layout).fill_normal(20 + os.size());
    states.o.push_back(os.back().view());
    states.lse.push_back(lses.back().view());
  }
  std::vector<double> expected, expected_lse;
  os[1].for_each([&](auto b, auto i, auto h, auto d) {
    double sum = 0, value = 0;
    for (std::size_t p = 0; p < os.size(); ++p) {
      const double weight = std::exp(double{lses[p].get(b, h, i, 0)});
      sum += weight;
      value += weight * os[p].get(b, i, h, d);
    }
    expected.push_back(value / sum);
    expected_lse.push_back(std::log(sum));
  });
  const Status status = merge(states.o.data(), states.lse.data(), states.o.size(), states.o[1], states.lse[1]);
  ASSERT_TRUE(status) << status.why;
  std::size_t n = 0;
  os[1].for_each([&](auto b, auto i, auto h, auto d) {
    ASSERT_NEAR(os[1].get(b, i, h, d), expected[n], 1e-6);
    ASSERT_NEAR(lses[1].get(b, h, i, 0), expected_lse[n++], 1e-6);
  });
}

/// An empty state is left out even if it holds NaN. A NaN of another one is kept, however small its weight.
TEST(Contract, MergeKeepsANaNOfEveryStateThatIsNotEmpty) {
  HostTensor o_a(DType::f32, {1, 1, 1, 4}), o_b(DType::f32, {1, 1, 1, 4}), o(DType::f32, {1, 1, 1, 4});
  HostTensor lse_a(DType::f32, {1, 1, 1, 1}), lse_b(DType::f32, {1, 1, 1, 1}), lse(DType::f32, {1, 1, 1, 1});
  set_row(&o_a, 0, 0, 0, 3);
  set_row(&o_b, 0, 0, 0, kNan);
  lse_a.set(0, 0, 0, 0, 2000);
  for (const float low : {1999.F, 0.F, -kInf}) {
    lse_b.set(0, 0, 0, 0, low);
    ASSERT_TRUE(merge(o_a.view(), lse_a.view(), o_b.view(), lse_b.view(), o.view(), lse.view()));
    EXPECT_EQ(std::isnan(o.get(0, 0, 0, 1)), low > -kInf) << low;
  }
  EXPECT_EQ(o.get(0, 0, 0, 1), 3);
}

TEST(Contract, MergeTakesUpTo32Parts) {
  std::array<float, 8> memory{};
  const Tensor o = Tensor::dense(memory.data(), DType::f32, {1, 1, 1, 4});
  const Tensor lse = Tensor::dense(memory.data() + 4, DType::f32, {1, 1, 1, 1});
  const std::vector<Tensor> os(33, o), lses(33, lse);
  EXPECT_EQ(merge(os.data(), lses.data(), 32, o, lse).why, "");
  const auto refused = [](const Status& status, Code code, const std::string& why) {
    EXPECT_EQ(status.code, code);
    EXPECT_EQ(status.why, why);
  };
  refused(merge(os.data(), lses.data(), 33, o, lse), Code::unsupported, "parts = 33: merge takes up to 32");
  refused(merge(os.data(), lses.data(), 0, o, lse), Code::invalid, "parts = 0: there must be 1 or more");
  refused(merge(nullptr, lses.data(), 2, o, lse), Code::invalid, "o_parts is null");
  refused(merge(os.data(), nullptr, 2, o, lse), Code::invalid, "lse_parts is null");
  std::vector<Tensor> odd = lses;
  odd[2].shape[2] = 5;
  refused(merge(os.data(), odd.data(), 3, o, lse), Code::invalid, "lse_parts[2].shape[2] = 5, with this o it is 1");
  memory[4] = kInf;
  refused(merge(os.data(), lses.data(), 3, o, lse), Code::invalid,
          "lse_parts[0][0, 0, 0] = inf: neither NaN nor +inf is the lse of a state");
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
