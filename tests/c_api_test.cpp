// tests/c_api_test.cpp: tests of the C API: what it computes, what it refuses, and that its structs may grow.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "falchion/falchion.h"
#include "support/c_api.hpp"
#include "support/contract.hpp"

namespace falchion::testing {
namespace {

TEST(CApi, EveryFeatureComesAcross) {
  for (const Case& row : cases()) {
    if (row.s_q * row.s_k > 12000) continue;
    SCOPED_TRACE(row.name);
    Instance x = make_instance(row, DType::f32);
    const fal_attention problem = to_c(x.problem);
    const fal_operands operands = to_c(x.operands());
    const fal_target target = host();
    fal_plan* plan = nullptr;
    ASSERT_EQ(fal_plan_make(&problem, FAL_FORWARD, &target, &plan), FAL_OK) << fal_why();
    EXPECT_STREQ(fal_why(), "");
    const Workspace workspace(fal_plan_workspace(plan));
    x.poison_outputs();
    ASSERT_EQ(fal_plan_run(plan, &operands, workspace.data(), workspace.size(), nullptr), FAL_OK) << fal_why();
    EXPECT_TRUE(matches(x, Reference(x)));
    fal_plan_free(plan);
  }
}

TEST(CApi, OneCall) {
  Instance x = make_instance(Case{"x", 2, 9, 20, 4, 2, 16, 16}.causal(), DType::bf16);
  x.poison_outputs();
  fal_attention options = FAL_ATTENTION_INIT;
  options.band = {FAL_UNBOUNDED, 0, FAL_BOTTOM_RIGHT, 0};
  const fal_operands operands = to_c(x.operands());
  const fal_target target = host();
  ASSERT_EQ(fal_attention_run(&operands, &options, &target, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, Reference(x)));
  EXPECT_EQ(fal_attention_run(&operands, nullptr, &target, nullptr), FAL_OK) << "no options: full";
}

TEST(CApi, ZeroesButForTheSizeAreAValidStart) {
  fal_attention a = {};
  a.size = sizeof a;
  EXPECT_EQ(make(&a), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "dtype = as_q (0): the type of q is unset; it must be f32, f16 or bf16");
  a.dtype = FAL_BF16;
  a.d_qk = a.d_v = 8;  // With b = 0 the problem is legal and empty.
  EXPECT_EQ(make(&a), FAL_OK) << fal_why();
  a = small();
  EXPECT_EQ(make(&a), FAL_OK) << "a band of zeroes is the full one: " << fal_why();
  EXPECT_NE(std::strstr(fal_explain(&a, FAL_FORWARD, nullptr, FAL_TEXT), "band        full"), nullptr);
  a.band.right = 1;
  EXPECT_EQ(make(&a), FAL_INVALID);
  EXPECT_NE(std::strstr(fal_why(), "band.align is unset"), nullptr);
  a.band = {0, 0, FAL_TOP_LEFT, 0};
  EXPECT_NE(std::strstr(fal_explain(&a, FAL_FORWARD, nullptr, FAL_TEXT), "window(0, 0, top_left)"), nullptr);
  const fal_attention init = fal_attention_init();
  EXPECT_EQ(init.size, sizeof init);
  EXPECT_EQ(init.dtype, FAL_BF16);
  EXPECT_EQ(init.b, 0) << "unset";
  EXPECT_EQ(init.h_q + init.h_k, 2);
  EXPECT_EQ(init.band.left, FAL_UNBOUNDED);
  EXPECT_EQ(init.probabilities, 0);
}

TEST(CApi, StructsMayGrow) {
  struct {
    fal_attention known;
    std::uint64_t added[4];
  } newer = {small(), {}};
  newer.known.size = sizeof newer;
  EXPECT_EQ(make(&newer.known), FAL_OK) << fal_why();  // A newer caller who uses nothing new is served.
  newer.added[3] = 1;
  EXPECT_EQ(make(&newer.known), FAL_INVALID);
  EXPECT_EQ(fal_why(), text("attention: made for a newer falchion than ", version(), ", and uses what it added"));
  fal_attention a = small();
  a.size = offsetof(fal_attention, page_size);  // an older caller's struct
  EXPECT_EQ(make(&a), FAL_OK) << fal_why();
  --a.size;  // nobody's
  EXPECT_EQ(make(&a), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "attention.size = 143: it must be sizeof(fal_attention), 184 here");
  a.size = 0;
  EXPECT_EQ(make(&a), FAL_INVALID);
  a.size = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(make(&a), FAL_INVALID);
}

/// Sets each flag to numbers that are neither 0 nor 1, and expects its name and the number. call: what takes the
/// struct.
template <class Struct, class Call>
void expect_flags(Struct start, const std::vector<std::pair<const char*, std::uint8_t Struct::*>>& flags,
                  const Call& call) {
  for (const auto& [name, flag] : flags) {
    for (const int wrong : {2, 3, 128, 255}) {
      Struct x = start;
      x.*flag = static_cast<std::uint8_t>(wrong);
      EXPECT_EQ(call(x), FAL_INVALID) << name;
      EXPECT_EQ(fal_why(), text(name, " = ", wrong, ": it must be 0 or 1"));
    }
  }
}

TEST(CApiFlags, AreZeroOrOne) {
  using A = fal_attention;
  expect_flags<A>(small(),
                  {
#define FLAG_type(key)
#define FLAG_size(key)
#define FLAG_band(key)
#define FLAG_number(key)
#define FLAG_word(key)
#define FLAG_flag(key) {#key, &A::key},
#define FLAG_packing FLAG_flag
#define FLAG_tensor FLAG_flag
#define FLAG_output FLAG_flag
#define FLAG_packing FLAG_flag
#define FALCHION_ANY_FIELD(kind, key, member, option, text) FLAG_##kind(key)
#define FALCHION_LENGTHS(key, ...) FLAG_flag(key)
#include "base/fields.def"
                  },
                  [](const A& a) { return make(&a); });
  const Instance x = make_instance(Case{"x", 1, 4, 4, 1, 1, 8, 8}, DType::f32);
  const fal_operands operands = to_c(x.operands());
  expect_flags<A>(FAL_ATTENTION_INIT, {{"lse", &A::lse}, {"any_order", &A::any_order}},
                  [&](const A& a) { return fal_attention_run(&operands, &a, nullptr, nullptr); });
  fal_plan* plan = nullptr;
  using L = fal_linear_attention;
  expect_flags<L>(FAL_LINEAR_ATTENTION_INIT,
                  {{"normalise", &L::normalise},
                   {"reverse", &L::reverse},
                   {"packed", &L::packed},
                   {"initial_state", &L::initial_state},
                   {"final_state", &L::final_state}},
                  [&](const L& a) { return fal_linear_plan_make(&a, FAL_FORWARD, nullptr, &plan); });
  using G = fal_gemm;
  expect_flags<G>(FAL_GEMM_INIT, {{"bias_n", &G::bias_n}, {"bias_m", &G::bias_m}, {"residual", &G::residual}},
                  [&](const G& g) { return fal_gemm_plan_make(&g, nullptr, &plan); });
  using N = fal_norm;
  expect_flags<N>(FAL_NORM_INIT,
                  {{"zero_centered", &N::zero_centered},
                   {"weight", &N::weight},
                   {"bias", &N::bias},
                   {"residual", &N::residual},
                   {"residual_out", &N::residual_out},
                   {"mean", &N::mean},
                   {"rstd", &N::rstd}},
                  [&](const N& n) { return fal_norm_plan_make(&n, nullptr, &plan); });
  using Q = fal_quantise;
  expect_flags<Q>(FAL_QUANTISE_INIT,
                  {{"scale_given", &Q::scale_given},
                   {"powers_of_two", &Q::powers_of_two},
                   {"smooth", &Q::smooth},
                   {"mean_given", &Q::mean_given},
                   {"rotate", &Q::rotate}},
                  [&](const Q& q) { return fal_quantise_plan_make(&q, nullptr, &plan); });
  const A problem = small();
  expect_flags<fal_target>(host(),
                           {{"use_device", &fal_target::use_device}, {"trust_pointers", &fal_target::trust_pointers}},
                           [&](const fal_target& target) { return make(&problem, &target); });
}

TEST(CApi, Refusals) {
  fal_attention a = small();
  a.dtype = 256;  // The lowest byte of 256 is 0, which is f32.
  EXPECT_EQ(make(&a), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "dtype = 256: it must be 0 to 8");
  a = small();
  a.band.align = -1;
  EXPECT_EQ(make(&a), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "band.align = -1: it must be 0 to 3");
  a = small();
  a.reserved = 1;
  EXPECT_EQ(make(&a), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "attention.reserved = 1: a reserved field must be 0");
  a = small();
  EXPECT_EQ(make(&a, nullptr, 7), FAL_INVALID);
  a.grads = 3;
  EXPECT_EQ(make(&a, nullptr, FAL_BACKWARD), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "grads = 3: it must be 0 to 2");
  a = small();
  a.frozen = 4;
  EXPECT_EQ(make(&a, nullptr, FAL_BACKWARD), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "frozen = 4: it must be 0 (nothing), 1 (no grad_q), 2 (no grad_k and grad_v) or 3");
  a = small();
  fal_target target = {};
  target.size = sizeof target;
  target.backend = 12;
  EXPECT_EQ(make(&a, &target), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "backend = 12: it must be 0 to 4");
  target = host();
  target.device = 1;
  EXPECT_EQ(make(&a, &target), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "device = 1 with use_device = 0: set use_device");
  target.use_device = 1;
  target.device = -2;
  target.backend = FAL_SM90;
  EXPECT_EQ(make(&a, &target), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "device = -2: it must be CUDA's number of a device");
  target.device = 0;
  target.backend = FAL_CPU;
  EXPECT_EQ(make(&a, &target), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "device = 0 with backend = cpu: device is for GPU backends");
  target = host();
  target.reserved[7] = 1;
  EXPECT_EQ(make(&a, &target), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "target.reserved[7] = 1: a reserved field must be 0");
}

/// Each operand has a type of its own. A type that is not built is refused by the name of its field.
TEST(CApi, TypesOfOperands) {
  fal_attention a = small();
  a.dtype_k = a.dtype_v = a.dtype_o = FAL_F32;  // These are the type of q, given explicitly.
  EXPECT_EQ(make(&a), FAL_OK) << fal_why();
  a = small();
  a.dtype_o = FAL_BF16;
  EXPECT_EQ(make(&a), FAL_UNSUPPORTED);
  EXPECT_STREQ(fal_why(),
               "dtype_o = bf16 with dtype = f32: operands of different types are not built yet; nearest: as_q");
  a = small();
  a.dtype_v = FAL_E4M3;
  EXPECT_EQ(make(&a), FAL_UNSUPPORTED);
  EXPECT_STREQ(fal_why(),
               "dtype_v = e4m3 with dtype = f32: operands of different types are not built yet; nearest: as_q");
  a = small();
  a.dtype_k = FAL_BOOL;
  EXPECT_EQ(make(&a), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "dtype_k = boolean: q, k, v, o are numbers");
  a = small();
  a.dtype = FAL_I32;
  EXPECT_EQ(make(&a), FAL_UNSUPPORTED);
  EXPECT_STREQ(fal_why(), "dtype = i32 is not built yet; nearest: f16, bf16");
  fal_linear_attention linear = FAL_LINEAR_ATTENTION_INIT;
  linear.d_qk = linear.d_v = 8;
  linear.dtype_k = FAL_F16;
  fal_plan* plan = nullptr;
  EXPECT_EQ(fal_linear_plan_make(&linear, FAL_FORWARD, nullptr, &plan), FAL_UNSUPPORTED);
  EXPECT_STREQ(fal_why(),
               "dtype_k = f16 with dtype = bf16: operands of different types are not built yet; nearest: as_q");
}

/// One plan serves all steps, because each run says which elements are dropped, by value or by an address in memory.
TEST(CApi, OnePlanDropsOtherElementsInEachRun) {
  Instance x = make_instance(Case{"x", 1, 40, 50, 2, 1, 16, 16}.dropout(0.5f), DType::f32);
  const fal_attention problem = to_c(x.problem);
  const fal_target target = host();
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_plan_make(&problem, FAL_FORWARD, &target, &plan), FAL_OK) << fal_why();
  const Workspace workspace(fal_plan_workspace(plan));
  const auto run = [&](std::uint64_t seed, std::uint64_t offset, const std::uint64_t* at) {
    fal_operands operands = to_c(x.operands());
    operands.rng = {seed, offset, at, 0};
    x.rng = {seed, offset, at};
    x.poison_outputs();
    EXPECT_EQ(fal_plan_run(plan, &operands, workspace.data(), workspace.size(), nullptr), FAL_OK) << fal_why();
    EXPECT_TRUE(matches(x, Reference(x)));
    std::vector<float> o;
    x.o.for_each([&](auto b, auto s, auto h, auto d) { o.push_back(x.o.get(b, s, h, d)); });
    return o;
  };
  const std::uint64_t half[2] = {40, 2};
  const std::vector<float> first = run(42, 7, nullptr), second = run(42, 8, nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(run(42, 7, nullptr), first);
  EXPECT_EQ(run(2, 5, half), first) << "what lies in memory is added";
  EXPECT_NE(run(2, 5, nullptr), first);
  fal_operands operands = to_c(x.operands());
  operands.rng.reserved = 1;
  EXPECT_EQ(fal_plan_run(plan, &operands, workspace.data(), workspace.size(), nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "operands.rng.reserved = 1: a reserved field must be 0");
  fal_plan_free(plan);
}

TEST(CApi, Nulls) {
  EXPECT_EQ(make(nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "attention is null");
  const fal_attention a = small();
  EXPECT_EQ(fal_plan_make(&a, FAL_FORWARD, nullptr, nullptr), FAL_INVALID);
  EXPECT_EQ(fal_plan_run(nullptr, nullptr, nullptr, 0, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "plan is null");
  EXPECT_EQ(fal_attention_run(nullptr, nullptr, nullptr, nullptr), FAL_INVALID);
  EXPECT_EQ(fal_merge(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "o_a is null");
  EXPECT_EQ(fal_merge_parts(nullptr, nullptr, 2, nullptr, nullptr, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "o is null");
  EXPECT_EQ(fal_validate_lengths(nullptr, nullptr), FAL_INVALID);
  EXPECT_NE(std::strstr(fal_explain(nullptr, 0, nullptr, FAL_TEXT), "attention is null"), nullptr);
  EXPECT_EQ(fal_plan_workspace(nullptr), 0u);
  EXPECT_STREQ(fal_plan_describe(nullptr), "no plan");
  fal_plan_free(nullptr);
}

TEST(CApi, Executor) {
  static int tasks = 0;
  fal_executor executor = {};
  executor.size = sizeof executor;
  executor.threads = 3;
  executor.parallel_for = [](void*, int n, void (*task)(void*, int), void* context) {
    tasks += n;
    for (int i = 0; i < n; ++i) task(context, i);
  };
  fal_target target = host();
  target.executor = &executor;
  Instance x = make_instance(Case{"x", 2, 90, 100, 4, 2, 64, 64}, DType::f32);
  x.poison_outputs();
  const fal_operands operands = to_c(x.operands());
  ASSERT_EQ(fal_attention_run(&operands, nullptr, &target, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, Reference(x)));
  const std::vector<Path> paths = usable_paths();
  if (std::any_of(paths.begin(), paths.end(),
                  [](const Path& p) { return p.backend == Backend::cpu && p.has(DType::f32); })) {
    EXPECT_GT(tasks, 0);
  }
  executor.parallel_for = nullptr;
  EXPECT_EQ(fal_attention_run(&operands, nullptr, &target, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "executor.parallel_for is null");
}

TEST(CApi, MergeAndLengths) {
  float o_a[8] = {1, 1, 1, 1, 1, 1, 1, 1}, o_b[8] = {3, 3, 3, 3, 3, 3, 3, 3}, lse_a[1] = {0.5f}, lse_b[1] = {0.5f},
        o[8], lse[1];
  const fal_tensor t_a = fal_tensor_dense(o_a, FAL_F32, 1, 1, 1, 8),
                   t_b = fal_tensor_heads_first(o_b, FAL_F32, 1, 1, 1, 8);
  const fal_tensor t_o = fal_tensor_dense(o, FAL_F32, 1, 1, 1, 8), l_a = fal_tensor_dense(lse_a, FAL_F32, 1, 1, 1, 1);
  const fal_tensor l_b = fal_tensor_dense(lse_b, FAL_F32, 1, 1, 1, 1), l_o = fal_tensor_dense(lse, FAL_F32, 1, 1, 1, 1);
  ASSERT_EQ(fal_merge(&t_a, &l_a, &t_b, &l_b, &t_o, &l_o), FAL_OK) << fal_why();
  EXPECT_FLOAT_EQ(o[5], 2);
  EXPECT_FLOAT_EQ(lse[0], 0.5f + std::log(2.f));
  fal_tensor os[3] = {t_a, t_b, t_o};
  const fal_tensor lses[3] = {l_a, l_b, l_o};
  ASSERT_EQ(fal_merge_parts(os, lses, 3, &t_o, &l_o, nullptr), FAL_OK) << fal_why();
  EXPECT_FLOAT_EQ(o[5], 2);
  EXPECT_FLOAT_EQ(lse[0], 0.5f + std::log(4.f));
  EXPECT_EQ(fal_merge_parts(os, lses, 77, &t_o, &l_o, nullptr), FAL_UNSUPPORTED);
  EXPECT_STREQ(fal_why(), "parts = 77: merge takes up to 32");
  os[1].reserved = 1;
  EXPECT_EQ(fal_merge_parts(os, lses, 3, &t_o, &l_o, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "o_parts[1].reserved = 1: a reserved field must be 0");
  Instance x = make_instance(Case{"x", 2, 4, 5, 1, 1, 8, 8}.used_k({5, 6}), DType::f32);
  const fal_attention problem = to_c(x.problem);
  const fal_operands operands = to_c(x.operands());
  EXPECT_EQ(fal_validate_lengths(&problem, &operands), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "used_k[1] = 6: it must be in [0, 5]");
}

}  // namespace
}  // namespace falchion::testing
