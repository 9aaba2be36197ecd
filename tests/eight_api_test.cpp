// tests/eight_api_test.cpp: attention of q of 8 bits: what is refused and with which words, the definition, the plans.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/contract.hpp"
#include "support/eight.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {
namespace {

Target on_ref() { return Target(Backend::ref); }

Attention good(const EightTypes& types, Shares shares = Shares::token) {
  return make_eight(Case{"x", 2, 40, 300, 4, 2, 64, 48}, types, shares).problem;
}

struct Refusal {
  std::function<void(Attention&)> change;
  Code code;
  const char* why;
};

void expect_refusals(const Attention& of, const std::vector<Refusal>& all, Pass pass = Pass::forward) {
  for (const Refusal& row : all) {
    Attention a = of;
    row.change(a);
    const Status status = make(a, on_ref(), pass);
    EXPECT_EQ(status.code, row.code) << row.why;
    EXPECT_EQ(status.why, row.why);
  }
}

TEST(Eight, TypesThatAreRefused) {
  expect_refusals(
      good(kEightTypes[0]),
      {{[](Attention& a) { a.dtype = DType::e5m2; }, Code::unsupported, "dtype = e5m2 is not built yet; nearest: e4m3"},
       {[](Attention& a) { a.dtype = DType::i32; }, Code::unsupported,
        "dtype = i32 is not built yet; nearest: f16, bf16"},
       {[](Attention& a) { a.dtype_k = DType::bf16; }, Code::unsupported,
        "dtype_k = bf16 with dtype = e4m3: k has the type of q of 8 bits; nearest: as_q"},
       {[](Attention& a) { a.dtype_v = DType::bf16; }, Code::unsupported,
        "dtype_v = bf16 with dtype = e4m3: v must be e4m3 too; nearest: as_q"},
       {[](Attention& a) { a.dtype_o = DType::e4m3; }, Code::unsupported,
        "dtype_o = e4m3 with dtype_v = e4m3: o must be bf16 or f16; nearest: bf16"},
       {[](Attention& a) { a.dtype_o = DType::f32; }, Code::unsupported,
        "dtype_o = f32 with dtype_v = e4m3: o must be bf16 or f16; nearest: bf16"}});
  expect_refusals(good(kEightTypes[2]),
                  {{[](Attention& a) { a.dtype_v = DType::as_q; }, Code::unsupported,
                    "dtype_v = as_q with dtype = i8: v must be e4m3, bf16 or f16; nearest: e4m3"},
                   {[](Attention& a) { a.dtype_v = DType::f32; }, Code::unsupported,
                    "dtype_v = f32 with dtype = i8: v must be e4m3, bf16 or f16; nearest: e4m3"},
                   {[](Attention& a) { a.dtype_o = DType::f16; }, Code::unsupported,
                    "dtype_o = f16 with dtype_v = bf16: o has the type of v of 16 bits; nearest: that one"},
                   {[](Attention& a) { a.v_scale = true; }, Code::invalid,
                    "v_scale with dtype_v = bf16: only v of 8 bits has scales"}});
}

TEST(Eight, WhatIsRefusedByItsName) {
  const auto without = [](const char* what) {
    return std::string(what) + " with q of 8 bits (dtype = i8) is not built";
  };
  const std::string all[] = {without("cache"), without("first_k"), without("alibi"),   without("bias"),
                             without("mask"),  without("dropout"), without("row_max"), without("probabilities")};
  expect_refusals(
      good(kEightTypes[1]),
      {{[](Attention& a) { a.cache = a.used_k = true; }, Code::unsupported, all[0].c_str()},
       {[](Attention& a) { a.first_k = true; }, Code::unsupported, all[1].c_str()},
       {[](Attention& a) { a.alibi = true; }, Code::unsupported, all[2].c_str()},
       {[](Attention& a) { a.bias = true; }, Code::unsupported, all[3].c_str()},
       {[](Attention& a) { a.mask = true; }, Code::unsupported, all[4].c_str()},
       {[](Attention& a) { a.dropout = 0.5F; }, Code::unsupported, all[5].c_str()},
       {[](Attention& a) { a.row_max = true; }, Code::unsupported, all[6].c_str()},
       {[](Attention& a) { a.probabilities = true; }, Code::unsupported, all[7].c_str()},
       {[](Attention& a) { a.k_scale_rows = 64; }, Code::invalid,
        "k_scale_rows = 64: it must be 0 (all keys share a scale) or a multiple of 128"},
       {[](Attention& a) { a.k_scale = false; }, Code::invalid, "k_scale_rows = 128 without k_scale"},
       {[](Attention& a) { a.k_scale_rows = -1; }, Code::invalid, "k_scale_rows = -1: it must be in [0, 1073741824]"}});
  expect_refusals(small_problem(),
                  {{[](Attention& a) { a.q_scale = true; }, Code::invalid,
                    "q_scale with dtype = bf16: only q of 8 bits (e4m3, i8) has scales"},
                   {[](Attention& a) { a.k_scale_rows = 128; }, Code::unsupported,
                    "k_scale_rows = 128 with dtype = bf16: only with q of 8 bits do keys share a scale "
                    "by blocks; nearest: 0"}});
  expect_refusals(good(kEightTypes[0]),
                  {{[](Attention&) {}, Code::unsupported,
                    "dtype = e4m3 in the backward pass is not built; nearest: bf16 numbers of the same values"}},
                  Pass::backward);
}

TEST(Eight, OperandsThatAreRefused) {
  struct Row {
    std::function<void(Operands&)> change;
    const char* why;
  };
  const auto expect = [](Instance& x, const std::vector<Row>& all, Code code = Code::invalid) {
    Plan plan;
    ASSERT_TRUE(Plan::make(x.problem, Pass::forward, on_ref(), &plan));
    for (const Row& row : all) {
      Operands operands = x.operands();
      row.change(operands);
      const Status status = plan.run(operands, nullptr, 0);
      EXPECT_EQ(status.code, code);
      EXPECT_EQ(status.why, row.why);
    }
  };
  const Case row{"x", 2, 40, 300, 4, 2, 64, 48};
  Instance x = make_eight(row, kEightTypes[0], Shares::token);
  expect(x, {{[](Operands& y) { y.k.dtype = DType::i8; }, "k.dtype = i8, but the problem's is e4m3"},
             {[](Operands& y) { y.o.dtype = DType::f16; }, "o.dtype = f16, but the problem's is bf16"},
             {[](Operands& y) { y.q_scale.shape[1] = 20; }, "q_scale.shape[1] = 20, but the problem's is 40 (or 1)"},
             {[](Operands& y) { y.q_scale.shape[2] = 2; }, "q_scale.shape[2] = 2, but the problem's is 4 (or 1)"},
             {[](Operands& y) { y.q_scale.shape[3] = 2; }, "q_scale.shape[3] = 2, but the problem's is 1"},
             {[](Operands& y) { y.q_scale.dtype = DType::bf16; }, "q_scale.dtype = bf16, but the problem's is f32"},
             {[](Operands& y) { y.q_scale.data = nullptr; }, "q_scale.data is null"},
             {[](Operands& y) { y.k_scale.shape[1] = 300; }, "k_scale.shape[1] = 300, but the problem's is 3 (or 1)"},
             {[](Operands& y) { y.v_scale.shape[1] = 300; }, "v_scale.shape[1] = 300, but the problem's is 1"},
             {[](Operands& y) { y.q_scale.data = y.o.data; }, "o overlaps q_scale"},
             {[](Operands& y) { y.k_scale.data = y.o.data; }, "o overlaps k_scale"}});
  Instance packed = make_eight(Case{"x", 2, 40, 299, 4, 2, 64, 48, {}, Case::Bias::none, {3, 40}, {130, 299}},
                               kEightTypes[0], Shares::token);
  ASSERT_EQ(packed.k_scale.shape()[1], (130 + 299 + 3) / 128 + 2);
  expect(packed,
         {{[](Operands& y) { y.k_scale.shape[1] = 4; }, "k_scale.shape[1] = 4, but the problem's is 5 (or 1)"},
          {[](Operands& y) { y.q_scale.shape[1] = 40; }, "q_scale.shape[1] = 40, but the problem's is 46 (or 1)"}});
  Instance shared = make_eight(row, kEightTypes[0], Shares::head);
  expect(shared,
         {{[](Operands& y) {
             y.k_scale.shape[1] = 300;
             y.k_scale.stride[1] = 2;
           },
           "k_scale.shape[1] = 300 with k_scale.stride[1] = 2 and k_scale_rows = 0: with q of 8 bits all keys share a "
           "scale (extent 1 or stride 0), or blocks of k_scale_rows do"}},
         Code::unsupported);
  Attention a = x.problem;
  a.q_scale = false;
  Plan plan;
  ASSERT_TRUE(Plan::make(a, Pass::forward, on_ref(), &plan));
  EXPECT_EQ(plan.run(x.operands(), nullptr, 0).why,
            "q_scale is given, but the problem was planned without it: set Attention::q_scale");
}

double scale_of(const HostTensor& scales, std::int64_t b, std::int64_t s, std::int64_t h) {
  if (scales.view().data == nullptr) return 1;
  const Shape& n = scales.shape();
  return scales.get(n[0] == 1 ? 0 : b, n[1] == 1 ? 0 : s, n[2] == 1 ? 0 : h, 0);
}

/// One row as the words of docs/contract.md say it, unlike src/ref without any of its code.
struct Row {
  std::vector<double> o;
  double lse = 0;

  Row(const Instance& x, std::int64_t b, std::int64_t i, std::int64_t h) : o(static_cast<std::size_t>(x.problem.d_v)) {
    const Attention& a = x.problem;
    const Instance::Rows q = x.q_rows(b), k = x.k_rows(b);
    const std::int64_t h_k = h / (a.h_q / a.h_k), row = q.begin + i;
    std::vector<double> scores;
    double most = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < k.length; ++j) {
      double dot = 0;
      for (std::int64_t d = 0; d < a.d_qk; ++d) {
        dot += double{x.q.get(q.batch, row, h, d)} * double{x.k.get(k.batch, k.begin + j, h_k, d)};
      }
      const double scale =
          a.score.scale != 0 ? a.score.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(a.d_qk)));
      scores.push_back(scale * dot * scale_of(x.q_scale, q.batch, row, h) *
                       scale_of(x.k_scale, k.batch, block_of_key(x, b, j), h_k));
      most = std::max(most, scores.back());
    }
    const bool bytes = x.v.view().dtype == DType::e4m3;
    const double r = bytes ? std::ceil(most / std::log(2.0)) : 0;
    double sum = 0, sum_of_p = 0;
    for (std::int64_t j = 0; j < k.length; ++j) {
      const double s = scores[static_cast<std::size_t>(j)];
      double p = bytes ? std::exp2(8 + s / std::log(2.0) - r) : std::exp(s - most);
      if (bytes) p = f32_from_e4m3(e4m3_from_f32(static_cast<float>(p)));
      sum += std::exp(s - most);
      sum_of_p += p;
      for (std::int64_t d = 0; d < a.d_v; ++d)
        o[static_cast<std::size_t>(d)] += p * x.v.get(k.batch, k.begin + j, h_k, d);
    }
    for (double& one : o) one = one / sum_of_p * scale_of(x.v_scale, k.batch, 0, h_k);
    lse = most + std::log(sum);
  }
};

void expect_definition(Instance x) {
  x.poison_outputs();
  const Status status = run(on_ref(), &x);
  ASSERT_TRUE(status) << status.why;
  for (std::int64_t b = 0; b < x.problem.b; ++b) {
    const Instance::Rows rows = x.q_rows(b);
    for (std::int64_t i = 0; i < rows.length; i += 7)
      for (std::int64_t h = 0; h < x.problem.h_q; ++h) {
        const Row row(x, b, i, h);
        EXPECT_NEAR(x.lse.get(rows.batch, h, rows.begin + i, 0), row.lse, 1e-5 * (1 + std::abs(row.lse)));
        for (std::int64_t d = 0; d < x.problem.d_v; ++d) {
          const double wanted = row.o[static_cast<std::size_t>(d)];
          EXPECT_NEAR(x.o.get(rows.batch, rows.begin + i, h, d), wanted, 0.004 * std::abs(wanted) + 1e-6);
        }
      }
  }
}

TEST(Eight, TheDefinition) {
  for (const EightTypes& types : kEightTypes) {
    for (const Shares shares : kAllShares) {
      SCOPED_TRACE(text(name(types), ", scales ", static_cast<int>(shares)));
      expect_definition(make_eight(Case{"x", 2, 9, 300, 4, 2, 33, 17}, types, shares));
      expect_definition(
          make_eight(Case{"x", 3, 20, 299, 4, 2, 33, 17, {.lse = true}, Case::Bias::none, {3, 20, 9}, {130, 299, 1}},
                     types, shares));
    }
  }
}

/// Strides of 0 share as extents of 1 do.
TEST(Eight, AStrideOfZeroShares) {
  Instance x = make_eight(Case{"x", 2, 9, 300, 4, 2, 33, 17}, kEightTypes[1], Shares::head);
  const Status status = run(on_ref(), &x);
  ASSERT_TRUE(status) << status.why;
  std::vector<float> o;
  x.o.for_each([&](auto b, auto i, auto h, auto d) { o.push_back(x.o.get(b, i, h, d)); });
  Operands operands = x.operands();
  operands.q_scale.shape = {2, 9, 4, 1};
  operands.k_scale.shape = {2, 300, 2, 1};
  for (Tensor* scale : {&operands.q_scale, &operands.k_scale}) scale->stride = {0, 0, 1, 1};
  x.poison_outputs();
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, Pass::forward, on_ref(), &plan));
  ASSERT_TRUE(plan.run(operands, nullptr, 0));
  std::size_t n = 0;
  x.o.for_each([&](auto b, auto i, auto h, auto d) { EXPECT_EQ(x.o.get(b, i, h, d), o[n++]); });
}

/// The CPU's kernels of the type of o take it.
TEST(Eight, TheCpuTakesIt) {
  for (const EightTypes& types : kEightTypes) {
    SCOPED_TRACE(name(types));
    const Attention a = good(types);
    EXPECT_TRUE(make(a));
    Plan best;
    ASSERT_TRUE(Plan::make(a, Pass::forward, {}, &best));
    EXPECT_EQ(best.backend(), host_target(types.o).backend);
    if (host_target(types.o).backend == Backend::cpu) { EXPECT_TRUE(make(a, Target(Backend::cpu))); }
    const Status backward = make(a, Target(Backend::cpu), Pass::backward);
    EXPECT_EQ(backward.code, Code::unsupported);
  }
}

TEST(Eight, ExplainSaysTheTypesAndTheScales) {
  const std::string out = explain(good(kEightTypes[1]), Pass::forward, on_ref());
  EXPECT_NE(out.find("problem     attention_forward i8: "), std::string::npos) << out;
  EXPECT_NE(out.find("lse, k_scale, v_scale, q_scale, v of e4m3, o of bf16, a scale of k for 128 keys"),
            std::string::npos)
      << out;
}

/// The one-call form reads the types and the flags from the tensors.
TEST(Eight, TheSameInCAndInOneCall) {
  for (const EightTypes& types : kEightTypes) {
    Instance x = make_eight(Case{"x", 2, 9, 300, 4, 2, 33, 17}, types, Shares::token);
    const Status status = run(host_target(types.o), &x);
    ASSERT_TRUE(status) << status.why;
    std::vector<float> o;
    x.o.for_each([&](auto b, auto i, auto h, auto d) { o.push_back(x.o.get(b, i, h, d)); });
    const auto expect_same = [&] {
      std::size_t n = 0;
      x.o.for_each([&](auto b, auto i, auto h, auto d) { EXPECT_EQ(x.o.get(b, i, h, d), o[n++]); });
    };
    x.poison_outputs();
    ASSERT_TRUE(attention(x.operands(), {.score = x.problem.score, .k_scale_rows = 128}));
    expect_same();
    fal_operands operands = to_c(x.operands());
    fal_attention options = FAL_ATTENTION_INIT;
    options.k_scale_rows = 128;
    options.lse = 1;
    x.poison_outputs();
    ASSERT_EQ(fal_attention_run(&operands, &options, nullptr, nullptr), FAL_OK) << fal_why();
    expect_same();
    options.q_scale = 2;
    EXPECT_EQ(fal_attention_run(&operands, &options, nullptr, nullptr), FAL_INVALID);
    EXPECT_STREQ(fal_why(), "q_scale = 2: it must be 0 or 1");
    options.q_scale = 0;
    options.reserved_bytes[3] = 1;
    EXPECT_EQ(fal_attention_run(&operands, &options, nullptr, nullptr), FAL_INVALID);
    EXPECT_STREQ(fal_why(), "attention.reserved_bytes[3] = 1: a reserved field must be 0");
  }
}

}  // namespace
}  // namespace falchion::testing
