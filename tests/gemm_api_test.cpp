// tests/gemm_api_test.cpp: the API of GEMMs: what is refused and with which words, the one-call form, the C API, and
// what a plan says of itself.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "falchion/falchion.h"
#include "plan/plan_data.hpp"
#include "support/gemm.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {
namespace {

TEST(GemmApi, AProblemIsRefusedWithWords) {
  const Gemm good{.dtype = DType::f32, .m = 4, .n = 4, .k = 4};
  struct Row {
    void (*change)(Gemm*);
    Code code;
    const char* why;
  };
  const Row rows[] = {
      {[](Gemm* g) { g->m = -1; }, Code::invalid, "m = -1: a size must be 0 or more"},
      {[](Gemm* g) { g->n = std::int64_t{1} << 31; }, Code::invalid, "n = 2147483648 is over the limit of 1073741824"},
      {[](Gemm* g) { g->k = -5; }, Code::invalid, "k = -5: a size must be 0 or more"},
      {[](Gemm* g) { g->batch = -2; }, Code::invalid, "batch = -2: a size must be 0 or more"},
      {[](Gemm* g) { g->batch = std::int64_t{1} << 31; }, Code::invalid,
       "batch = 2147483648 is over the limit of 2147483647"},
      {[](Gemm* g) {
         g->batch = 2;
         g->m = g->n = std::int64_t{1} << 30;
       },
       Code::invalid,
       "batch = 2 with m = 1073741824 and n = 1073741824: the elements of d are over the limit of "
       "1152921504606846976"},
      {[](Gemm* g) { g->alpha = std::numeric_limits<float>::infinity(); }, Code::invalid,
       "alpha = inf: it must be finite"},
      {[](Gemm* g) { g->beta = std::numeric_limits<float>::quiet_NaN(); }, Code::invalid,
       "beta = nan: it must be finite"},
      {[](Gemm* g) { g->activation = static_cast<Activation>(9); }, Code::invalid, "activation = 9 is no Activation"},
      {[](Gemm* g) { g->dtype = DType::as_q; }, Code::invalid,
       "dtype = as_q (0): the type of a is unset; it must be f32, f16, bf16, e4m3 or i8"},
      {[](Gemm* g) { g->dtype = DType::boolean; }, Code::invalid, "dtype = boolean: a, b are numbers"},
      {[](Gemm* g) { g->dtype_d = DType::boolean; }, Code::invalid, "dtype_d = boolean: a, b, c, d are numbers"},
      {[](Gemm* g) { g->dtype_d = static_cast<DType>(77); }, Code::invalid, "dtype_d = 77 is no DType"},
      {[](Gemm* g) { g->dtype = DType::e5m2; }, Code::unsupported,
       "dtype = e5m2 is not built yet; nearest: f32, f16, bf16, e4m3, i8"},
      {[](Gemm* g) { g->dtype_b = DType::f16; }, Code::unsupported,
       "dtype_b = f16 with dtype = f32: operands of different types are not built yet; nearest: as_q"},
      {[](Gemm* g) { g->dtype_d = DType::bf16; }, Code::unsupported,
       "dtype_d = bf16 with dtype = f32 is not built yet; nearest: f32"},
      {[](Gemm* g) {
         g->activation = Activation::swiglu;
         g->beta = 1;
       },
       Code::unsupported, "beta = 1 with swiglu: c would have 2 n columns, which is not built; nearest: beta = 0"},
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
  EXPECT_EQ(Plan::make(good, {}, nullptr).why, "out is null");
  const std::int64_t most = std::int64_t{1} << 30;  // each size as large as it may be
  for (const auto& [batch, m, n] : {std::array{std::int64_t{1}, most, most}, {most, most, std::int64_t{1}}}) {
    const Status status = Plan::make({.dtype = DType::f32, .batch = batch, .m = m, .n = n, .k = most}, {}, &plan);
    EXPECT_TRUE(status) << status.why;
    EXPECT_EQ(plan.explain().find(" -"), std::string::npos) << plan.explain();  // no count has overflowed
  }
}

TEST(GemmApi, OperandsAreRefusedWithWords) {
  const GemmInstance x = make_gemm_instance(GemmCase{"x", 2, 6, 8, 12}.biases().residual().beta(1), DType::f32);
  const auto why = [&x](void (*change)(GemmOperands*)) { return why_refused(x, change); };
  EXPECT_EQ(why([](GemmOperands*) {}), "");
  EXPECT_EQ(why([](GemmOperands* o) { o->a.data = nullptr; }), "a.data is null");
  EXPECT_EQ(why([](GemmOperands* o) { o->a.shape[1] = 5; }), "a.shape[1] = 5, but the problem's is 6");
  EXPECT_EQ(why([](GemmOperands* o) { o->a.shape[3] = o->b.shape[3] = 11; }),
            "a.shape[2] * a.shape[3] = 1 * 11: the problem's k is 12");
  EXPECT_EQ(why([](GemmOperands* o) { o->b.shape[3] = 4; }), "b.shape[3] = 4, but a's is 12");
  EXPECT_EQ(why([](GemmOperands* o) { o->b.shape[0] = 3; }), "b.shape[0] = 3, but the problem's is 2");
  EXPECT_EQ(why([](GemmOperands* o) { o->b.dtype = DType::f16; }), "b.dtype = f16, but the problem's is f32");
  EXPECT_EQ(why([](GemmOperands* o) { o->c = {}; }), "c.shape[0] = 0, but the problem's is 2");
  EXPECT_EQ(why([](GemmOperands* o) { o->d.stride[1] = 0; }), "d.stride[1] = 0: strides of an output must be above 0");
  EXPECT_EQ(why([](GemmOperands* o) { o->bias_n.shape[3] = 7; }), "bias_n.shape[3] = 7, but the problem's is 8");
  EXPECT_EQ(why([](GemmOperands* o) { o->bias_m.shape[1] = 8; }), "bias_m.shape[1] = 8, but the problem's is 6");
  EXPECT_EQ(why([](GemmOperands* o) {
              o->a.shape[2] = 4;
              o->a.shape[3] = 3;
            }),
            "b.shape[2] = 1, but a's is 4");
  EXPECT_EQ(why([](GemmOperands* o) { o->c.shape[3] = 4; }), "c.shape[3] = 4, but d's is 8");
  EXPECT_EQ(why([](GemmOperands* o) { o->residual.shape[2] = 2; }), "residual.shape[2] = 2, but d's is 1");
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, host_target(), &plan));
  EXPECT_EQ(plan.run(x.operands(), nullptr, 0).code, plan.workspace_bytes() > 0 ? Code::workspace : Code::ok);
  EXPECT_EQ(plan.run(Operands{}, nullptr, 0).why, "the plan is one of gemm, so it takes GemmOperands");
  GemmInstance plain = x;
  plain.problem.bias_n = false;
  EXPECT_EQ(why_refused(plain, [](GemmOperands*) {}),
            "bias_n is given, but the problem was planned without it: set Gemm::bias_n");
}

TEST(GemmApi, TheOneCallFormTakesSizesFromTensors) {
  const GemmInstance x =
      make_gemm_instance(GemmCase{"x", 2, 6, 8, 12}.k2(3).n2(2).biases().residual().beta(0.5F), DType::f32);
  Gemm options;
  options.beta = 0.5F;
  const Status status = gemm(x.operands(), options, host_target());
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(x, x));
  GemmOperands odd = x.operands();
  odd.a.shape[2] = -3;
  EXPECT_EQ(gemm(odd, options, host_target()).why, "k = -3: a size must be 0 or more");
}

/// A build without variants of it for GPUs says so.
TEST(GemmApi, AGpuIsRefusedWithWords) {
  for (const Variant& variant : variants())
    if (variant.is(kGemm) && is_gpu(variant.backend)) GTEST_SKIP() << "this build has variants for GPUs";
  Plan plan;
  const Status status = Plan::make(Gemm{.m = 4, .n = 4, .k = 4}, Backend::sm80, &plan);
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_NE(status.why.find("no path for gemm bf16; sm80 bf16: this build has no such variant"), std::string::npos)
      << status.why;
}

TEST(GemmApi, APlanTellsWhatItIs) {
  const Gemm g{.dtype = DType::f32, .m = 40, .n = 50, .k = 60, .beta = 2, .activation = Activation::relu};
  Plan plan;
  ASSERT_TRUE(Plan::make(g, Backend::ref, &plan));
  EXPECT_EQ(plan.describe(), "gemm ref f32 40x50x60 relu ws 0 B");
  EXPECT_NE(plan.explain().find("A B^T + 2 C, then relu"), std::string::npos) << plan.explain();
  EXPECT_NE(plan.explain(Format::json).find("\"activation\":\"relu\""), std::string::npos);
  EXPECT_NE(explain(g, Backend::sm90).find("no variant of this type"), std::string::npos);
  for (const Path& path : usable_paths(kGemm)) {
    if (path.backend != Backend::cpu || !path.has(DType::f32, kGemm)) continue;
    ASSERT_TRUE(Plan::make(g, path.target(1), &plan));
    EXPECT_NE(plan.explain().find("are one work item, in register tiles of "), std::string::npos) << plan.explain();
    ASSERT_TRUE(Plan::make(Gemm{.dtype = DType::f32, .m = 3, .n = 50, .k = 60}, path.target(1), &plan));
    EXPECT_NE(plan.explain().find("m = 3 is at most 16"), std::string::npos) << plan.explain();
  }
}

TEST(GemmApi, InC) {
  const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 6, 8, 12}.biases().residual(), DType::f32);
  const fal_gemm_operands operands = to_c(x.operands());
  EXPECT_EQ(fal_gemm_init().batch, 1);
  EXPECT_EQ(fal_gemm_init().alpha, 1);
  fal_gemm problem = to_c(x.problem);
  fal_target target{};
  target.size = sizeof target;
  target.backend = FAL_REF;
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_gemm_plan_make(&problem, &target, &plan), FAL_OK) << fal_why();
  EXPECT_EQ(fal_gemm_plan_run(plan, &operands, nullptr, 0, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, x));
  fal_plan_free(plan);
  EXPECT_EQ(fal_gemm_run(&operands, nullptr, &target, nullptr), FAL_OK) << fal_why();
  EXPECT_NE(std::strstr(fal_gemm_explain(&problem, &target, FAL_TEXT), "gemm f32"), nullptr);
  problem.reserved[3] = 1;
  EXPECT_EQ(fal_gemm_plan_make(&problem, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "gemm.reserved[3] = 1: a reserved field must be 0");
  problem.reserved[3] = 0;
  problem.activation = 6;
  EXPECT_EQ(fal_gemm_plan_make(&problem, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "activation = 6: it must be 0 to 5");
  EXPECT_EQ(fal_gemm_plan_make(nullptr, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "gemm is null");
  EXPECT_EQ(fal_gemm_plan_run(nullptr, &operands, nullptr, 0, nullptr), FAL_INVALID);
  EXPECT_EQ(fal_gemm_explain(&problem, &target, 7), nullptr);
}

}  // namespace
}  // namespace falchion::testing
