// tests/linear_api_test.cpp: tests of linear attention's refusals with their texts, of its one-call form and of its C
// API.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <regex>

#include "falchion/falchion.h"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "support/linear.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

LinearCase row() { return LinearCase{"x", 2, 8, 2, 4, 16, 24}.states().decay(Decay::token).normalise().positive(); }
LinearInstance small(DType dtype = DType::bf16) { return make_linear_instance(row(), dtype); }

// ---- refusals -------------------------------------------------------------------------------------------------------

TEST(LinearRefusals, Problems) {
  const struct {
    std::function<void(LinearAttention&)> change;
    const char* why;
  } all[] = {
      {[](auto& a) { a.b = -1; }, "b = -1: a size must be 0 or more"},
      {[](auto& a) { a.s = -3; }, "s = -3: a size must be 0 or more"},
      {[](auto& a) { a.s = std::int64_t{1} << 31; }, "s = 2147483648 is over the limit of 1073741824"},
      {[](auto& a) { a.h_qk = 3; }, "h_v = 4 is not a multiple of h_qk = 3"},
      {[](auto& a) { a.h_qk = 0; }, "h_qk = 0 with h_v = 4: both must be 0, or neither"},
      {[](auto& a) { a.h_v = 0; }, "h_qk = 2 with h_v = 0: both must be 0, or neither"},
      {[](auto& a) { a.d_qk = 0; }, "d_qk = 0: a head dim must be 1 to 256"},
      {[](auto& a) { a.d_v = 300; }, "d_v = 300 is over the limit of 256"},
      {[](auto& a) { a.b = a.h_v = 1 << 30; }, "b * h_v = 1073741824 * 1073741824 is over the limit of 2147483647"},
      {[](auto& a) {
         a.b = 1 << 20;
         a.s = 1 << 30;
       },
       "b * h_v * s * d overflows: b = 1048576, h_v = 4, s = 1073741824"},
      {[](auto& a) { a.dtype = static_cast<DType>(77); }, "dtype = 77 is no DType"},
      {[](auto& a) { a.dtype = DType::boolean; }, "dtype = boolean: q, k, v are f32, f16 or bf16"},
      {[](auto& a) { a.dtype = DType::e4m3; }, "dtype = e4m3 is not built yet; nearest: f16, bf16"},
      {[](auto& a) { a.scale = kNan; }, "scale = nan: it must be a finite number, where 0 stands for 1/sqrt(d_qk)"},
      {[](auto& a) { a.scale = kInf; }, "scale = inf: it must be a finite number, where 0 stands for 1/sqrt(d_qk)"},
      {[](auto& a) { a.eps = -1; }, "eps = -1: it must be finite and 0 or more"},
      {[](auto& a) { a.eps = kInf; }, "eps = inf: it must be finite and 0 or more"},
      {[](auto& a) { a.decay = static_cast<Decay>(7); }, "decay = 7 is no Decay"},
      {[](auto& a) { a.feature_map = static_cast<FeatureMap>(9); }, "feature_map = 9 is no FeatureMap"},
  };
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    for (const auto& bad : all) {
      LinearAttention a = small().problem;
      bad.change(a);
      Plan plan;
      EXPECT_EQ(Plan::make(a, pass, {}, &plan).why, bad.why);
      EXPECT_FALSE(plan);
    }
  }
  Plan plan;
  EXPECT_EQ(Plan::make(small().problem, static_cast<Pass>(5), {}, &plan).why, "pass = 5 is no Pass");
  EXPECT_EQ(Plan::make(small().problem, Pass::forward, {}, nullptr).why, "out is null");
  Target target;
  target.segments = -2;
  EXPECT_EQ(Plan::make(small().problem, Pass::forward, target, &plan).why,
            "segments = -2: it must be 0 (the plan decides) or more");
}

struct BadOperands {
  std::function<void(LinearOperands&)> change;
  const char* why;
};
void expect_refused(Pass pass, std::span<const BadOperands> all) {
  LinearInstance x = small();
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, pass, Backend::ref, &plan));
  const Workspace workspace(plan.workspace_bytes());
  for (const BadOperands& bad : all) {
    LinearOperands operands = x.operands(pass);
    bad.change(operands);
    const Status status = plan.run(operands, workspace.data(), workspace.size());
    EXPECT_EQ(status.code, Code::invalid) << bad.why;
    EXPECT_EQ(std::regex_replace(status.why, std::regex("0x[0-9a-f]+"), "0x..."), bad.why);
  }
  const Status status = plan.run(x.operands(pass), workspace.data(), workspace.size());
  EXPECT_TRUE(status) << status.why;
}

TEST(LinearRefusals, OperandsForward) {
  static const std::int32_t lengths[3] = {0, 1, 2};
  const BadOperands all[] = {
      {[](auto& x) { x.q.shape[1] = 7; }, "q.shape[1] = 7, but the problem's is 8"},
      {[](auto& x) { x.v.shape[3] = 16; }, "v.shape[3] = 16, but the problem's is 24"},
      {[](auto& x) { x.v.shape[2] = 2; }, "v.shape[2] = 2, but the problem's is 4"},
      {[](auto& x) { x.k.dtype = DType::f16; }, "k.dtype = f16, but the problem's is bf16"},
      {[](auto& x) { x.o.data = nullptr; }, "o.data is null"},
      {[](auto& x) { x.decay.data = nullptr; }, "decay.data is null"},
      {[](auto& x) { x.decay.shape[1] = 1; }, "decay.shape[1] = 1, but the problem's is 8"},
      {[](auto& x) { x.decay.stride[1] = 0; },
       "decay.stride[1] = 0: a decay that is the same for every token is Decay::head"},
      {[](auto& x) { x.decay.dtype = DType::bf16; }, "decay.dtype = bf16, but the problem's is f32"},
      {[](auto& x) { x.initial_state.dtype = DType::bf16; }, "initial_state.dtype = bf16, but the problem's is f32"},
      {[](auto& x) { x.initial_z.data = nullptr; }, "initial_z.data is null"},
      {[](auto& x) { x.final_state.shape[2] = 24; }, "final_state.shape[2] = 24, but the problem's is 16"},
      {[](auto& x) { x.final_state.stride[2] = 0; }, "final_state.stride[2] = 0: strides of an output must be above 0"},
      {[](auto& x) { x.final_z = {}; }, "final_z.shape[0] = 0, but the problem's is 2"},
      {[](auto& x) { x.cu_seqlens = lengths; },
       "cu_seqlens is given, but the problem was planned without it: set LinearAttention::packed"},
      {[](auto& x) { x.v.stride[3] = 3; }, "v.stride[3] = 3: the last axis must be contiguous (stride 1)"},
      {[](auto& x) { x.o.stride[1] = -1; }, "o.stride[1] = -1: strides of an output must be above 0"},
      {[](auto& x) { x.o.stride[1] = 1; },
       "o.stride = (768, 1, 24, 1) with o.shape = (2, 8, 4, 24): two elements of an output must not share memory"},
      {[](auto& x) { x.k.stride[0] = std::numeric_limits<std::int64_t>::min(); },
       "k.stride[0] = -9223372036854775808 with k.shape[0] = 2: a tensor must reach less than 2^60 bytes"},
      {[](auto& x) { x.q.data = static_cast<std::byte*>(x.q.data) + 1; },
       "q.data = 0x... is 1 past a multiple of 2: it must be aligned to its elements"},
      {[](auto& x) { x.o = x.v; }, "o overlaps v"},
      {[](auto& x) { x.final_state.data = static_cast<float*>(x.initial_state.data) + 1; },
       "final_state overlaps initial_state"},
      {[](auto& x) {
         x.final_state = x.initial_state;
         std::swap(x.final_state.stride[0], x.final_state.stride[1]);
       },
       "final_state overlaps initial_state"},
      {[](auto& x) { x.final_z.data = x.initial_state.data; }, "final_z overlaps initial_state"},
  };
  expect_refused(Pass::forward, all);
}

TEST(LinearRefusals, OperandsBackward) {
  const BadOperands all[] = {
      {[](auto& x) { x.grad_o.shape[3] = 16; }, "grad_o.shape[3] = 16, but the problem's is 24"},
      {[](auto& x) { x.grad_q.dtype = DType::f32; }, "grad_q.dtype = f32, but the problem's is bf16"},
      {[](auto& x) { x.grad_k.data = nullptr; }, "grad_k.data is null"},
      {[](auto& x) { x.grad_v = x.v; }, "grad_v overlaps v"},
      {[](auto& x) { x.grad_decay.dtype = DType::bf16; }, "grad_decay.dtype = bf16, but the problem's is f32"},
      {[](auto& x) { x.grad_decay = x.decay; }, "grad_decay overlaps decay"},
      {[](auto& x) { x.grad_final_state.data = nullptr; }, "grad_final_state.data is null"},
      {[](auto& x) { x.grad_initial_state = x.grad_final_state; }, "grad_initial_state overlaps grad_final_state"},
      {[](auto& x) { x.grad_initial_z = {}; }, "grad_initial_z.shape[0] = 0, but the problem's is 2"},
      {[](auto& x) { x.grad_k = x.grad_q; }, "grad_q overlaps grad_k"},
  };
  expect_refused(Pass::backward, all);
}

TEST(LinearRefusals, WhatThePlanIsWithout) {
  LinearInstance plain = make_linear_instance(LinearCase{"x", 2, 8, 2, 4, 16, 24}, DType::f32),
                 full = small(DType::f32);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    Plan plan;
    ASSERT_TRUE(Plan::make(plain.problem, pass, Backend::ref, &plan));
    const Workspace workspace(plan.workspace_bytes());
    const auto why = [&](auto change) {
      LinearOperands x = plain.operands(pass);
      change(x, full.operands(pass));
      return plan.run(x, workspace.data(), workspace.size()).why;
    };
    EXPECT_EQ(why([](auto& x, const auto& from) { x.decay = from.decay; }),
              "decay is given, but the problem was planned without it: set LinearAttention::decay");
    EXPECT_EQ(why([](auto& x, const auto& from) { x.initial_z = from.initial_z; }),
              "initial_z is given, but the problem was planned without it: set LinearAttention::initial_state and "
              "normalise");
    EXPECT_EQ(why([](auto&, const auto&) {}), "");
  }
}

TEST(LinearRefusals, ThePlanOfAnother) {
  LinearInstance x = small();
  Plan plan, attention;
  ASSERT_TRUE(Plan::make(x.problem, Pass::forward, Backend::ref, &plan));
  EXPECT_EQ(plan.run(Operands{}, nullptr, 0).why,
            "the plan is one of linear_attention_forward, so it takes LinearOperands");
  ASSERT_TRUE(Plan::make(Attention{.dtype = DType::f32, .d_qk = 8, .d_v = 8}, Pass::forward, Backend::ref, &attention));
  EXPECT_EQ(attention.run(LinearOperands{}, nullptr, 0).why,
            "the plan is one of attention_forward, so it takes Operands");
  EXPECT_EQ(Plan().run(LinearOperands{}, nullptr, 0).why, "the plan is empty: Plan::make has not succeeded");
}

TEST(LinearRefusals, WorkspaceAndPackedLengths) {
  LinearInstance x = make_linear_instance(LinearCase{"x", 3, 10, 1, 1, 16, 16}.packed({10, 3, 5}), DType::f32);
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, Pass::forward, Backend::ref, &plan));
  const Workspace workspace(plan.workspace_bytes());
  const std::string needs = std::to_string(plan.workspace_bytes());
  const LinearOperands operands = x.operands(Pass::forward);
  EXPECT_EQ(plan.run(operands, nullptr, 0).why, "workspace is null, but the plan needs " + needs + " bytes");
  EXPECT_EQ(plan.run(operands, workspace.data(), 64).why, "workspace has 64 bytes, but the plan needs " + needs);
  EXPECT_TRUE(plan.run(operands, workspace.data(), workspace.size()));
  EXPECT_EQ(validate_lengths(x.problem, operands).why, "cu_seqlens[3] = 18: it must end at the total, 21");
  x.cu = {0, 10, 7, 18};
  EXPECT_EQ(validate_lengths(x.problem, operands).why,
            "cu_seqlens[2] = 7 is below cu_seqlens[1] = 10: it must be sorted");
  x.cu = {0, 10, 13, 40};
  EXPECT_EQ(plan.run(operands, workspace.data(), workspace.size()).why,
            "cu_seqlens[3] = 40 is over b * s = 30: s is the longest length allowed");
}

/// Lengths that make no sense may change the outputs, but no other byte.
TEST(LinearContract, BrokenLengthsStayInBounds) {
  for (const char* operation : {kLinearForward, kLinearBackward}) {
    const Pass pass = operation == kLinearForward ? Pass::forward : Pass::backward;
    on_every_path(
        [&](const Path& path, DType dtype) {
          LinearInstance x = make_linear_instance(
              LinearCase{"x", 3, 70, 1, 2, 32, 32}.packed({70, 3, 5}).states().decay(Decay::token), dtype);
          for (const std::vector<std::int32_t>& broken : std::vector<std::vector<std::int32_t>>{
                   {-5, 1000000, -7, 20}, {0, 2147483647, 3, -2147483647 - 1}, {70, 40, 20, 0}}) {
            x.cu = broken;
            x.cu.back() = std::min(x.cu.back(), 78);
            EXPECT_TRUE(run(path.target(), pass, &x));
          }
        },
        operation);
  }
}

// ---- one call -------------------------------------------------------------------------------------------------------

TEST(LinearOneCall, ForwardAndBackward) {
  LinearInstance x = make_linear_instance(
      LinearCase{"x", 2, 70, 2, 4, 16, 24}.states().decay(Decay::head).normalise().elu(), DType::f32);
  LinearAttention options;
  options.normalise = true;
  options.feature_map = FeatureMap::elu_plus_one;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    for (int again = 0; again < 2; ++again) {
      x.poison_outputs();
      const Status status = linear_attention(x.operands(pass), options, Backend::ref);
      ASSERT_TRUE(status) << status.why;
      EXPECT_TRUE(matches(x, linear_reference(x, pass), pass));
    }
  }
}

TEST(LinearOneCall, PackedAndDecayByToken) {
  LinearInstance x =
      make_linear_instance(LinearCase{"x", 3, 20, 1, 2, 16, 24}.packed({20, 0, 7}).decay(Decay::token), DType::bf16);
  LinearAttention options;
  options.b = 3;
  x.poison_outputs();
  LinearOperands operands = x.operands(Pass::forward);
  EXPECT_EQ(linear_attention(operands, options, host_target()).why, "cu_seqlens[3] = 27: it must end at the total, 30");
  for (Tensor* tensor : {&operands.q, &operands.k, &operands.v, &operands.o, &operands.decay}) tensor->shape[1] = 27;
  const Status status = linear_attention(operands, options, host_target());
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(x, linear_reference(x, Pass::forward), Pass::forward));
}

// ---- C --------------------------------------------------------------------------------------------------------------

TEST(LinearCApi, EveryFeatureComesAcross) {
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  for (const LinearCase& each : linear_cases()) {
    if (each.s > 130) continue;
    SCOPED_TRACE(each.name);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      LinearInstance x = make_linear_instance(each, DType::f32);
      const fal_linear_attention problem = to_c(x.problem);
      const fal_linear_operands operands = to_c(x.operands(pass));
      fal_plan* plan = nullptr;
      ASSERT_EQ(fal_linear_plan_make(&problem, static_cast<int32_t>(pass), &target, &plan), FAL_OK) << fal_why();
      const Workspace workspace(fal_plan_workspace(plan));
      x.poison_outputs();
      ASSERT_EQ(fal_linear_plan_run(plan, &operands, workspace.data(), workspace.size(), nullptr), FAL_OK) << fal_why();
      EXPECT_TRUE(matches(x, linear_reference(x, pass), pass));
      fal_plan_free(plan);
    }
  }
}

TEST(LinearCApi, RefusalsAndOneCall) {
  LinearInstance x = make_linear_instance(LinearCase{"x", 1, 20, 1, 1, 16, 24}, DType::f32);
  fal_linear_attention problem = to_c(x.problem);
  fal_linear_operands operands = to_c(x.operands(Pass::forward));
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  EXPECT_EQ(fal_linear_attention_run(&operands, nullptr, &target, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, linear_reference(x, Pass::forward), Pass::forward));
  EXPECT_EQ(fal_linear_attention_run(nullptr, nullptr, &target, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "linear_operands is null");
  fal_plan* plan = nullptr;
  EXPECT_EQ(fal_linear_plan_make(&problem, FAL_FORWARD, &target, nullptr), FAL_INVALID);
  EXPECT_EQ(fal_linear_plan_run(nullptr, &operands, nullptr, 0, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "plan is null");
  problem.decay = 5;
  EXPECT_EQ(fal_linear_plan_make(&problem, FAL_FORWARD, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "decay = 5: it must be 0 to 2");
  problem = to_c(x.problem);
  problem.reserved[1] = 1;
  EXPECT_EQ(fal_linear_plan_make(&problem, FAL_FORWARD, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "linear_attention.reserved[1] = 1: a reserved field must be 0");
  problem = to_c(x.problem);
  problem.size = 80;
  EXPECT_EQ(fal_linear_plan_make(&problem, FAL_FORWARD, &target, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "linear_attention.size = 80: it must be sizeof(fal_linear_attention), 104 here");
  EXPECT_EQ(plan, nullptr);
  problem = to_c(x.problem);
  EXPECT_NE(
      std::string(fal_linear_explain(&problem, FAL_BACKWARD, &target, FAL_TEXT)).find("linear_attention_backward f32"),
      std::string::npos);
  target.size = 40;  // A caller that was built before the ABI changed has this size.
  EXPECT_EQ(fal_linear_attention_run(&operands, nullptr, &target, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "target.size = 40: it must be sizeof(fal_target), 56 here");
}

}  // namespace
}  // namespace falchion::testing
