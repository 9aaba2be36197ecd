// tests/norm_api_test.cpp: the API of norms: what is refused and with which words, the one-call form, the C API, what a
// plan says of itself, and how a GPU cuts a row.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "falchion/falchion.h"
#include "plan/norm.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "support/gpu_plan.hpp"
#include "support/norm.hpp"
#include "support/norm_backward.hpp"
#include "support/to_c.hpp"
#include "tiles/norm/sm80.hpp"

namespace falchion::testing {
namespace {

constexpr Norm kAll{.weight = true, .bias = true, .residual = true, .residual_out = true, .mean = true, .rstd = true};

TEST(NormApi, GradientsAreRefusedWithWords) {
  const Norm good{.dtype = DType::f32, .rows = 4, .d = 4, .weight = true, .residual_out = true};
  struct Row {
    void (*change)(Norm*);
    Pass pass;
    const char* why;
  };
  const Row rows[] = {
      {[](Norm* n) { n->residual = true; }, Pass::backward,
       "residual with pass = backward: x is the sum, residual_out of the forward pass"},
      {[](Norm* n) { n->mean = true; }, Pass::backward, "mean with pass = backward: it is computed again from x"},
      {[](Norm* n) { n->rstd = true; }, Pass::backward, "rstd with pass = backward: it is computed again from x"},
      {[](Norm* n) { n->frozen = 4; }, Pass::backward,
       "frozen = 4: it must be 0 to 3, where 1 is grad_x and 2 is grad_weight"},
      {[](Norm* n) { n->frozen = 1; }, Pass::forward, "frozen = 1 with pass = forward: it has no gradients"},
      {[](Norm*) {}, static_cast<Pass>(2), "pass = 2 is no Pass"},
  };
  Plan plan;
  EXPECT_TRUE(Plan::make(good, Pass::backward, {}, &plan));
  for (const Row& row : rows) {
    Norm n = good;
    row.change(&n);
    EXPECT_EQ(Plan::make(n, row.pass, {}, &plan).why, row.why);
  }
}

/// The one-call form takes the pass and what is not wanted from the tensors, and tensors that do not fit are refused.
TEST(NormApi, GradientsInOneCall) {
  NormGradients x = make_norm_gradients({"x", 2, 3, 2, 12, {.weight = true, .bias = true}}, DType::f32);
  ASSERT_TRUE(norm(x.operands(), {.mean = true}, host_target()));
  EXPECT_TRUE(matches(x, x));
  NormOperands alone = x.operands();
  alone.grad_weight = alone.grad_bias = {};
  EXPECT_TRUE(norm(alone, {}, host_target()));
  NormOperands odd = x.operands();
  odd.grad_y.shape[1] = 5;
  EXPECT_EQ(norm(odd, {}, host_target()).why, "grad_y.shape[1] = 5, but it must be 3");
  odd = x.operands();
  odd.grad_weight.shape[2] = 2;
  EXPECT_EQ(norm(odd, {}, host_target()).why, "grad_weight.shape[2] = 2, but it must be 1");
  odd = x.operands();
  odd.grad_x.data = static_cast<float*>(odd.x.data) + 1;
  EXPECT_EQ(norm(odd, {}, host_target()).why, "grad_x overlaps x");
}

TEST(NormApi, AProblemIsRefusedWithWords) {
  const Norm good{.dtype = DType::f32, .rows = 4, .d = 4};
  struct Row {
    void (*change)(Norm*);
    Code code;
    const char* why;
  };
  const Row rows[] = {
      {[](Norm* n) { n->rows = -1; }, Code::invalid, "rows = -1: a size must be 0 or more"},
      {[](Norm* n) { n->rows = std::int64_t{1} << 31; }, Code::invalid,
       "rows = 2147483648 is over the limit of 2147483647"},
      {[](Norm* n) { n->d = (std::int64_t{1} << 30) + 1; }, Code::invalid,
       "d = 1073741825 is over the limit of 1073741824"},
      {[](Norm* n) {
         n->rows = std::numeric_limits<std::int32_t>::max();
         n->d = std::int64_t{1} << 30;
       },
       Code::invalid,
       "rows = 2147483647 with d = 1073741824: the elements of x are over the limit of 1152921504606846976"},
      {[](Norm* n) { n->eps = -1e-5F; }, Code::invalid, "eps = -1e-05: it must be finite and 0 or more"},
      {[](Norm* n) { n->eps = std::numeric_limits<float>::quiet_NaN(); }, Code::invalid,
       "eps = nan: it must be finite and 0 or more"},
      {[](Norm* n) { n->kind = static_cast<NormKind>(7); }, Code::invalid, "kind = 7 is no NormKind"},
      {[](Norm* n) { n->dtype = DType::as_q; }, Code::invalid,
       "dtype = as_q (0): the type of x is unset; it must be f32, f16 or bf16"},
      {[](Norm* n) { n->dtype_y = DType::boolean; }, Code::invalid, "dtype_y = boolean: it must be f32, f16 or bf16"},
      {[](Norm* n) { n->dtype_residual = static_cast<DType>(77); }, Code::invalid, "dtype_residual = 77 is no DType"},
      {[](Norm* n) { n->dtype_y = DType::e4m3; }, Code::unsupported,
       "dtype_y = e4m3 is not built yet; nearest: f32, f16, bf16"},
      {[](Norm* n) { n->residual_out = true; }, Code::invalid,
       "residual_out without residual: it is the sum of x and residual"},
      {[](Norm* n) { n->zero_centered = true; }, Code::invalid,
       "zero_centered without weight: the factor is 1 + weight"},
      {[](Norm* n) {
         n->kind = NormKind::rms;
         n->mean = true;
       },
       Code::invalid, "mean with kind = rms: RMSNorm has no mean"},
  };
  Plan plan;
  EXPECT_TRUE(Plan::make(good, {}, &plan));
  for (const Row& row : rows) {
    Norm n = good;
    row.change(&n);
    const Status status = Plan::make(n, {}, &plan);
    EXPECT_EQ(status.why, row.why);
    EXPECT_EQ(status.code, row.code) << row.why;
  }
  EXPECT_EQ(Plan::make(good, {}, nullptr).why, "out is null");
  const std::int64_t most = std::int64_t{1} << 30;  // as many elements as there may be
  const Status status =
      Plan::make(Norm{.dtype = DType::f32, .kind = NormKind::rms, .rows = most, .d = most}, {}, &plan);
  EXPECT_TRUE(status) << status.why;
  EXPECT_EQ(plan.explain().find(" -"), std::string::npos) << plan.explain();  // no count has overflowed
}

TEST(NormApi, OperandsAreRefusedWithWords) {
  const NormInstance x = make_norm_instance({"x", 2, 3, 2, 12, kAll}, DType::f32);
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, Backend::ref, &plan));
  const auto why = [&](const std::function<void(NormOperands*)>& change) {
    NormOperands operands = x.operands();
    change(&operands);
    return plan.run(operands, nullptr, 0).why;
  };
  EXPECT_EQ(why([](NormOperands*) {}), "");
  EXPECT_EQ(why([](NormOperands* o) { o->x.data = nullptr; }), "x.data is null");
  EXPECT_EQ(why([](NormOperands* o) { o->x.shape[3] = 11; }), "x.shape[3] = 11, but it must be 12");
  EXPECT_EQ(why([](NormOperands* o) {
              for (Tensor* t : {&o->x, &o->residual, &o->y, &o->residual_out, &o->mean, &o->rstd}) t->shape[1] = 2;
            }),
            "x.shape = (2, 2, 2, 12): its first three extents must make 12 rows");
  EXPECT_EQ(why([](NormOperands* o) { o->y.shape[0] = 3; }), "y.shape[0] = 3, but it must be 2");
  EXPECT_EQ(why([](NormOperands* o) { o->residual.dtype = DType::f16; }), "residual.dtype = f16, but it must be f32");
  EXPECT_EQ(why([](NormOperands* o) { o->weight.shape[1] = 2; }), "weight.shape[1] = 2, but it must be 3 (or 1)");
  EXPECT_EQ(why([](NormOperands* o) { o->weight.dtype = DType::boolean; }),
            "weight.dtype = boolean, but it must be f32");
  EXPECT_EQ(why([](NormOperands* o) { o->bias = {}; }), "bias.shape[0] = 0, but it must be 2 (or 1)");
  EXPECT_EQ(why([](NormOperands* o) { o->weight.shape[3] = 1; }), "weight.shape[3] = 1, but it must be 12");
  EXPECT_EQ(why([](NormOperands* o) { o->bias.shape[3] = 1; }), "bias.shape[3] = 1, but it must be 12");
  EXPECT_EQ(why([](NormOperands* o) { o->mean.shape[3] = 12; }), "mean.shape[3] = 12, but it must be 1");
  EXPECT_EQ(why([](NormOperands* o) { o->y.stride[1] = 0; }), "y.stride[1] = 0: strides of an output must be above 0");
  EXPECT_EQ(why([](NormOperands* o) { o->rstd.stride[1] = 0; }),
            "rstd.stride[1] = 0: strides of an output must be above 0");
  EXPECT_EQ(why([](NormOperands* o) { o->rstd.data = o->mean.data; }), "mean overlaps rstd");
  EXPECT_EQ(why([](NormOperands* o) { o->rstd.dtype = DType::f16; }), "rstd.dtype = f16, but it must be f32");
  EXPECT_EQ(plan.run(Operands{}, nullptr, 0).why, "the plan is one of norm, so it takes NormOperands");
  Norm plain = x.problem;
  plain.bias = false;
  ASSERT_TRUE(Plan::make(plain, Backend::ref, &plan));
  EXPECT_EQ(plan.run(x.operands(), nullptr, 0).why,
            "bias is given, but the problem was planned without it: set Norm::bias");
}

TEST(NormApi, TheOneCallFormTakesSizesFromTensors) {
  const NormInstance x = make_norm_instance({"x", 2, 3, 2, 12, kAll}, DType::f32);
  const Status status = norm(x.operands(), {}, host_target());
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(x, x));
  const NormInstance y = make_norm_instance({"y", 1, 1, 9, 40, {.kind = NormKind::rms, .eps = 0.25F}}, DType::f32);
  EXPECT_TRUE(norm(y.operands(), {.kind = NormKind::rms, .eps = 0.25F}, host_target()));
  EXPECT_TRUE(matches(y, y));
  const Norm own_types{.dtype_y = DType::bf16, .dtype_residual = DType::f16, .residual = true, .residual_out = true};
  const NormInstance z = make_norm_instance({"z", 1, 1, 9, 40, own_types}, DType::f32);
  EXPECT_TRUE(norm(z.operands(), {}, host_target()));
  EXPECT_TRUE(matches(z, z));
  NormOperands odd = y.operands();
  odd.x.shape[0] = -3;
  EXPECT_EQ(norm(odd, {}, host_target()).why, "rows = -3: a size must be 0 or more");
}

TEST(NormApi, APlanTellsWhatItIs) {
  const Norm n{.dtype = DType::f32, .kind = NormKind::rms, .rows = 40, .d = 64, .weight = true, .residual = true};
  Plan plan;
  ASSERT_TRUE(Plan::make(n, Backend::ref, &plan));
  EXPECT_EQ(plan.describe(), "norm ref rms f32 40x64 ws 0 B");
  EXPECT_NE(plan.explain().find("(x + residual) rstd weight"), std::string::npos) << plan.explain();
  EXPECT_NE(plan.explain(Format::json).find("\"kind\":\"rms\""), std::string::npos);
  const std::string gpu = explain(Norm{.rows = 16384, .d = 4096}, on(90));
  EXPECT_NE(gpu.find("128 threads with up to 4 chunks of 8 numbers each, kept in registers"), std::string::npos) << gpu;
  EXPECT_NE(gpu.find("of the memory's rate"), std::string::npos) << gpu;
  const std::string odd = explain(Norm{.rows = 16384, .d = 4097}, on(80));
  EXPECT_NE(odd.find("d is no multiple of 8"), std::string::npos) << odd;
}

/// However a row is cut, its threads have all of its chunks, and a row that is kept fits into their registers.
TEST(NormApi, AGpuCutsARowAmongAPowerOfTwoOfThreads) {
  for (const bool whole : {true, false}) {
    for (const bool residual : {true, false}) {
      for (std::int64_t d = 0; d < 40000; d += d < 600 ? 1 : 97) {
        const gpu::NormCut cut = sm80::norm_cut(d, whole, residual);
        ASSERT_TRUE(cut.threads >= 1 && (cut.threads & (cut.threads - 1)) == 0) << d;
        ASSERT_LE(cut.threads, cut.kept && residual ? sm80::kNormMostThreadsOfTwo : sm80::kNormMostThreads) << d;
        ASSERT_EQ(cut.whole, whole) << d;
        ASSERT_EQ(cut.kept, whole && d <= 16384) << d;
        if (cut.kept) { ASSERT_GE(std::int64_t{cut.threads} * cut.chunks * sm80::kNormChunk, d); }
      }
    }
  }
}

gpu::NormArgs to_gpu_norm_args(const PlanData& plan, const NormOperands& x) {
  const Choice* taken = first_that_fits(plan.gpu.choices, layout_of(plan, x).met);
  return falchion::to_gpu_norm_args(plan, x, taken->cut_as<gpu::NormCut>());
}

/// Axes of rows that follow each other in all operands are one, so that no thread has to divide by their extents.
TEST(NormApi, AxesOfRowsThatFollowEachOtherAreOne) {
  const auto s_of = [](const NormCase& row) {
    const NormInstance x = make_norm_instance(row, DType::bf16);
    PlanData plan;
    EXPECT_TRUE(plan_problem(x.problem, Pass::forward, on(80), &plan, true));
    const gpu::NormArgs args = to_gpu_norm_args(plan, x.operands());
    return args.s;
  };
  EXPECT_EQ(s_of({"dense", 2, 5, 3, 64, kAll}), 30);
  EXPECT_EQ(s_of({"rows first", 30, 1, 1, 64, kAll}), 30);
  EXPECT_EQ(s_of({"rows last", 1, 1, 30, 64, kAll}), 30);
  EXPECT_EQ(s_of({"a weight for each head", 2, 5, 3, 64, kAll, Layout::dense, {1, 1, 3}}), 5);
  EXPECT_EQ(s_of({"a bias for each sequence", 2, 5, 3, 64, kAll, Layout::dense, {1, 1, 1}, {2, 1, 1}}), 15);
  EXPECT_EQ(s_of({"heads first", 2, 5, 3, 64, kAll, Layout::heads_first}), 5);
}

/// Rows of any operand that begin at no multiple of 16 bytes, or whose numbers do not lie side by side, are not whole.
TEST(NormApi, AGpuMovesEightNumbersWhereEachOperandAllowsIt) {
  const NormInstance x = make_norm_instance({"x", 1, 6, 2, 64, kAll}, DType::bf16);
  PlanData plan;
  ASSERT_TRUE(plan_problem(x.problem, Pass::forward, on(80), &plan, true));
  EXPECT_TRUE(to_gpu_norm_args(plan, x.operands()).cut.whole);
  for (Tensor NormOperands::*which : {&NormOperands::x, &NormOperands::residual, &NormOperands::y,
                                      &NormOperands::residual_out, &NormOperands::weight, &NormOperands::bias}) {
    NormOperands past = x.operands(), apart = x.operands();
    (past.*which).data = static_cast<std::byte*>((past.*which).data) + 2;
    (apart.*which).stride[3] = 2;
    EXPECT_FALSE(to_gpu_norm_args(plan, past).cut.whole);
    EXPECT_FALSE(to_gpu_norm_args(plan, apart).cut.whole);
  }
  const NormInstance odd = make_norm_instance({"its rows are aligned", 1, 6, 2, 12, kAll}, DType::f32);
  ASSERT_TRUE(plan_problem(odd.problem, Pass::forward, on(80), &plan, true));
  EXPECT_FALSE(to_gpu_norm_args(plan, odd.operands()).cut.whole);
}

/// A residual takes half of the registers, so a thread has half as many chunks. explain() describes the run.
TEST(NormApi, AGpuCutsARowWithAResidualFiner) {
  for (const bool residual : {true, false}) {
    const NormInstance x = make_norm_instance({"x", 1, 6, 1, 4096, {.residual = residual}}, DType::bf16);
    PlanData plan;
    ASSERT_TRUE(plan_problem(x.problem, Pass::forward, on(80), &plan, true));
    for (const gpu::NormCut& cut :
         {plan.gpu.choices.front().cut_as<gpu::NormCut>(), to_gpu_norm_args(plan, x.operands()).cut}) {
      EXPECT_EQ(cut.chunks, residual ? 2 : 4);
      EXPECT_EQ(cut.threads, residual ? 256 : 128);
    }
  }
}

TEST(NormApi, InC) {
  const NormInstance x = make_norm_instance({"x", 1, 6, 1, 12, kAll}, DType::f32);
  const NormOperands& o = x.operands();
  fal_norm_operands operands{};
  operands.size = sizeof operands;
  operands.x = to_c(o.x);
  operands.residual = to_c(o.residual);
  operands.weight = to_c(o.weight);
  operands.bias = to_c(o.bias);
  operands.y = to_c(o.y);
  operands.residual_out = to_c(o.residual_out);
  operands.mean = to_c(o.mean);
  operands.rstd = to_c(o.rstd);
  fal_norm problem = fal_norm_init();
  EXPECT_EQ(problem.eps, 1e-5F);
  EXPECT_EQ(problem.kind, FAL_LAYER_NORM);
  problem.dtype = FAL_F32;
  problem.rows = 6;
  problem.d = 12;
  problem.weight = problem.bias = problem.residual = problem.residual_out = problem.mean = problem.rstd = 1;
  fal_target target{};
  target.size = sizeof target;
  target.backend = FAL_REF;
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_norm_plan_make(&problem, &target, &plan), FAL_OK) << fal_why();
  EXPECT_EQ(fal_norm_plan_run(plan, &operands, nullptr, 0, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, x));
  fal_plan_free(plan);
  EXPECT_EQ(fal_norm_run(&operands, nullptr, &target, nullptr), FAL_OK) << fal_why();
  fal_norm of_rms = problem;
  of_rms.kind = FAL_RMS_NORM;
  EXPECT_EQ(fal_norm_run(&operands, &of_rms, &target, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "mean with kind = rms: RMSNorm has no mean");
  EXPECT_NE(std::strstr(fal_norm_explain(&problem, &target, FAL_TEXT), "norm f32"), nullptr);
  problem.reserved[3] = 1;
  EXPECT_EQ(fal_norm_plan_make(&problem, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "norm.reserved[3] = 1: a reserved field must be 0");
  problem.reserved[3] = 0;
  problem.kind = 2;
  EXPECT_EQ(fal_norm_plan_make(&problem, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "kind = 2: it must be 0 to 1");
  EXPECT_EQ(fal_norm_plan_make(nullptr, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "norm is null");
  EXPECT_EQ(fal_norm_plan_run(nullptr, &operands, nullptr, 0, nullptr), FAL_INVALID);
  EXPECT_EQ(fal_norm_explain(&problem, &target, 7), nullptr);
}

/// Each field of the C struct reaches the one of the C++ struct that has its name.
TEST(NormApi, EachFieldInC) {
  fal_norm problem = fal_norm_init();
  problem.dtype = FAL_F32;
  problem.dtype_y = FAL_BF16;
  problem.dtype_residual = FAL_F16;
  problem.kind = FAL_RMS_NORM;
  problem.rows = 6;
  problem.d = 12;
  problem.eps = 0.25F;
  const std::pair<uint8_t fal_norm::*, const char*> flags[] = {
      {&fal_norm::weight, "weight"},
      {&fal_norm::zero_centered, "zero_centered"},  // with weight alone
      {&fal_norm::bias, "bias"},
      {&fal_norm::residual, "residual"},
      {&fal_norm::residual_out, "residual_out"},  // with residual alone
      {&fal_norm::rstd, "rstd"},
      {&fal_norm::mean, "mean"}};  // with layer norm alone
  fal_target target{};
  target.size = sizeof target;
  target.backend = FAL_REF;
  const auto says = [&](const std::string& fact) {
    const char* all = fal_norm_explain(&problem, &target, FAL_JSON);
    if (all == nullptr) return ::testing::AssertionFailure() << fal_why();
    return std::strstr(all, fact.c_str()) != nullptr ? ::testing::AssertionSuccess()
                                                     : ::testing::AssertionFailure() << all << " lacks " << fact;
  };
  for (const char* fact : {R"("dtype":"f32")", R"("dtype_y":"bf16")", R"("dtype_residual":"f16")", R"("kind":"rms")",
                           R"("rows":6)", R"("d":12)", R"("eps":0.25)"})
    EXPECT_TRUE(says(fact));
  for (const auto& [flag, name] : flags) {
    if (flag == &fal_norm::mean) problem.kind = FAL_LAYER_NORM;
    EXPECT_TRUE(says(text("\"", name, "\":false")));
    problem.*flag = 1;
    EXPECT_TRUE(says(text("\"", name, "\":true")));
  }
  EXPECT_TRUE(says(R"("kind":"layer")"));
}

}  // namespace
}  // namespace falchion::testing
