// tests/gemm_scaled_api_test.cpp: GEMMs of 8-bit numbers and their scales (docs/contract.md, "GEMM"): refusals, the
// one-call form, explain(), and the C API.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "falchion/falchion.h"
#include "support/gemm.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {
namespace {

TEST(GemmScaledApi, AProblemIsRefusedWithWords) {
  const Gemm good{.dtype = DType::i8, .dtype_d = DType::bf16, .m = 4, .n = 4, .k = 4};
  struct Row {
    std::function<void(Gemm*)> change;
    Code code;
    const char* why;
  };
  const Row rows[] = {
      {[](Gemm* g) { g->dtype_d = DType::as_q; }, Code::unsupported,
       "dtype_d = as_q (the type of a) with dtype = i8 is not built yet; nearest: bf16, f16, f32, i32"},
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
      {[](Gemm* g) { g->scaling = static_cast<Scaling>(4); }, Code::invalid, "scaling = 4 is no Scaling"},
      {[](Gemm* g) { g->scaling = Scaling::block128; }, Code::unsupported,
       "scaling = block128 with dtype = i8: scales of blocks are for e4m3; nearest: row_col"},
      {[](Gemm* g) {
         g->dtype = DType::bf16;
         g->scaling = Scaling::block128;
       },
       Code::unsupported, "scaling = block128 with dtype = bf16: scales are for e4m3 and i8; nearest: none"},
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

TEST(GemmScaledApi, OperandsAreRefusedWithWords) {
  const GemmInstance x = make_gemm_instance(GemmCase{"x", 2, 6, 8, 12}.scaling(Scaling::row_col), DType::i8);
  const auto why = [&x](void (*change)(GemmOperands*)) { return why_refused(x, change); };
  EXPECT_EQ(why([](GemmOperands*) {}), "");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_a.data = nullptr; }), "scale_a.data is null");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_a.shape[1] = 5; }), "scale_a.shape[1] = 5, but the problem's is 6");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.shape[1] = 6; }), "scale_b.shape[1] = 6, but the problem's is 8");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.dtype = DType::bf16; }),
            "scale_b.dtype = bf16, but the problem's is f32");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_a.data = o->d.data; }), "d overlaps scale_a");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.data = o->d.data; }), "d overlaps scale_b");
  GemmInstance plain = x;
  plain.problem.scaling = Scaling::none;
  EXPECT_EQ(why_refused(plain, [](GemmOperands*) {}),
            "scale_a is given, but the problem was planned without it: set Gemm::scaling");
}

TEST(GemmScaledApi, ScalesOfBlocksAreRefusedWithWords) {
  const GemmInstance x = make_gemm_instance(GemmCase{"x", 2, 6, 200, 300}.scaling(Scaling::block128), DType::e4m3);
  const auto why = [&x](void (*change)(GemmOperands*)) { return why_refused(x, change); };
  EXPECT_EQ(why([](GemmOperands*) {}), "");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_a.data = nullptr; }), "scale_a.data is null");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b = {}; }), "scale_b.shape[0] = 0, but the problem's is 2");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_a.shape[1] = 1; }), "scale_a.shape[1] = 1, but the problem's is 6");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_a.shape[2] = 2; }), "scale_a.shape[2] = 2, but the problem's is 3");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.shape[0] = 3; }), "scale_b.shape[0] = 3, but the problem's is 2");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.shape[1] = 200; }), "scale_b.shape[1] = 200, but the problem's is 2");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.shape[2] = 300; }), "scale_b.shape[2] = 300, but the problem's is 3");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.shape[3] = 2; }), "scale_b.shape[3] = 2, but the problem's is 1");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_b.dtype = DType::bf16; }),
            "scale_b.dtype = bf16, but the problem's is f32");
  EXPECT_EQ(why([](GemmOperands* o) { o->scale_a.data = o->d.data; }), "d overlaps scale_a");
}

/// The one-call form sees how b is scaled, also where d has no rows and one column.
TEST(GemmScaledApi, TheOneCallFormSeesScales) {
  for (const Scaling scaling : {Scaling::none, Scaling::tensor, Scaling::row_col, Scaling::block128}) {
    for (const auto& [m, n] : {std::pair{6, 8}, {0, 1}}) {
      const std::int64_t k = scaling == Scaling::block128 ? 140 : 12;
      const GemmInstance x = make_gemm_instance(GemmCase{"x", 2, m, n, k}.scaling(scaling), DType::e4m3);
      const Status status = gemm(x.operands(), {}, host_target());
      ASSERT_TRUE(status) << status.why;
      EXPECT_TRUE(matches(x, x));
    }
  }
}

/// One block of k: each row of a has one scale, and b one for 128 rows, which only the options tell.
TEST(GemmScaledApi, TheOneCallFormIsToldOfBlocks) {
  const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 6, 150, 100}.scaling(Scaling::block128), DType::e4m3);
  EXPECT_EQ(gemm(x.operands(), {}, host_target()).why, "scale_b.shape[1] = 2, but the problem's is 150");
  const Status status = gemm(x.operands(), {.scaling = Scaling::block128}, host_target());
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(x, x));
}

/// A scale that was forgotten has a shape of 0, which does not ask for blocks.
TEST(GemmScaledApi, TheOneCallFormIsToldOfAForgottenScale) {
  const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 6, 8, 12}.scaling(Scaling::tensor), DType::i8);
  for (Tensor GemmOperands::*scale : {&GemmOperands::scale_a, &GemmOperands::scale_b}) {
    GemmOperands operands = x.operands();
    operands.*scale = {};
    const Status status = gemm(operands, {}, host_target());
    EXPECT_EQ(status.code, Code::invalid) << status.why;
    EXPECT_EQ(status.why.find("block128"), std::string::npos) << status.why;
    EXPECT_NE(status.why.find(scale == &GemmOperands::scale_a ? "scale_a" : "scale_b"), std::string::npos)
        << status.why;
  }
}

TEST(GemmScaledApi, APlanTellsWhatItIs) {
  Plan plan;
  const Gemm g{.dtype = DType::i8, .dtype_d = DType::bf16, .m = 40, .n = 50, .k = 60, .scaling = Scaling::row_col};
  ASSERT_TRUE(Plan::make(g, Backend::ref, &plan));
  EXPECT_EQ(plan.describe(), "gemm ref i8 to bf16 40x50x60 scaling row_col ws 0 B");
  EXPECT_NE(plan.explain().find("s_a[row] s_b[column] A B^T"), std::string::npos) << plan.explain();
  EXPECT_NE(plan.explain(Format::json).find("\"scaling\":\"row_col\""), std::string::npos);
  const Gemm blocks{
      .dtype = DType::e4m3, .dtype_d = DType::f32, .m = 40, .n = 50, .k = 600, .scaling = Scaling::block128};
  EXPECT_NE(explain(blocks, Backend::ref)
                .find("sum over each 128 of k of s_a[row, block of k] s_b[block of columns, block of k] A B^T"),
            std::string::npos);
}

/// Each field of the C structs reaches the one of the C++ structs that has its name.
TEST(GemmScaledApi, EachFieldInC) {
  fal_target target{};
  target.size = sizeof target;
  target.backend = FAL_REF;
  for (const DType dtype : {DType::e4m3, DType::i8}) {
    for (const Scaling scaling : {Scaling::tensor, Scaling::row_col, Scaling::block128}) {
      if (scaling == Scaling::block128 && dtype == DType::i8) continue;
      GemmCase what = GemmCase{"x", 2, 6, 140, 300}.alpha(0.5F).beta(3).bias_n().residual().biases_f32().d_f16();
      what.terms.scaling = scaling;
      what.terms.dtype_c = DType::f32;
      what.terms.activation = Activation::relu;
      const GemmInstance x = make_gemm_instance(what, dtype);
      const fal_gemm problem = to_c(x.problem);
      EXPECT_EQ(fal_gemm_explain(&problem, &target, FAL_JSON), explain(x.problem, Backend::ref, Format::json));
      const fal_gemm_operands operands = to_c(x.operands());
      ASSERT_EQ(fal_gemm_run(&operands, &problem, &target, nullptr), FAL_OK) << fal_why();
      EXPECT_TRUE(matches(x, x));
    }
  }
}

/// A caller that was compiled before scales existed passes operands that end before them, and a problem whose byte
/// `scaling` was a reserved one, 0. Its problem is computed as before.
TEST(GemmScaledApi, AnOlderCallerInC) {
  static_assert(offsetof(fal_gemm, scaling) == offsetof(fal_gemm, residual) + 1 && sizeof(fal_gemm::reserved) == 24,
                "the first of 25 reserved bytes");
  fal_target target{};
  target.size = sizeof target;
  target.backend = FAL_REF;
  for (const Scaling scaling : {Scaling::none, Scaling::tensor}) {
    const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 6, 8, 12}.scaling(scaling), DType::i8);
    const fal_gemm problem = to_c(x.problem);
    // The memory behind them is another's: here bytes that would be refused if they were read.
    struct {
      unsigned char of_caller[offsetof(fal_gemm_operands, scale_a)];
      unsigned char behind[2 * sizeof(fal_tensor)];
    } memory;
    fal_gemm_operands operands = to_c(x.operands());
    operands.size = sizeof memory.of_caller;
    std::memcpy(memory.of_caller, &operands, sizeof memory.of_caller);
    std::memset(memory.behind, 0xFF, sizeof memory.behind);
    const auto* as_given = reinterpret_cast<const fal_gemm_operands*>(&memory);
    fal_plan* plan = nullptr;
    ASSERT_EQ(fal_gemm_plan_make(&problem, &target, &plan), FAL_OK) << fal_why();
    const fal_status status = fal_gemm_plan_run(plan, as_given, nullptr, 0, nullptr);
    if (scaling == Scaling::none) {
      EXPECT_EQ(status, FAL_OK) << fal_why();
      EXPECT_TRUE(matches(x, x));
    } else {
      EXPECT_EQ(status, FAL_INVALID);
      EXPECT_STREQ(fal_why(), "scale_a.dtype = as_q, but the problem's is f32");
    }
    fal_plan_free(plan);
  }
}

TEST(GemmScaledApi, ANumberThatIsNoScalingIsRefusedInC) {
  fal_gemm problem = to_c(Gemm{.dtype = DType::i8, .dtype_d = DType::bf16, .m = 4, .n = 4, .k = 4});
  problem.scaling = 4;
  fal_plan* plan = nullptr;
  EXPECT_EQ(fal_gemm_plan_make(&problem, nullptr, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "scaling = 4: it must be 0 to 3");
}

}  // namespace
}  // namespace falchion::testing
