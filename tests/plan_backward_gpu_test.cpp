// tests/plan_backward_gpu_test.cpp: checks as text what the plan decides for attention's backward pass on a GPU. No GPU
// is needed, because target.sm names the architecture. The forward pass has plan_gpu_test.cpp and plan_hopper_test.cpp.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "plan/attention_backward.hpp"
#include "support/choices.hpp"
#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

std::string taken(const Attention& a, const Target& target) { return variant_of(a, target, Pass::backward); }
std::string story(const Attention& a, const Target& target) { return story_of(a, target, Pass::backward); }
std::size_t workspace(const Attention& a, const Target& target) { return decided(a, target, Pass::backward).workspace; }

// ---- Which variant --------------------------------------------------------------------------------------------------

TEST(BackwardGpuPlan, Ampere) {
  const Attention a = problem(4, 4096, 4096, 16, 16, 128);
  EXPECT_EQ(story(a, on(80)),
            "problem     attention_backward bf16: b 4, s_q 4096, s_k 4096, h_q 16, h_k 16, d_qk 128, d_v 128\n"
            "band        full\n"
            "score       scale 0.0883883\n"
            "work        1.37 Tflop, 100 % of s_q x s_k seen; 538 MB if each tensor moves once: 2.56 kflop/B\n"
            "decision    sm80 once\n"
            "device      sm_80: 108 SMs\n"
            "tiles       128 keys, visited by 64 rows at a time; head dims up to 128, 256 threads\n"
            "grid        2048 CTAs, 1 an SM: 19 waves, 99 % busy\n"
            "shared      165 kB a CTA\n"
            "workspace   136 MB: lse and D of each row, and its sums of grad_q in f32\n"
            "choices     a run takes the first that its operands fit\n"
            "  sm80 once d128     16-byte aligned, contiguous rows\n"
            "  sm80 general d128  any operands\n"
            "paths\n"
            "  sm80 once bf16  taken\n");
  EXPECT_EQ(describe(decided(a, on(80), Pass::backward)),
            "attention_backward sm80 once bf16 d128 dv128 band full tile 64x128x128 group 1 grid 2048 splits 1 ws 136 "
            "MB");
}

/// The GPUs of sm_86 and sm_89 have too little shared memory for five products, so these run in two sweeps.
TEST(BackwardGpuPlan, TwoSweepsWhereSharedMemoryIsSmall) {
  const Attention a = problem(4, 4096, 4096, 16, 16, 128);
  const std::string told = story(a, on(86));
  for (const char* line : {"decision    sm80 plain\n",
                           "tiles       64 keys, for grad_k and grad_v, and 64 rows, for grad_q, each in a kernel of "
                           "its own; head dims up to "
                           "128, 128 threads\n",
                           "4096 CTAs for grad_q, ", "shared      66.6 kB a CTA\n",
                           "workspace   2.11 MB: lse and D of each row, and a sum of slopes for each tile of rows\n",
                           "  sm80 once bf16 d128  a CTA needs 165376 bytes of shared memory, but sm_86 gives only ",
                           "  sm80 plain bf16      taken\n"})
    EXPECT_NE(told.find(line), std::string::npos) << line << told;
  EXPECT_EQ(taken(problem(4, 1000, 1000, 16, 4, 64), on(89)), "sm80 plain bf16 64");
}

/// The sweep of the rows alone makes three products, where the kernel that has five would make four.
TEST(BackwardGpuPlan, FrozenKeysTakeASweepOfTheRows) {
  Attention a = problem(4, 1000, 1000, 16, 16, 64);
  a.frozen = 2;
  EXPECT_EQ(taken(a, on(80)), "sm80 plain bf16 64");
  EXPECT_NE(story(a, on(80)).find("  sm80 once bf16 d64  frozen k and v: only the rows need a sweep\n"),
            std::string::npos)
      << story(a, on(80));
}

TEST(BackwardGpuPlan, Hopper) {
  EXPECT_EQ(story(causal(4096, 64), hopper()),
            "problem     attention_backward bf16: b 4, s_q 4096, s_k 4096, h_q 16, h_k 16, d_qk 64, d_v 64\n"
            "band        causal(bottom_right): the last query stands at the last key\n"
            "score       scale 0.125\n"
            "work        344 Gflop, 50.0122 % of s_q x s_k seen; 269 MB if each tensor moves once: 1.28 kflop/B\n"
            "decision    sm90 plain\n"
            "device      sm_90: 132 SMs\n"
            "tiles       128 keys, visited by 128 rows at a time; head dims up to 64, 384 threads\n"
            "grid        2048 tiles, drawn from a counter by 132 CTAs, 1 an SM: 16 waves, 96 % busy\n"
            "shared      217 kB a CTA\n"
            "workspace   69.2 MB: lse and D of each row, and its sums of grad_q in f32\n"
            "choices     a run takes the first that its operands fit\n"
            "  sm90 plain d64    16-byte aligned, contiguous rows, strides that TMA accepts (rows do not overlap)\n"
            "  sm80 general d64  any operands\n"
            "paths\n"
            "  sm90 plain bf16  taken\n");
  EXPECT_NE(story(problem(2, 100, 0, 2, 2, 64), hopper()).find("tiles       none: there are no keys\n"),
            std::string::npos);
  EXPECT_NE(story(problem(2, 0, 100, 2, 2, 256), on(80)).find("tiles       none: there are no queries\n"),
            std::string::npos);
}

TEST(BackwardGpuPlan, VariantsByHeadDim) {
  const struct {
    int d;
    const char *on_hopper, *on_ampere, *capped, *f32;
  } expected[] = {{8, "sm90 plain bf16 64", "sm80 once bf16 64", "sm80 general bf16 64", "sm80 general f32 64"},
                  {64, "sm90 plain bf16 64", "sm80 once bf16 64", "sm80 general bf16 64", "sm80 general f32 64"},
                  {72, "sm90 plain bf16 128", "sm80 once bf16 128", "sm80 general bf16 128", "sm80 general f32 128"},
                  {128, "sm90 plain bf16 128", "sm80 once bf16 128", "sm80 general bf16 128", "sm80 general f32 128"},
                  {136, "sm90 wide bf16 192", "sm80 plain bf16 256", "sm80 general bf16 256", "sm80 general f32 256"},
                  {192, "sm90 wide bf16 192", "sm80 plain bf16 256", "sm80 general bf16 256", "sm80 general f32 256"},
                  {200, "sm90 wide bf16 256", "sm80 plain bf16 256", "sm80 general bf16 256", "sm80 general f32 256"},
                  {256, "sm90 wide bf16 256", "sm80 plain bf16 256", "sm80 general bf16 256", "sm80 general f32 256"}};
  for (const auto& [d, on_hopper, on_ampere, capped, f32] : expected) {
    SCOPED_TRACE(d);
    Attention a = problem(4, 1000, 1000, 16, 4, d);
    EXPECT_EQ(taken(a, hopper()), on_hopper);
    EXPECT_EQ(taken(a, on(80)), on_ampere);
    EXPECT_EQ(taken(a, on(90, Backend::sm80)), on_ampere);
    a.score.softcap = 30;
    EXPECT_EQ(taken(a, hopper()), capped);
    EXPECT_EQ(taken(a, on(80)), capped);
    a.score.softcap = 0;
    a.dtype = DType::f32;
    EXPECT_EQ(taken(a, hopper()), f32);
    EXPECT_EQ(taken(a, on(80)), f32);
  }
  Attention wide_v = problem(4, 1000, 1000, 16, 16, 64);
  wide_v.d_v = 128;
  EXPECT_EQ(taken(wide_v, hopper()), "sm90 plain bf16 128");
}

/// Above head dim 128 one kernel has CTAs for tiles of keys and others for tiles of rows, and no sums of grad_q.
TEST(BackwardGpuPlan, HopperAboveHeadDim128) {
  EXPECT_EQ(story(causal(4096, 256), hopper()),
            "problem     attention_backward bf16: b 4, s_q 4096, s_k 4096, h_q 16, h_k 16, d_qk 256, d_v 256\n"
            "band        causal(bottom_right): the last query stands at the last key\n"
            "score       scale 0.0625\n"
            "work        1.37 Tflop, 50.0122 % of s_q x s_k seen; 1.07 GB if each tensor moves once: 1.28 kflop/B\n"
            "decision    sm90 wide\n"
            "device      sm_90: 132 SMs\n"
            "tiles       64 keys, for grad_k and grad_v, and 128 rows, for grad_q, in one kernel; head dims up to 256, "
            "384 threads\n"
            "grid        6144 CTAs, 1 an SM: 47 waves, 99 % busy\n"
            "shared      231 kB a CTA\n"
            "workspace   2.10 MB: lse and D of each row\n"
            "choices     a run takes the first that its operands fit\n"
            "  sm90 wide d256     16-byte aligned, contiguous rows, strides that TMA accepts (rows do not overlap)\n"
            "  sm80 general d256  any operands\n"
            "paths\n"
            "  sm90 wide bf16  taken\n");
  Attention mla = problem(4, 1000, 1000, 16, 16, 192);
  mla.d_v = 128;
  EXPECT_EQ(taken(mla, hopper()), "sm90 wide bf16 192");
  mla.score.softcap = 30;
  const std::string told = story(mla, hopper());
  EXPECT_NE(told.find("paths\n"
                      "  sm90 wide bf16 d192   softcap needs a general variant of sm80\n"
                      "  sm80 plain bf16 d256 "),
            std::string::npos)
      << told;
  mla.d_qk = 128;
  EXPECT_EQ(story(mla, hopper()).find("wide"), std::string::npos) << "what is narrow does not concern it";
  EXPECT_NE(story(problem(2, 0, 0, 2, 2, 256), hopper()).find("tiles       none: there are neither keys nor queries\n"),
            std::string::npos);
}

TEST(BackwardGpuPlan, PlainHasBandsLengthsAndEveryWayToWrite) {
  std::vector<Attention> all(11, problem(4, 1000, 1200, 16, 4, 128));
  all[0].band = {-1, 0, Align::bottom_right};
  all[1].band = {-1, 0, Align::top_left};
  all[2].band = {100, 50, Align::bottom_right};
  all[3].packed = true;
  all[4].used_q = all[4].used_k = true;
  all[5].first_k = true;
  all[6].grad_lse = true;
  all[7].grads = Grads::accumulate;
  all[8].zero_unused = true;
  all[9].frozen = 1;
  all[10].any_order = true;
  for (Attention& a : all) {
    EXPECT_EQ(taken(a, hopper()), "sm90 plain bf16 128");
    EXPECT_EQ(taken(a, on(80)), "sm80 once bf16 128");
    a.d_qk = 256;
    EXPECT_EQ(taken(a, hopper()), "sm90 wide bf16 256");
  }
}

TEST(BackwardGpuPlan, FeaturesTakeTheGeneralVariant) {
  const struct {
    const char* reason;
    void (*set)(Attention*);
  } features[] = {{"bias", [](Attention* a) { a->bias = true; }},
                  {"mask", [](Attention* a) { a->mask = true; }},
                  {"alibi", [](Attention* a) { a->alibi = true; }},
                  {"dropout", [](Attention* a) { a->dropout = 0.1F; }},
                  {"softcap", [](Attention* a) { a->score.softcap = 30; }},
                  {"a head dim that is no multiple of 8", [](Attention* a) { a->d_qk = 100; }},
                  {"a head dim that is no multiple of 8", [](Attention* a) { a->d_v = 100; }},
                  {"scale = -0.1", [](Attention* a) { a->score.scale = -0.1F; }},
                  {"scale = 1e-35", [](Attention* a) { a->score.scale = 1e-35F; }},
                  {"scale = 1e+35", [](Attention* a) { a->score.scale = 1e35F; }}};
  for (const auto& [reason, set] : features) {
    SCOPED_TRACE(reason);
    Attention a = problem(4, 1000, 1000, 16, 16, 128);
    set(&a);
    EXPECT_EQ(taken(a, hopper()), "sm80 general bf16 128");
    EXPECT_EQ(taken(a, on(80)), "sm80 general bf16 128");
    const std::string needs = text(" d128  ", reason, " needs a general variant of sm80\n");
    const std::string told = story(a, hopper());
    EXPECT_NE(told.find("  sm90 plain bf16" + needs), std::string::npos) << told;
    EXPECT_NE(told.find("  sm80 once bf16 d128   " + needs.substr(7)), std::string::npos) << told;
    EXPECT_NE(told.find("  sm80 plain bf16" + needs), std::string::npos) << told;
    EXPECT_NE(told.find("  sm80 general bf16     taken\n"), std::string::npos) << told;
    const std::string refused = taken(a, on(90, Backend::sm90));
    EXPECT_EQ(refused, text("no path for attention_backward bf16; sm90 plain bf16 d128: ", reason,
                            " needs a general variant of sm80"));
  }
}

TEST(BackwardGpuPlan, WhatEachBackendRefuses) {
  Attention packed = problem(4, 0, 0, 16, 16, 128);  // packed lengths without a hint
  packed.packed = true;
  for (const Backend backend : {Backend::sm80, Backend::sm90}) {
    const std::string why = taken(packed, on(90, backend));
    EXPECT_NE(why.find(text(name(backend), " plain bf16 d128: packed lengths without a hint")), std::string::npos)
        << why;
  }
  Attention f32 = problem(4, 1000, 1000, 16, 16, 128);
  f32.dtype = DType::f32;
  EXPECT_EQ(taken(f32, on(90, Backend::sm90)), "no path for attention_backward f32; sm90 f32: no variant of this type");
  EXPECT_EQ(taken(problem(4, 1000, 1000, 16, 16, 128), on(80, Backend::sm90)),
            "backend = sm90 with sm = 80: its kernels (wgmma, TMA) run on sm_90 alone");
  EXPECT_NE(taken(problem(1 << 20, 1 << 19, 1, 1, 1, 8), hopper()).find("over the grid's limit of 536870911"),
            std::string::npos);
}

// ---- The workspace --------------------------------------------------------------------------------------------------

/// lse and D of each row take 8 bytes. Rows of a sequence are padded to a multiple of 128.
TEST(BackwardGpuPlan, BytesOfTheWorkspace) {
  constexpr std::size_t kStatistic = 8, kSum = 4, kTurn = 4, kCounter = 4;
  Attention a = problem(3, 1000, 700, 8, 2, 100);
  a.d_v = 64;
  std::size_t rows = 3 * 8 * 1024;  // of all heads
  EXPECT_EQ(workspace(a, on(80)), rows * kStatistic + 3 * 8 * 16 * kSum) << "16 tiles of 64 rows, each with a sum";
  a.d_qk = 64;
  EXPECT_EQ(workspace(a, hopper()), rows * (kStatistic + 64 * kSum) + rows / 64 * 2 * kTurn + kCounter);
  a.d_v = 128;
  EXPECT_EQ(workspace(a, hopper()), rows * (kStatistic + 128 * kSum) + rows / 64 * 2 * kTurn);
  a.packed = true;  // one place of 128 rows more for each sequence
  rows = 8 * (3000 / 128 + 3) * 128;
  EXPECT_EQ(workspace(a, hopper()), rows * (kStatistic + 128 * kSum) + rows / 64 * 2 * kTurn);
  EXPECT_EQ(workspace(a, on(80)), rows * (kStatistic + 128 * kSum) + rows / 64 * 2 * kTurn);
  EXPECT_EQ(workspace(a, on(86)), rows * kStatistic + 8 * (47 + 3) * kSum);
  a.d_qk = 256;
  EXPECT_EQ(workspace(a, hopper()), rows * kStatistic) << "nobody adds to what another CTA has made";
  Attention f32 = problem(1, 1000, 1000, 2, 2, 256);
  f32.dtype = DType::f32;
  EXPECT_EQ(workspace(f32, hopper()), 2 * 1024 * kStatistic + 2 * 32 * kSum) << "tiles of 32 rows";
  EXPECT_EQ(workspace(problem(2, 0, 700, 8, 2, 64), hopper()), kCounter) << "there are no queries";
  EXPECT_EQ(workspace(problem(2, 0, 700, 8, 2, 128), hopper()), 0U) << "nor is there a counter of tiles";
}

/// The variant for unaligned operands finds room in the workspace of the plan's own variant.
TEST(BackwardGpuPlan, TheWorkspaceServesTheVariantForUnalignedOperandsToo) {
  for (const bool packed : {false, true}) {
    for (const int d : {64, 128, 256}) {
      for (const Target& target : {on(80), hopper()}) {
        Attention a = problem(3, 1000, 700, 8, 2, d);
        a.packed = packed;
        PlanData plan = decided(a, target, Pass::backward);
        ASSERT_NE(for_any(plan), nullptr);
        EXPECT_STREQ(for_any(plan)->level, "general");
        a.score.softcap = 1;  // takes the general variant by itself
        const PlanData general = decided(a, target, Pass::backward);
        EXPECT_EQ(general.variant->d, for_any(plan)->d);
        const std::size_t of_slopes = static_cast<std::size_t>(general.attention().tiles) * 8 * (packed ? 1 : 3) * 4;
        EXPECT_LE(general.workspace - of_slopes, plan.workspace) << "slopes never come with a plain variant";
      }
    }
  }
}

// ---- Operands -------------------------------------------------------------------------------------------------------

/// Operands that are a little off run on the general variant, if any of those that a kernel loads is.
TEST(BackwardGpuPlan, UnalignedOperandsRunOnTheGeneralVariant) {
  alignas(256) static std::byte memory[1 << 16];
  const Attention a = problem(2, 4, 5, 2, 2, 64);
  Operands x;
  x.q = x.o = x.grad_o = x.grad_q = Tensor::dense(memory, DType::bf16, {2, 4, 2, 64});
  x.k = x.v = x.grad_k = x.grad_v = Tensor::dense(memory, DType::bf16, {2, 5, 2, 64});
  const auto level = [&](const Target& target, const Operands& operands) {
    const PlanData plan = decided(a, target, Pass::backward);
    return taken_for(plan, backward_layout_of(plan, operands));
  };
  EXPECT_EQ(level(hopper(), x), "sm90 plain");
  EXPECT_EQ(level(on(80), x), "sm80 once");
  for (Tensor Operands::*tensor : {&Operands::q, &Operands::k, &Operands::v, &Operands::o, &Operands::grad_o}) {
    Operands odd = x;
    (odd.*tensor).data = memory + 2;
    EXPECT_EQ(level(hopper(), odd), "sm80 general unaligned");
    EXPECT_EQ(level(on(80), odd), "sm80 general unaligned");
    odd = x;
    (odd.*tensor).stride[1] += 1;
    EXPECT_EQ(level(hopper(), odd), "sm80 general unaligned");
  }
  for (Tensor Operands::*tensor : {&Operands::q, &Operands::k, &Operands::v, &Operands::grad_o}) {
    Operands shared = x;
    (shared.*tensor).stride[1] = 0;  // TMA follows no stride below a row's length; cp.async does
    EXPECT_EQ(level(hopper(), shared), "sm80 general");
    EXPECT_EQ(level(on(80), shared), "sm80 once");
  }
  Operands spread = x;
  spread.grad_o.stride = {0, 0, 0, 0};  // the gradient of a plain sum
  EXPECT_EQ(level(hopper(), spread), "sm80 general");
  EXPECT_EQ(level(on(80), spread), "sm80 general");
  Operands gradients = x;  // gradients are stored element by element
  gradients.grad_q.data = gradients.grad_k.data = gradients.grad_v.data = memory + 2;
  EXPECT_EQ(level(hopper(), gradients), "sm90 plain");
}

}  // namespace
}  // namespace falchion::testing
