// tests/cache_bytes_api_test.cpp: 8-bit KV caches: what is refused and with which words, and the definition.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/cache.hpp"
#include "support/cache_bytes.hpp"
#include "support/contract.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {
namespace {

constexpr DType kBytes[] = {DType::e4m3, DType::i8};

Instance rows(std::int64_t s_q = 2) {
  Instance x = make_instance(Case{"bytes", 3, s_q, 40, 4, 2, 16, 24}.causal().lse().used_k({2, 17, 40}), DType::f32, 3);
  x.problem.cache = true;
  return x;
}
Target on_ref() { return Target(Backend::ref); }

Status run_on_ref(Instance* x) {
  x->poison_outputs();
  Plan plan;
  if (Status status = Plan::make(x->problem, Pass::forward, on_ref(), &plan); !status) return status;
  return plan.run(x->operands(), nullptr, 0);
}

TEST(CacheBytesApi, WhatIsRefusedByItsName) {
  struct Row {
    std::function<void(Attention&)> change;
    Code code;
    const char* why;
  };
  const Row all[] = {
      {[](Attention& a) { a.cache = false; }, Code::unsupported,
       "dtype_k = e4m3 with dtype = bf16: operands of different types are not built yet; nearest: as_q"},
      {[](Attention& a) { a.dtype_v = DType::i8; }, Code::unsupported,
       "dtype_v = i8 with dtype_k = e4m3: k and v of different types are not built; nearest: dtype_v = e4m3"},
      {[](Attention& a) { a.dtype_v = DType::as_q; }, Code::unsupported,
       "dtype_v = bf16 with dtype_k = e4m3: k and v of different types are not built; nearest: dtype_v = e4m3"},
      {[](Attention& a) { a.dtype_k = a.dtype_v = DType::e5m2; }, Code::unsupported,
       "dtype_k = e5m2 is not built yet; nearest: e4m3"},
      {[](Attention& a) { a.dtype_o = DType::e4m3; }, Code::unsupported,
       "dtype_o = e4m3 with dtype = bf16: operands of different types are not built yet; nearest: as_q"},
      {[](Attention& a) { a.dtype_k = a.dtype_v = DType::bf16; }, Code::invalid,
       "k_scale with dtype_k = bf16: only numbers of 8 bits (e4m3, i8) have scales"},
      {[](Attention& a) {
         a.dtype_k = a.dtype_v = DType::as_q;
         a.k_scale = false;
       },
       Code::invalid, "v_scale with dtype_v = bf16: only numbers of 8 bits (e4m3, i8) have scales"},
  };
  Attention good = make_instance(Case{"x", 3, 2, 40, 4, 2, 64, 64}.used_k({1, 2, 3}), DType::bf16).problem;
  good.cache = good.k_scale = good.v_scale = true;
  good.dtype_k = good.dtype_v = DType::e4m3;
  EXPECT_TRUE(make(good, on_ref()));
  for (const Row& row : all) {
    Attention a = good;
    row.change(a);
    const Status status = make(a, on_ref());
    EXPECT_EQ(status.code, row.code);
    EXPECT_EQ(status.why, row.why);
  }
}

TEST(CacheBytesApi, OperandsThatAreRefused) {
  struct Row {
    std::function<void(Operands&)> change;
    const char* why;
  };
  const Row all[] = {
      {[](Operands& x) { x.k.dtype = DType::f32; }, "k.dtype = f32, but the problem's is i8"},
      {[](Operands& x) { x.v.dtype = DType::e4m3; }, "v.dtype = e4m3, but the problem's is i8"},
      {[](Operands& x) { x.k_scale.dtype = DType::f16; }, "k_scale.dtype = f16, but the problem's is f32"},
      {[](Operands& x) { x.v_scale.shape[0] = 2; }, "v_scale.shape[0] = 2, but the problem's is 3 (or 1)"},
      {[](Operands& x) { x.v_scale.shape[1] = 3; }, "v_scale.shape[1] = 3, but the problem's is 40 (or 1)"},
      {[](Operands& x) { x.k_scale.shape[2] = 4; }, "k_scale.shape[2] = 4, but the problem's is 2 (or 1)"},
      {[](Operands& x) { x.k_scale.shape[3] = 16; }, "k_scale.shape[3] = 16, but the problem's is 1"},
      {[](Operands& x) { x.k_scale = {}; }, "k_scale.shape[0] = 0, but the problem's is 3 (or 1)"},
      {[](Operands& x) { x.v_scale.data = nullptr; }, "v_scale.data is null"},
  };
  Instance x = in_bytes(rows(), DType::i8, Scales::key);
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, Pass::forward, on_ref(), &plan));
  for (const Row& row : all) {
    Operands operands = x.operands();
    row.change(operands);
    const Status status = plan.run(operands, nullptr, 0);
    EXPECT_EQ(status.code, Code::invalid);
    EXPECT_EQ(status.why, row.why);
  }
  Attention a = x.problem;
  a.k_scale = false;
  ASSERT_TRUE(Plan::make(a, Pass::forward, on_ref(), &plan));
  EXPECT_EQ(plan.run(x.operands(), nullptr, 0).why,
            "k_scale is given, but the problem was planned without it: set Attention::k_scale");
}

/// In f32 the numbers times their scales are exact, so both runs have the same K and V.
TEST(CacheBytesApi, TheDefinition) {
  for (const DType dtype : kBytes) {
    for (const Scales scales : kAllScales) {
      for (const bool pages : {false, true}) {
        SCOPED_TRACE(text(name(dtype), ", ", name(scales), pages ? ", pages" : ""));
        Instance x = in_bytes(pages ? in_pages(rows(), {16, 3}) : rows(), dtype, scales);
        const Instance wide = out_of_bytes(x);
        const Status status = run_on_ref(&x);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, Reference(wide)));
      }
    }
  }
}

/// Strides of 0 share as extents of 1 do.
TEST(CacheBytesApi, AStrideOfZeroShares) {
  Instance x = in_bytes(rows(), DType::i8, Scales::head);
  ASSERT_TRUE(run_on_ref(&x));
  std::vector<float> o;
  x.o.for_each([&](auto b, auto i, auto h, auto d) { o.push_back(x.o.get(b, i, h, d)); });
  Operands operands = x.operands();
  for (Tensor* scale : {&operands.k_scale, &operands.v_scale}) {
    scale->shape = {3, 40, 2, 1};
    scale->stride = {0, 0, 1, 1};
  }
  x.poison_outputs();
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, Pass::forward, on_ref(), &plan));
  ASSERT_TRUE(plan.run(operands, nullptr, 0));
  std::size_t n = 0;
  x.o.for_each([&](auto b, auto i, auto h, auto d) { EXPECT_EQ(x.o.get(b, i, h, d), o[n++]); });
}

/// One number of a new key and its slot's scale, and the code that the cache keeps.
TEST(CacheBytesApi, TheDefinitionOfNewKeys) {
  struct Row {
    float x, scale, i8, e4m3;
  };
  const Row all[] = {{1, 0.5F, 2, 2},        {2.5F, 1, 2, 2.5F},     {3.5F, 1, 4, 3.5F},
                     {-2.5F, 1, -2, -2.5F},  {127.4F, 1, 127, 128},  {1000, 1, 127, 448},
                     {-1000, 1, -128, -448}, {1000, -1, -128, -448}, {-127.5F, 1, -128, -128},
                     {kInf, 1, 127, kNan},   {kNan, 1, 0, kNan},     {1, 0, 127, kNan},
                     {0, 0, 0, kNan},        {17, 1, 17, 16},        {19, 1, 19, 20},
                     {0x1p-10F, 1, 0, 0},    {1, kNan, 0, kNan},     {0x1.8p-9F, 1, 0, 0x1p-8F}};
  for (const DType dtype : kBytes) {
    for (const Row& row : all) {
      SCOPED_TRACE(text(name(dtype), " of ", row.x, " / ", row.scale));
      Instance x = with_new_keys(rows());
      x = in_bytes(x, dtype, Scales::key);
      for (HostTensor* scale : {&x.k_scale, &x.v_scale}) scale->set(1, 16, 1, 0, row.scale);
      for (HostTensor* fresh : {&x.k_new, &x.v_new}) fresh->set(1, 1, 1, 5, row.x);
      const Status status = run_on_ref(&x);
      ASSERT_TRUE(status) << status.why;
      for (const HostTensor* cache : {&x.k, &x.v}) {
        const float got = cache->get(1, 16, 1, 5), wanted = dtype == DType::i8 ? row.i8 : row.e4m3;
        EXPECT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted))) << got << ", wanted " << wanted;
      }
    }
  }
}

TEST(CacheBytesApi, ExplainSaysTheTypeAndTheScales) {
  Attention a = in_bytes(rows(), DType::i8, Scales::head).problem;
  const std::string of_ref = explain(a, Pass::forward, on_ref());
  EXPECT_NE(of_ref.find("k_scale, v_scale, used_k, k and v of i8"), std::string::npos) << of_ref;
  const std::string of_cpu = explain(a, Pass::forward, host_target());
  if (host_target().backend == Backend::cpu) {
    EXPECT_NE(of_cpu.find("k and v of i8 are converted to f32, a block at a time"), std::string::npos) << of_cpu;
  }
  a = rows().problem;
  EXPECT_EQ(explain(a, Pass::forward, host_target()).find("8 bits"), std::string::npos);
}

TEST(CacheBytesApi, TheSameInC) {
  Instance x = in_bytes(rows(), DType::e4m3, Scales::key);
  const fal_attention problem = to_c(x.problem);
  EXPECT_EQ(problem.dtype_k, FAL_E4M3);
  EXPECT_EQ(problem.k_scale, 1);
  fal_operands operands = to_c(x.operands());
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  fal_attention options = FAL_ATTENTION_INIT;
  options.cache = 1;
  options.lse = 1;
  options.band = problem.band;
  x.poison_outputs();
  ASSERT_EQ(fal_attention_run(&operands, &options, &target, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, Reference(out_of_bytes(x))));
  options.k_scale = 2;
  EXPECT_EQ(fal_attention_run(&operands, &options, &target, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "k_scale = 2: it must be 0 or 1");
}

TEST(TargetSms, IsRefusedWhereItIsNothing) {
  const Attention a = small_problem();
  Target target;
  target.sms = -1;
  EXPECT_EQ(make(a, target).why, "sms = -1: it must be 0 (all SMs of the GPU) or more, up to 65535");
  target.sms = 65536;
  EXPECT_EQ(make(a, target).why, "sms = 65536: it must be 0 (all SMs of the GPU) or more, up to 65535");
  target = Backend::cpu;
  target.sms = 8;
  EXPECT_EQ(make(a, target).code, Code::invalid);
  EXPECT_EQ(make(a, target).why, "sms = 8 with backend = cpu: sms is for GPU backends");
  target = Backend::ref;
  target.sms = 8;
  EXPECT_EQ(make(a, target).why, "sms = 8 with backend = ref: sms is for GPU backends");
  fal_attention problem = to_c(a);
  fal_target from = {};
  from.size = sizeof from;
  from.backend = FAL_REF;
  from.sms = 9;
  fal_plan* plan = nullptr;
  EXPECT_EQ(fal_plan_make(&problem, FAL_FORWARD, &from, &plan), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "sms = 9 with backend = ref: sms is for GPU backends");
}

}  // namespace
}  // namespace falchion::testing
