// tests/gemm_scaled_test.cpp: GEMMs of 8-bit numbers, e4m3 and i8, and their scales (docs/contract.md, "GEMM"): on
// every path, what is refused, and the conversions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "falchion/falchion.h"
#include "plan/plan_data.hpp"
#include "support/gemm.hpp"

namespace falchion::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
constexpr DType k8Bit[] = {DType::e4m3, DType::i8};

/// Calls f(path, dtype) for each path that has the type.
template <class F>
void on_every_8bit_path(const F& f) {
  for (const Path& path : usable_paths(kGemm)) {
    for (const DType dtype : k8Bit) {
      if (!path.has(dtype, kGemm)) continue;
      SCOPED_TRACE(path.name() + " " + name(dtype));
      f(path, dtype);
    }
  }
}

void fill(HostTensor* x, float value) {
  x->for_each([&](auto... at) { x->set(at..., value); });
}

TEST(GemmScaled, E4m3OfEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    const auto byte = static_cast<std::uint8_t>(code);
    const float x = f32_from_e4m3(byte);
    EXPECT_EQ(std::signbit(x), code >= 128) << code;
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(x)) << code;
    } else {
      EXPECT_EQ(x, code >= 128 ? -size : size) << code;
    }
    EXPECT_EQ(e4m3_from_f32(x), byte) << code;
  }
}

/// To nearest even, over 448 saturated; neither Inf nor NaN is a number.
TEST(GemmScaled, E4m3IsRoundedToNearestEven) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = f32_from_e4m3(static_cast<std::uint8_t>(code)),
                high = f32_from_e4m3(static_cast<std::uint8_t>(code + 1)), middle = (low + high) / 2;
    EXPECT_EQ(e4m3_from_f32(std::nextafter(middle, 0.F)), code);
    EXPECT_EQ(e4m3_from_f32(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(e4m3_from_f32(-std::nextafter(middle, kInf)), 0x80 + code + 1);
  }
  EXPECT_EQ(e4m3_from_f32(1e30F), 0x7E);
  EXPECT_EQ(e4m3_from_f32(-449.F), 0xFE);
  EXPECT_EQ(e4m3_from_f32(kInf), 0x7F);
  EXPECT_EQ(e4m3_from_f32(kNan) & 0x7F, 0x7F);
  EXPECT_EQ(i8_from_f32(2.5F), 2);
  EXPECT_EQ(i8_from_f32(-3.5F), -4);
  EXPECT_EQ(i8_from_f32(200), 127);
  EXPECT_EQ(i8_from_f32(-1000), -128);
}

/// Every case that other types have, with each way of scaling in turn, and d of each type.
TEST(GemmScaled, Cases) {
  const std::vector<Path> paths = usable_paths(kGemm);
  std::uint64_t seed = 900;
  int turn = 0;
  for (const GemmCase& row : gemm_cases()) {
    SCOPED_TRACE(row.name);
    for (const DType dtype : k8Bit) {
      GemmCase scaled = row;
      scaled.terms.scaling = static_cast<Scaling>(turn++ % 3);
      if (turn % 2 == 0 && scaled.terms.dtype_d == DType::as_q) scaled.terms.dtype_d = DType::f16;
      ++seed;
      const GemmInstance fresh = make_gemm_instance(scaled, dtype, seed);
      const judge::GemmReference reference(fresh.problem, fresh.operands());
      for (const Path& path : paths) {
        if (!path.has(dtype, kGemm)) continue;
        SCOPED_TRACE(path.name() + " " + name(dtype) + " " + name(scaled.terms.scaling));
        const GemmInstance x = make_gemm_instance(scaled, dtype, seed);
        const Status status = run(path.target(), x);
        EXPECT_TRUE(status) << status.why;
        if (status) { EXPECT_TRUE(matches(x, reference)); }
      }
    }
  }
}

/// Sums of i8 are exact: with the largest products, whose sum just fits, and in any layout.
TEST(GemmScaled, SumsOfI8AreExact) {
  for (const Path& path : usable_paths(kGemm)) {
    if (!path.has(DType::i8, kGemm)) continue;
    SCOPED_TRACE(path.name());
    for (const std::int64_t m : {1, 5, 40}) {
      for (const std::int64_t k : {1, 3, 63, 64, 65, 1030, 9000}) {
        for (const Layout layout : {Layout::dense, Layout::odd, Layout::transposed}) {
          if (m == 40 && k == 9000) continue;
          GemmInstance x = make_gemm_instance(GemmCase{"x", 1, m, 37, k}.d_i32().layout(layout), DType::i8);
          ASSERT_TRUE(run(path.target(), x));
          EXPECT_TRUE(matches(x, x)) << "m " << m << ", k " << k;
        }
      }
    }
    constexpr std::int64_t kMost = 131071;
    GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 2, 3, kMost}.d_i32(), DType::i8);
    fill(&x.a, -128);
    fill(&x.b, -128);
    ASSERT_TRUE(run(path.target(), x));
    x.d.for_each([&](auto b, auto i, auto k, auto j) {
      ASSERT_EQ(static_cast<const std::int32_t*>(x.d.view().data)[x.d.offset(b, i, k, j)], kMost * 16384);
    });
  }
}

/// All 65536 products of two codes, one at a time: k is 1.
TEST(GemmScaled, EveryProduct) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 256, 256, 1}.d_f32(), dtype);
    for (int i = 0; i < 256; ++i) {
      static_cast<std::uint8_t*>(x.a.view().data)[i] = static_cast<std::uint8_t>(i);
      static_cast<std::uint8_t*>(x.b.view().data)[i] = static_cast<std::uint8_t>(i);
    }
    ASSERT_TRUE(run(path.target(), x));
    x.d.for_each([&](auto b, auto i, auto k, auto j) {
      const float exact = x.a.get(0, i, 0, 0) * x.b.get(0, j, 0, 0), got = x.d.get(b, i, k, j);
      ASSERT_TRUE(got == exact || (std::isnan(got) && std::isnan(exact))) << i << " times " << j << " is " << got;
    });
  });
}

/// Products of one sign, whose roundings would show if they all went in one direction.
TEST(GemmScaled, PositiveE4m3) {
  for (const Path& path : usable_paths(kGemm)) {
    if (!path.has(DType::e4m3, kGemm)) continue;
    SCOPED_TRACE(path.name());
    for (const std::int64_t k : {32, 128, 1000, 16384}) {
      GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 150, 40, k}.d_f32(), DType::e4m3);
      for (HostTensor* operand : {&x.a, &x.b})
        operand->for_each([&](auto... at) { operand->set(at..., std::abs(operand->get(at...))); });
      ASSERT_TRUE(run(path.target(), x));
      double worst = 0;
      x.d.for_each([&](auto b, auto i, auto, auto j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) sum += static_cast<double>(x.a.get(b, i, 0, l)) * x.b.get(b, j, 0, l);
        worst = std::max(worst, std::abs(x.d.get(b, i, 0, j) - sum) / sum);
      });
      EXPECT_LE(worst, 0x1p-18) << "k " << k;
    }
  }
}

/// A scale of 0, below 0, NaN or Inf counts in its row or column, and nowhere else.
TEST(GemmScaled, AnyScale) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    for (const float scale : {0.F, -2.F, kNan, kInf, 1e-30F, 1e30F}) {
      GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 21, 37, 64}.scaling(Scaling::row_col).d_f32(), dtype);
      fill(&x.scale_a, 1);
      fill(&x.scale_b, 1);
      const GemmInstance plain = make_gemm_instance(GemmCase{"x", 1, 21, 37, 64}.d_f32(), dtype);
      x.scale_a.set(0, 4, 0, 0, scale);
      x.scale_b.set(0, 9, 0, 0, scale);
      ASSERT_TRUE(run(path.target(), x));
      ASSERT_TRUE(run(path.target(), plain));
      x.d.for_each([&](auto b, auto i, auto k, auto j) {
        if (i != 4 && j != 9) { ASSERT_EQ(x.d.get(b, i, k, j), plain.d.get(b, i, k, j)) << i << ", " << j; }
      });
      if (std::isfinite(scale * scale)) { EXPECT_TRUE(matches(x, x)) << scale; }
      EXPECT_EQ(std::isnan(x.d.get(0, 4, 0, 0)), std::isnan(scale));
    }
  });
}

/// Where there is no product, no scale is read.
TEST(GemmScaled, WithoutAProductScalesAreNotRead) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    for (const std::int64_t k : {0, 40}) {
      GemmInstance x = make_gemm_instance(
          GemmCase{"x", 1, 20, 30, k}.alpha(k == 0 ? 1 : 0).beta(2).scaling(Scaling::row_col), dtype);
      fill(&x.scale_a, kNan);
      fill(&x.scale_b, kNan);
      ASSERT_TRUE(run(path.target(), x));
      EXPECT_TRUE(matches(x, x));
    }
  });
}

/// One scale for all rows serves with row_col too, and each entry of a batch may have its own.
TEST(GemmScaled, AScaleMayBeShared) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    GemmInstance x = make_gemm_instance(GemmCase{"x", 3, 20, 30, 40}.scaling(Scaling::row_col).shared_b(), dtype);
    x.scale_a = HostTensor(DType::f32, {3, 1, 1, 1});
    x.scale_a.fill_normal(5);
    ASSERT_TRUE(run(path.target(), x));
    EXPECT_TRUE(matches(x, x));
  });
}

/// Scales whose product is beyond f32, of numbers whose result is not.
TEST(GemmScaled, ScalesThatCancel) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 20, 30, 40}.scaling(Scaling::tensor).d_f32(), dtype);
    fill(&x.scale_a, 0x1p-100F);
    fill(&x.scale_b, 0x1p100F);
    ASSERT_TRUE(run(path.target(), x));
    EXPECT_TRUE(matches(x, x));
  });
}

TEST(GemmScaled, AProblemIsRefusedWithWords) {
  const Gemm good{.dtype = DType::i8, .dtype_d = DType::bf16, .m = 4, .n = 4, .k = 4};
  struct Row {
    std::function<void(Gemm*)> change;
    Code code;
    const char* why;
  };
  const Row rows[] = {
      {[](Gemm* g) { g->dtype_d = DType::as_q; }, Code::unsupported,
       "dtype_d = as_q with dtype = i8 is not built yet; nearest: bf16, f16, f32, i32"},
      {[](Gemm* g) {
         g->dtype = DType::e4m3;
         g->dtype_d = DType::i32;
       },
       Code::unsupported, "dtype_d = i32 with dtype = e4m3 is not built yet; nearest: bf16, f16, f32"},
      {[](Gemm* g) { g->dtype_c = DType::f16; }, Code::unsupported,
       "dtype_c = f16 with dtype_d = bf16 is not built yet; nearest: as_q, f32"},
      {[](Gemm* g) { g->dtype_b = DType::e4m3; }, Code::unsupported,
       "dtype_b = e4m3 with dtype = i8: operands of different types are not built yet; nearest: as_q"},
      {[](Gemm* g) { g->k = 131072; }, Code::unsupported,
       "k = 131072 with dtype = i8: sums in i32 could overflow; the limit is 131071"},
      {[](Gemm* g) { g->scaling = static_cast<Scaling>(3); }, Code::invalid, "scaling = 3 is no Scaling"},
      {[](Gemm* g) {
         g->dtype = DType::bf16;
         g->scaling = Scaling::tensor;
       },
       Code::unsupported, "scaling = tensor with dtype = bf16: scales are for e4m3 and i8; nearest: none"},
      {[](Gemm* g) {
         g->dtype_d = DType::i32;
         g->bias_n = true;
       },
       Code::unsupported,
       "dtype_d = i32 is for the sums alone: alpha = 1 and beta = 0 without scaling, bias, activation or residual; "
       "nearest: dtype_d = f32"},
      {[](Gemm* g) { g->dtype = DType::i32; }, Code::unsupported,
       "dtype = i32 is not built yet; nearest: f32, f16, bf16, e4m3, i8"},
  };
  Plan plan;
  EXPECT_TRUE(Plan::make(good, {}, &plan));
  for (const Row& row : rows) {
    Gemm g = good;
    row.change(&g);
    const Status status = Plan::make(g, {}, &plan);
    EXPECT_EQ(status.why, row.why);
    EXPECT_EQ(status.code, row.code) << row.why;
  }
}

TEST(GemmScaled, OperandsAreRefusedWithWords) {
  const GemmInstance x = make_gemm_instance(GemmCase{"x", 2, 6, 8, 12}.scaling(Scaling::row_col), DType::i8);
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, host_target(), &plan));
  const Workspace workspace(plan.workspace_bytes());
  const auto why = [&](const std::function<void(GemmOperands*)>& change) {
    GemmOperands operands = x.operands();
    change(&operands);
    return plan.run(operands, workspace.data(), workspace.size()).why;
  };
  EXPECT_EQ(why([](GemmOperands*) {}), "");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_a.data = nullptr; }), "scale_a.data is null");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_a.shape[1] = 5; }), "scale_a.shape[1] = 5, but the problem's is 6");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.shape[1] = 6; }), "scale_b.shape[1] = 6, but the problem's is 8");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.dtype = DType::bf16; }),
            "scale_b.dtype = bf16, but the problem's is f32");
  Gemm plain = x.problem;
  plain.scaling = Scaling::none;
  ASSERT_TRUE(Plan::make(plain, host_target(), &plan));
  EXPECT_EQ(plan.run(x.operands(), workspace.data(), workspace.size()).why,
            "scale_a is given, but the problem was planned without it: set Gemm::scaling");
}

TEST(GemmScaled, TheOneCallFormSeesScales) {
  for (const Scaling scaling : {Scaling::none, Scaling::tensor, Scaling::row_col}) {
    const GemmInstance x = make_gemm_instance(GemmCase{"x", 2, 6, 8, 12}.scaling(scaling), DType::e4m3);
    const Status status = gemm(x.operands(), {}, host_target());
    ASSERT_TRUE(status) << status.why;
    EXPECT_TRUE(matches(x, x));
  }
}

TEST(GemmScaled, APlanTellsWhatItIs) {
  Plan plan;
  const Gemm g{.dtype = DType::i8, .dtype_d = DType::bf16, .m = 40, .n = 50, .k = 60, .scaling = Scaling::row_col};
  ASSERT_TRUE(Plan::make(g, Backend::ref, &plan));
  EXPECT_EQ(plan.describe(), "gemm ref i8 to bf16 40x50x60 scaling row_col ws 0 B");
  EXPECT_NE(plan.explain().find("s_a[row] s_b[column] A B^T"), std::string::npos) << plan.explain();
  EXPECT_NE(plan.explain(Format::json).find("\"scaling\":\"row_col\""), std::string::npos);
}

fal_tensor to_c(const Tensor& x) {
  fal_tensor out{};
  out.data = x.data;
  out.dtype = static_cast<std::int32_t>(x.dtype);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    out.shape[axis] = x.shape[axis];
    out.stride[axis] = x.stride[axis];
  }
  return out;
}

/// A caller that was compiled before scales existed gives structs that end before them.
TEST(GemmScaled, InC) {
  const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 6, 8, 12}.scaling(Scaling::tensor), DType::i8);
  const GemmOperands& o = x.operands();
  fal_gemm_operands operands{};
  operands.size = sizeof operands;
  operands.a = to_c(o.a);
  operands.b = to_c(o.b);
  operands.d = to_c(o.d);
  operands.scale_a = to_c(o.scale_a);
  operands.scale_b = to_c(o.scale_b);
  fal_gemm problem = fal_gemm_init();
  problem.dtype = FAL_I8;
  problem.dtype_d = FAL_BF16;
  problem.m = 6;
  problem.n = 8;
  problem.k = 12;
  problem.scaling = FAL_SCALING_TENSOR;
  fal_target target{};
  target.size = sizeof target;
  target.backend = FAL_REF;
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_gemm_plan_make(&problem, &target, &plan), FAL_OK) << fal_why();
  EXPECT_EQ(fal_gemm_plan_run(plan, &operands, nullptr, 0, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, x));
  operands.size = offsetof(fal_gemm_operands, scale_a);
  EXPECT_EQ(fal_gemm_plan_run(plan, &operands, nullptr, 0, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "scale_a.dtype = as_q, but the problem's is f32");
  fal_plan_free(plan);
  problem.scaling = 3;
  EXPECT_EQ(fal_gemm_plan_make(&problem, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "scaling = 3: it must be 0 to 2");
}

}  // namespace
}  // namespace falchion::testing
