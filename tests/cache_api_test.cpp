// tests/cache_api_test.cpp: what the API says of KV caches: what is refused and with which words, what validate_lengths
// reports, what a plan takes on a GPU, the one-call form, and C.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/cache.hpp"
#include "support/contract.hpp"
#include "support/gpu_plan.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {
namespace {

Instance cached(std::int64_t s_q = 5) {
  return in_pages(make_instance(Case{"cache", 3, s_q, 100, 4, 2, 64, 64}.causal().used_k({0, 37, 100}), DType::bf16, 3),
                  {16, 2});
}

Attention without_cache(Attention a) {
  a.cache = false;
  a.page_size = 0;
  return a;
}

TEST(CacheApi, WhatACacheHasNotIsRefusedByItsName) {
  struct Row {
    std::function<void(Attention&)> change;
    Code code;
    const char* why;
  };
  const Row all[] = {
      {[](Attention& a) { a.bias = true; }, Code::unsupported,
       "bias with a cache is not built; nearest: unpacked keys with used_k and no cache"},
      {[](Attention& a) { a.mask = true; }, Code::unsupported,
       "mask with a cache is not built; nearest: unpacked keys with used_k and no cache"},
      {[](Attention& a) { a.dropout = 0.5F; }, Code::unsupported,
       "dropout with a cache is not built; nearest: unpacked keys with used_k and no cache"},
      {[](Attention& a) { a.row_max = true; }, Code::unsupported,
       "row_max with a cache is not built; nearest: unpacked keys with used_k and no cache"},
      {[](Attention& a) { a.probabilities = true; }, Code::unsupported,
       "probabilities with a cache is not built; nearest: unpacked keys with used_k and no cache"},
      {[](Attention& a) { a.used_k = false; }, Code::invalid,
       "cache without used_k: a cache has its full capacity, and used_k says how many keys count"},
      {[](Attention& a) { a.page_size = -1; }, Code::invalid,
       "page_size = -1: it must be 0 (a cache without pages) or more, up to 1073741824"},
      {[](Attention& a) { a.page_size = (std::int64_t{1} << 30) + 1; }, Code::invalid,
       "page_size = 1073741825: it must be 0 (a cache without pages) or more, up to 1073741824"},
      {[](Attention& a) { a.cache = false; }, Code::invalid,
       "page_size = 16 without cache: pages are those of a cache"},
      {[](Attention& a) {
         a = without_cache(a);
         a.append = true;
       },
       Code::invalid, "append without cache: new keys are written into a cache"},
      {[](Attention& a) {
         a = without_cache(a);
         a.rotary_dim = 64;
       },
       Code::invalid, "rotary_dim = 64 without cache: positions are those of a cache's keys"},
      {[](Attention& a) { a.rotary_dim = 33; }, Code::invalid,
       "rotary_dim = 33: it must be an even number in [0, d_qk = 64]"},
      {[](Attention& a) { a.rotary_dim = 66; }, Code::invalid,
       "rotary_dim = 66: it must be an even number in [0, d_qk = 64]"},
      {[](Attention& a) { a.rotary_dim = -2; }, Code::invalid,
       "rotary_dim = -2: it must be an even number in [0, d_qk = 64]"},
      {[](Attention& a) { a.rotary_pairs = true; }, Code::invalid, "rotary_pairs without rotary_dim: no column turns"},
      {[](Attention& a) { a.split_keys = -1; }, Code::invalid,
       "split_keys = -1: it must be 0 (parts begin anywhere) or a multiple of 64, up to 1073741824"},
      {[](Attention& a) { a.split_keys = 100; }, Code::invalid,
       "split_keys = 100: it must be 0 (parts begin anywhere) or a multiple of 64, up to 1073741824"},
      {[](Attention& a) {
         a.split_keys = 64;
         a.packed = true;
       },
       Code::unsupported, "split_keys with packed lengths is not built"},
  };
  for (const Row& row : all) {
    Attention a = cached().problem;
    row.change(a);
    const Status status = make(a);
    EXPECT_EQ(status.why, row.why);
    EXPECT_EQ(status.code, row.code);
  }
  Attention a = cached().problem;
  EXPECT_EQ(make(a, {}, Pass::backward).why,
            "cache in the backward pass is not built; nearest: unpacked keys with used_k");
  EXPECT_EQ(make(a, {}, Pass::backward).code, Code::unsupported);
}

TEST(CacheApi, OperandsThatAreRefused) {
  static std::int32_t starts[4] = {0, 7, 14, 21};
  struct Row {
    std::function<void(Operands&)> change;
    const char* why;
  };
  const Row all[] = {
      {[](Operands& x) { x.page_table = {}; }, "page_table.dtype = f32, but the problem's is i32"},
      {[](Operands& x) { x.page_table.dtype = DType::f32; }, "page_table.dtype = f32, but the problem's is i32"},
      {[](Operands& x) { x.page_table.data = nullptr; }, "page_table.data is null"},
      {[](Operands& x) { x.page_table.shape[0] = 2; }, "page_table.shape[0] = 2, but the problem's is 3"},
      {[](Operands& x) { x.page_table.shape[2] = 2; }, "page_table.shape[2] = 2, but the problem's is 1"},
      {[](Operands& x) { x.page_starts = starts; }, "page_table.shape[0] = 3, but the problem's is 1"},
      {[](Operands& x) { x.k.shape[1] = 8; }, "k.shape[1] = 8, but the problem's is 16"},
      {[](Operands& x) { x.v.shape[0] = 2; }, "v.shape[0] = 2, but the problem's is 24"},
      {[](Operands& x) { x.used_k = nullptr; }, "used_k is null, but the problem was planned with used_k"},
      {[](Operands& x) { x.cu_seqlens_k = starts; },
       "cu_seqlens_k is given, but the problem was planned without it: set Attention::packed without cache"},
  };
  const Instance x = cached();
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, Pass::forward, Backend::ref, &plan));
  for (const Row& row : all) {
    Operands operands = x.operands();
    row.change(operands);
    EXPECT_EQ(plan.run(operands, nullptr, 0).why, row.why);
  }
  {  // what a run writes lies nowhere else
    Instance fresh = with_new_keys(x);
    ASSERT_TRUE(Plan::make(fresh.problem, Pass::forward, Backend::ref, &plan));
    Operands operands = fresh.operands();
    operands.v_new.data = operands.k.data;
    EXPECT_EQ(plan.run(operands, nullptr, 0).why, "k overlaps v_new");
    operands = fresh.operands();
    operands.k.stride[2] = 0;
    EXPECT_EQ(plan.run(operands, nullptr, 0).why, "k.stride[2] = 0: strides of an output must be above 0");
    operands = fresh.operands();
    operands.k_new.shape[2] = 4;
    EXPECT_EQ(plan.run(operands, nullptr, 0).why, "k_new.shape[2] = 4, but the problem's is 2");
    fresh = with_rotary(fresh, 32, false, 5, Layout::dense).given;
    ASSERT_TRUE(Plan::make(fresh.problem, Pass::forward, Backend::ref, &plan));
    operands = fresh.operands();
    operands.rotary.shape[1] = 0;
    EXPECT_EQ(plan.run(operands, nullptr, 0).why, "rotary.shape[1] = 0: it needs a row for each position");
  }
  Instance rows = make_instance(Case{"rows", 3, 5, 100, 4, 2, 64, 64}.used_k({0, 37, 100}), DType::bf16, 3);
  ASSERT_TRUE(Plan::make(rows.problem, Pass::forward, Backend::ref, &plan));
  Operands operands = rows.operands();
  operands.page_table = x.page_table.view();
  EXPECT_EQ(plan.run(operands, nullptr, 0).why,
            "page_table is given, but the problem was planned without it: set Attention::page_size");
  operands = rows.operands();
  operands.page_starts = starts;
  EXPECT_EQ(plan.run(operands, nullptr, 0).why,
            "page_starts is given, but the problem was planned without it: set Attention::page_size");
  const std::pair<Tensor Operands::*, const char*> others[] = {
      {&Operands::k_new, "k_new is given, but the problem was planned without it: set Attention::append"},
      {&Operands::v_new, "v_new is given, but the problem was planned without it: set Attention::append"},
      {&Operands::rotary, "rotary is given, but the problem was planned without it: set Attention::rotary_dim"},
      {&Operands::sinks, "sinks is given, but the problem was planned without it: set Attention::sinks"}};
  for (const auto& [tensor, why] : others) {
    operands = rows.operands();
    operands.*tensor = rows.q.view();
    EXPECT_EQ(plan.run(operands, nullptr, 0).why, why);
  }
}

std::string reported(const Instance& x) { return validate_lengths(x.problem, x.operands()).why; }

TEST(CacheApi, ValidateLengthsReportsPages) {
  Instance x = cached();
  EXPECT_EQ(reported(x), "");
  *entry(&x, 1, 2) = -1;
  EXPECT_EQ(reported(x), "page_table[1][2] = -1: it must be in [0, 24), since its keys are seen");
  x.problem.band = Band::window(3, 0, Align::bottom_right);  // query 0 stands at key 32, and sees 29
  EXPECT_EQ(reported(x), "page_table[1][2] = -1: it must be in [0, 24), since its keys are seen");
  *entry(&x, 1, 2) = 5;
  *entry(&x, 1, 0) = -1;  // its keys end with 15
  EXPECT_EQ(reported(x), "");
  *entry(&x, 1, 0) = 24;
  EXPECT_EQ(reported(x), "page_table[1][0] = 24: it must be in [0, 24)");
  *entry(&x, 1, 0) = 0;
  *entry(&x, 1, 3) = INT32_MAX;  // sequence 1 has 37 keys, so this one is not looked at
  EXPECT_EQ(reported(x), "");
  x.problem.s_k = 1000;
  x.used_k[1] = 113;
  EXPECT_EQ(reported(x), "used_k[1] = 113: its pages hold 112 keys");
  x.used_k[1] = 1001;
  EXPECT_EQ(reported(x), "used_k[1] = 1001: it must be in [0, 1000]");
}

TEST(CacheApi, ValidateLengthsReportsStarts) {
  Instance x =
      in_pages(make_instance(Case{"cache", 3, 5, 100, 4, 2, 64, 64}.causal().used_k({0, 37, 100}), DType::bf16, 3),
               {16, 2, true});
  EXPECT_EQ(reported(x), "");
  *entry(&x, 0, 7) = -3;
  EXPECT_EQ(reported(x), "page_table[0][7] = -3: it must be in [0, 24), since its keys are seen");
  *entry(&x, 0, 7) = 3;
  x.page_starts[2] = 22;
  EXPECT_EQ(reported(x), "page_starts[2] = 22: it must be in [7, 21]");
  x.page_starts[2] = 6;
  EXPECT_EQ(reported(x), "page_starts[2] = 6: it must be in [7, 21]");
  x.page_starts[2] = 14;
  x.page_table = HostTensor(DType::i32, {1, 21, 1, 1}, Layout::reversed);
  x.page_table.for_each([&](auto b, auto n, auto, auto) { *entry(&x, b, n) = static_cast<std::int32_t>(n); });
  EXPECT_EQ(reported(x), "");
  *entry(&x, 0, 20) = 99;
  EXPECT_EQ(reported(x), "page_table[0][20] = 99: it must be in [0, 24), since its keys are seen");
}

TEST(CacheApi, ValidateLengthsReportsNewKeys) {
  Instance x = with_new_keys(with_rotary(cached(), 32, false, 100, Layout::dense).given);
  EXPECT_EQ(reported(x), "");
  x.used_k[2] = 101;
  EXPECT_EQ(reported(x), "used_k[2] = 101: it must be in [0, 100]");
  x.problem.s_k = 112;
  EXPECT_EQ(reported(x), "rotary: the last row of sequence 2 stands at position 100, and there are 100");
  x.used_k[2] = 37;
  *entry(&x, 1, 2) = *entry(&x, 2, 2) = 9;  // keys 32 to 36 of both
  EXPECT_EQ(reported(x), "page_table: sequences 1 and 2 append to row 0 of page 9");
  x.problem.append = false;
  x.k_new = x.v_new = {};
  EXPECT_EQ(reported(x), "");
}

TEST(CacheApi, OneCallTakesNewKeysAndTheRotaryTable) {
  for (const bool pages : {false, true}) {
    const Instance rows =
        make_instance(Case{"cache", 3, 5, 112, 4, 2, 64, 64}.causal().used_k({0, 37, 100}), DType::f32, 3);
    Instance x = with_rotary(pages ? in_pages(rows, {16, 2}) : rows, 32, true, 112, Layout::dense).given;
    x = with_new_keys(x);
    x.poison_outputs();
    const Reference reference(x);
    Attention options;
    options.band = x.problem.band;
    options.rotary_pairs = true;
    const Status status = attention(x.operands(), options, host_target());
    ASSERT_TRUE(status) << status.why;
    EXPECT_TRUE(matches(x, reference));
    EXPECT_EQ(reference.judge().check_cache(x.k.view(), x.v.view()), "");
    const fal_operands operands = to_c(x.operands());
    fal_attention in_c = FAL_ATTENTION_INIT;
    in_c.band = to_c(x.problem).band;
    in_c.rotary_pairs = 1;
    x.poison_outputs();
    ASSERT_EQ(fal_attention_run(&operands, &in_c, nullptr, nullptr), FAL_OK) << fal_why();
    EXPECT_TRUE(matches(x, reference));
  }
}

TEST(CacheApi, OneCallTakesPagesFromTheTable) {
  for (const bool starts : {false, true}) {
    Instance x =
        in_pages(make_instance(Case{"cache", 3, 5, 112, 4, 2, 64, 64}.causal().used_k({0, 37, 100}), DType::f32, 3),
                 {16, 2, starts});
    x.poison_outputs();
    Attention options;
    options.band = x.problem.band;
    const Status status = attention(x.operands(), options, host_target());
    ASSERT_TRUE(status) << status.why;
    EXPECT_TRUE(matches(x, Reference(x)));
    Instance packed = with_packed_queries(x);
    packed.poison_outputs();
    options.b = starts ? 3 : 0;  // a table with a row for each sequence says how many there are
    const Status of_packed = attention(packed.operands(), options, host_target());
    ASSERT_TRUE(of_packed) << of_packed.why;
    EXPECT_TRUE(matches(packed, Reference(packed)));
    if (starts) {
      options.b = 0;
      EXPECT_EQ(attention(packed.operands(), options, host_target()).why,
                "b = 0, which is unset: packed lengths need the number of sequences; set b, cu_seqlens_q has b + 1 "
                "entries");
    }
    x.used_k[2] = starts ? 337 : 113;  // what all pages hold together, or those of a row of the table
    EXPECT_EQ(attention(x.operands(), options, host_target()).why,
              starts ? "used_k[2] = 337: it must be in [0, 336]" : "used_k[2] = 113: it must be in [0, 112]");
  }
}

TEST(CacheApi, OneCallOfACacheInRows) {
  Instance x = make_instance(Case{"cache", 3, 5, 100, 4, 2, 64, 64}.causal().used_k({0, 37, 100}), DType::f32, 3);
  Instance packed = with_packed_queries(x);
  packed.poison_outputs();
  Attention options;
  options.band = x.problem.band;
  options.cache = true;
  const Status status = attention(packed.operands(), options, host_target());
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(packed, Reference(packed)));
}

TEST(CacheApi, TheSameInC) {
  Instance x = cached();
  x.poison_outputs();
  const fal_attention problem = to_c(x.problem);
  const fal_operands operands = to_c(x.operands());
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  fal_plan* plan = nullptr;
  ASSERT_EQ(fal_plan_make(&problem, FAL_FORWARD, &target, &plan), FAL_OK) << fal_why();
  ASSERT_EQ(fal_plan_run(plan, &operands, nullptr, 0, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, Reference(x)));
  fal_plan_free(plan);
  x.poison_outputs();
  fal_attention options = FAL_ATTENTION_INIT;
  options.band = problem.band;
  ASSERT_EQ(fal_attention_run(&operands, &options, &target, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, Reference(x)));
  options.cache = 2;
  EXPECT_EQ(fal_attention_run(&operands, &options, &target, nullptr), FAL_INVALID);
  EXPECT_STREQ(fal_why(), "cache = 2: it must be 0 or 1");
}

TEST(CacheApi, CallersOfTheCApiThatKnowNoCache) {
  Instance x = make_instance(Case{"x", 2, 8, 40, 2, 1, 16, 16}.causal().used_k({3, 40}), DType::f32);
  fal_attention problem = to_c(x.problem);
  fal_operands operands = to_c(x.operands());
  problem.size = offsetof(fal_attention, page_size);
  problem.page_size = 77;
  operands.size = offsetof(fal_operands, page_table);
  operands.page_table = to_c(x.q.view());
  operands.page_starts = x.used_k.data();
  fal_target target = {};
  target.size = sizeof target;
  target.backend = FAL_REF;
  x.poison_outputs();
  ASSERT_EQ(fal_attention_run(&operands, &problem, &target, nullptr), FAL_OK) << fal_why();
  EXPECT_TRUE(matches(x, Reference(x)));
}

// ---- Which kernel ---------------------------------------------------------------------------------------------------

Attention decode_in_pages(std::int64_t s_q, std::int64_t d) {
  Attention a = problem(4, s_q, 8192, 32, 8, d);
  a.cache = a.used_k = true;
  a.page_size = 16;
  return a;
}

TEST(CachePlan, PagesHaveKindsOfTheirOwn) {
  for (const int sm : {80, 90}) {
    const std::string many = sm == 90 ? "sm90 pages bf16 " : "sm80 pages_general bf16 ";
    EXPECT_EQ(variant_of(decode_in_pages(9, 128), on(sm)), many + "128");
    EXPECT_EQ(variant_of(decode_in_pages(500, 192), on(sm)), many + "256");
    Attention a = decode_in_pages(1, 128);
    a.score.softcap = 30;
    EXPECT_EQ(variant_of(a, on(sm)), "sm80 pages_general bf16 128");
    a.dtype = DType::f32;
    EXPECT_EQ(variant_of(a, on(sm)), "sm80 pages_general f32 128");
    a = decode_in_pages(500, 128);
    a.packed = true;
    EXPECT_EQ(variant_of(a, on(sm)), many + "128");
    a.page_size = 0;
    EXPECT_EQ(variant_of(a, on(sm)), text("sm", sm, " plain bf16 128"));
    a.packed = false;  // rows that used_k cuts
    EXPECT_EQ(variant_of(a, on(sm)), text("sm", sm, " plain bf16 128"));
  }
}

TEST(CachePlan, FewRowsOverPages) {
  for (const int sm : {80, 90}) {
    const std::string decode = sm == 90 ? "sm90 decode bf16 " : "sm80 pages few bf16 ";
    EXPECT_EQ(variant_of(decode_in_pages(1, 128), on(sm)), decode + "128");
    EXPECT_EQ(variant_of(decode_in_pages(4, 40), on(sm)), decode + "64");
    EXPECT_EQ(variant_of(decode_in_pages(5, 128), on(sm)),
              sm == 90 ? "sm90 decode bf16 128" : "sm80 pages_general bf16 128");
    Attention a = decode_in_pages(1, 128);
    a.packed = true;
    EXPECT_EQ(variant_of(a, on(sm)), decode + "128");
    a.page_size = 0;
    EXPECT_EQ(variant_of(a, on(sm)), sm == 90 ? "sm90 decode bf16 128" : "sm80 plain few bf16 128");
  }
}

TEST(CachePlan, FixedParts) {
  Attention a = decode_in_pages(1, 128);
  a.split_keys = 1024;
  EXPECT_EQ(variant_of(a, on(90)), "sm90 decode bf16 128");
  EXPECT_NE(story_of(a, hopper()).find("8: they begin at multiples of split_keys = 1024"), std::string::npos)
      << story_of(a, hopper());
  for (const Variant& v : listed_variants()) {
    if (!v.is("attention_forward") || !is_gpu(v.backend) || !v.features.has(Feature::split_keys)) continue;
    if (v.features.has(Feature::bytes_of_q)) continue;  // EightPlan.PartsOfTheKeysBeginWithATile
    EXPECT_EQ(64 % v.facts_as<gpu::AttentionFacts>().keys, 0) << v.level << ": a part would begin within a tile";
  }
  a.split_keys = 64;
  a.s_k = 64 * 129;
  EXPECT_NE(variant_of(a, on(90)).find("split_keys = 64: there can be at most 128 parts, but here are 129"),
            std::string::npos)
      << variant_of(a, on(90));
}

TEST(CachePlan, WhyHoppersOtherKindsDoNotTakePages) {
  const std::string story = story_of(decode_in_pages(500, 128), hopper());
  EXPECT_NE(story.find("a cache with pages needs a decode variant of sm90, a pages one or a pages_general one"),
            std::string::npos)
      << story;
  EXPECT_NE(story.find("with        cache, used_k, pages of 16 keys\n"), std::string::npos) << story;
}

}  // namespace
}  // namespace falchion::testing
