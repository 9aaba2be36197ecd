// tests/plan_test.cpp: tests what the plan decides, and compares describe() and explain() with golden text. No test
// here computes anything.
#include <gtest/gtest.h>

#include <string>

#include "api/data_of.hpp"
#include "cpu/levels.hpp"
#include "plan/attention_launch.hpp"
#include "plan/constants.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"
#include "support/environment.hpp"

namespace falchion::testing {
namespace {

constexpr Variant kVariant{.op = "attention_forward",
                           .backend = Backend::cpu,
                           .level = "avx512",
                           .kind = VariantKind::avx512,
                           .dtype = DType::bf16};

Attention problem(std::int64_t b, std::int64_t s_q, std::int64_t s_k, std::int64_t h_q, std::int64_t h_k,
                  std::int64_t d) {
  Attention a;
  a.b = b;
  a.s_q = s_q;
  a.s_k = s_k;
  a.h_q = h_q;
  a.h_k = h_k;
  a.d_qk = a.d_v = d;
  return a;
}

/// Returns a plan with fixed numbers, so that the text does not depend on this machine.
PlanData made_up() {
  PlanData plan;
  ask(problem(2, 1024, 1024, 8, 2, 64), Pass::forward, Target{}, &plan);
  plan.attention().problem.score.scale = 0.125f;
  plan.attention().problem.band = Band::causal(Align::bottom_right);
  plan.attention().problem.lse = true;
  plan.backend = Backend::cpu;
  plan.variant = &kVariant;
  plan.rejected = {{"sm90 bf16", "no variant is built for sm90"}, {"cpu amx bf16", "this CPU has no AMX"}};
  plan.threads = 2;
  plan.attention().rows = 256;
  plan.attention().keys = 128;
  plan.items = 64;
  plan.attention().memory = {.packed_k = 0, .packed_v = 0, .scratch = 400000, .partials = 0};
  plan.workspace = 800000;
  return plan;
}

TEST(Describe, Golden) {
  PlanData plan = made_up();
  EXPECT_EQ(describe(plan),
            "attention_forward cpu avx512 bf16 d64 dv64 band causal(bottom_right) rows 256 keys 128 threads 2 splits 1 "
            "ws 800 kB");
  plan.attention().problem.band = Band::window(127, 0, Align::top_left);
  plan.attention().decode = true;
  plan.attention().splits = 4;
  plan.workspace = 0;
  EXPECT_EQ(describe(plan),
            "attention_forward cpu avx512 bf16 d64 dv64 band window(127, 0, top_left) rows 256 keys 128 threads 2 "
            "splits 4 decode ws 0 B");
  plan.backend = Backend::ref;
  plan.variant = nullptr;
  plan.attention().problem.band = Band::full();
  EXPECT_EQ(describe(plan), "attention_forward ref bf16 d64 dv64 band full ws 0 B");
}

TEST(Explain, Golden) {
  EXPECT_EQ(explain(made_up()),
            "problem     attention_forward bf16: b 2, s_q 1024, s_k 1024, h_q 8, h_k 2, d_qk 64, d_v 64\n"
            "band        causal(bottom_right): the last query stands at the last key\n"
            "score       scale 0.125\n"
            "with        lse\n"
            "work        2.15 Gflop, 50.0488 % of s_q x s_k seen; 5.31 MB if each tensor moves once: 405 flop/B\n"
            "decision    cpu avx512\n"
            "tiles       256 rows x 128 keys; the 4 query heads of a K/V head are rows of one item; as many rows as "
            "the L2 holds\n"
            "threads     2; 64 items, 32 a thread at most: 100 % busy\n"
            "workspace   800 kB: scratch 2 x 400 kB\n"
            "paths\n"
            "  sm90 bf16        no variant is built for sm90\n"
            "  cpu amx bf16     this CPU has no AMX\n"
            "  cpu avx512 bf16  taken\n");
}

/// The backward pass has work of its own: 2 (3 d_qk + 2 d_v) flop for each pair, less where something is frozen.
TEST(Explain, TheBackwardPass) {
  Attention a;
  a.b = 1;
  a.s_q = a.s_k = 100;
  a.h_q = a.h_k = 2;
  a.d_qk = 64;
  a.d_v = 32;
  a.grads = Grads::accumulate;
  a.grad_lse = true;
  const auto flops = [&](int frozen) {
    a.frozen = static_cast<std::uint8_t>(frozen);
    return attention_backward_flops(a);
  };
  constexpr double kPairs = 2 * 100 * 100;
  EXPECT_EQ(flops(0), 2 * (3 * 64 + 2 * 32) * kPairs);
  EXPECT_EQ(flops(1), 2 * (2 * 64 + 2 * 32) * kPairs);
  EXPECT_EQ(flops(2), 2 * (2 * 64 + 32) * kPairs);
  EXPECT_EQ(flops(3), 2 * (64 + 32) * kPairs);
  // q and k, v and o, grad_o; lse and grad_lse; what is not frozen is read and written in f32.
  EXPECT_EQ(attention_backward_bytes(a), 200 * (2 * 64 + 3 * 32) * 2 + 200 * 2 * 4);
  a.frozen = 1;
  EXPECT_EQ(attention_backward_bytes(a), 200 * (2 * 64 + 3 * 32) * 2 + 200 * 2 * 4 + 200 * (64 + 32) * 8);
  const std::string told = explain(a, Pass::backward, Backend::ref);
  EXPECT_NE(told.find("grad_lse, gradients added to what is there, no grad_q"), std::string::npos) << told;
  EXPECT_NE(told.find("attention_backward bf16"), std::string::npos) << told;
}

TEST(Explain, GoldenJson) {
  const std::string json = explain(made_up(), Format::json), version = falchion::version();
  const std::string lines = json.substr(0, json.find(R"(,"text":[")"));
  EXPECT_EQ(
      lines,
      R"({"falchion":")" + version +
          R"(","status":{"code":"ok","why":""},"op":"attention_forward","pass":"forward","problem":{"dtype":"bf16",)"
          R"("dtype_k":"as_q","dtype_v":"as_q","dtype_o":"as_q","b":2,"s_q":1024,"s_k":1024,"h_q":8,"h_k":2,)"
          R"("d_qk":64,"d_v":64,"band":{"left":-1,"right":0,"align":"bottom_right","offset":0},)"
          R"("score":{"scale":0.125,"softcap":0},"alibi":false,"bias":false,"mask":false,"sinks":false,"dropout":0,)"
          R"("lse":true,"row_max":false,"probabilities":false,"any_order":false,"grads":"rounded","frozen":0,)"
          R"("zero_unused":false,"grad_lse":false,"grad_bias":false,"grad_alibi":false,"grad_sinks":false,)"
          R"("packed":false,"cache":false,"page_size":0,"append":false,"rotary_dim":0,"rotary_pairs":false,)"
          R"("k_scale":false,"v_scale":false,"q_scale":false,"k_scale_rows":0,"split_keys":0,)"
          R"("used_q":false,"used_k":false,"first_k":false},)"
          R"("work":{"flops":2149580800,)"
          R"("bytes":5308416,"flops_per_byte":404.9382716049383,"seen":0.50048828125},"describe":"attention_forward )"
          R"(cpu avx512 bf16 d64 dv64 band causal(bottom_right) rows 256 keys 128 threads 2 splits 1 ws 800 kB",)"
          R"("decision":{"backend":"cpu","level":"avx512","tile":null,"dtype":"bf16","d":null,"built":true,)"
          R"("here":true},"workspace_bytes":800000,"tile":{"rows":256,"keys":128,"decode":false,"heads":1},)"
          R"("threads":{"count":2,"callers_pool":false,"items":64,"items_a_thread":32,"busy_percent":100},"splits":1,)"
          R"("memory":{"packed_k":0,"packed_v":0,"scratch_a_thread":400000,"partials":0},"rejected":[{"path":"sm90 )"
          R"(bf16","reason":"no variant is built for sm90"},{"path":"cpu amx bf16","reason":"this CPU has no AMX"}])");
  EXPECT_TRUE(json.ends_with(R"("  cpu avx512 bf16  taken"]})")) << json;
}

TEST(Explain, AnInvalidProblem) {
  EXPECT_EQ(explain(problem(1, 4, 4, 7, 2, 128), Pass::forward, {}),
            "decision    refused (invalid): h_q = 7 is not a multiple of h_k = 2\n");
}

TEST(Explain, TheDefinition) {
  Plan plan;
  ASSERT_TRUE(Plan::make(problem(1, 4, 4, 1, 1, 8), Pass::forward, Backend::ref, &plan));
  EXPECT_EQ(plan.workspace_bytes(), 0u);
  EXPECT_NE(plan.explain().find("decision    ref: the definition in double"), std::string::npos);
  EXPECT_EQ(Plan().explain(), "no plan");
}

TEST(Work, CountsWhatTheBandLetsThrough) {
  for (std::int64_t s_q = 0; s_q < 7; ++s_q)
    for (std::int64_t s_k = 0; s_k < 7; ++s_k)
      for (std::int64_t left = -1; left < 8; ++left)
        for (std::int64_t right = -1; right < 8; ++right)
          for (const std::int64_t offset : {-99, -9, -1, 0, 3, 1 << 30}) {  // -99: bottom right
            Attention a = problem(1, s_q, s_k, 1, 1, 8);
            a.band = {left, right, Align::at, offset};
            if (offset == -99) a.band = {left, right, Align::bottom_right};
            if (offset == 0) a.band.align = Align::top_left;
            const std::int64_t shift = offset == -99 ? s_k - s_q : offset;
            int pairs = 0;
            for (std::int64_t i = 0; i < s_q; ++i)
              for (std::int64_t j = 0; j < s_k; ++j)
                pairs += (left < 0 || j - i - shift >= -left) && (right < 0 || j - i - shift <= right) ? 1 : 0;
            ASSERT_EQ(visible_pairs(a), pairs) << s_q << " " << s_k << " " << left << " " << right;
          }
}

TEST(Text, Numbers) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(33638400), "33.6 MB");
  EXPECT_EQ(bytes_text(999999), "1.00 MB");
  EXPECT_EQ(text("h = ", 7, ", p = ", 0.5f, ", ", "x"), "h = 7, p = 0.5, x");
}

TEST(Workspace, PartsAreAlignedAndDoNotOverlap) {
  const WorkspaceLayout layout = workspace_layout({.packed_k = 100, .packed_v = 1, .scratch = 65, .partials = 8}, 3);
  EXPECT_EQ(layout.packed_v, 128u);
  EXPECT_EQ(layout.scratch, 192u);
  EXPECT_EQ(layout.scratch_stride, 128u);
  EXPECT_EQ(layout.partials, 192u + 3 * 128);
  EXPECT_EQ(layout.total, 192u + 3 * 128 + 64);
}

// ---- decisions, on the level that every machine has
// -------------------------------------------------------------------

bool generic_is_built() {
  for (const Variant& variant : variants()) {
    if (variant.kernel_as<cpu::AttentionKernel>() == nullptr || variant.dtype != DType::bf16) continue;
    if (variant.level == std::string("generic")) return true;
  }
  return false;
}

class Decision : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!generic_is_built()) GTEST_SKIP() << "the variant cpu generic bf16 is not built";
  }
  static PlanData decide(const Attention& a, int threads) {
    Target target(Backend::cpu);
    target.threads = threads;
    target.cpu_level = "generic";
    Plan plan;
    const Status status = Plan::make(a, Pass::forward, target, &plan);
    EXPECT_TRUE(status) << status.why;
    return status ? *data_of(plan) : PlanData{};
  }
};

TEST_F(Decision, LongProblemsGetFullItems) {
  const PlanData plan = decide(problem(1, 4096, 4096, 8, 8, 128), 2);
  EXPECT_EQ(plan.attention().rows, tiles::kMaxRows);
  EXPECT_EQ(plan.items, 8 * 16);
  EXPECT_EQ(plan.threads, 2);
  EXPECT_EQ(plan.attention().splits, 1);
  EXPECT_FALSE(plan.attention().decode);
  EXPECT_EQ(plan.variant->level, std::string("generic"));
  EXPECT_FLOAT_EQ(plan.attention().problem.score.scale, 0.08838835f);
}

TEST_F(Decision, ItemsShrinkForManyThreads) {
  const PlanData plan = decide(problem(1, 2048, 2048, 4, 4, 64), 16);
  EXPECT_EQ(plan.attention().rows, 128);
  EXPECT_GE(plan.items, 64);
  EXPECT_EQ(decide(problem(1, 1024, 1024, 1, 1, 64), 16).attention().rows, tiles::kMinRows);
}

TEST_F(Decision, GroupsArePackedIntoRows) {
  const PlanData plan = decide(problem(1, 20, 4096, 32, 8, 64), 1);
  EXPECT_EQ(plan.attention().rows, 96);  // These are 80 rows in tiles of 32.
  EXPECT_EQ(plan.items, 8);
}

TEST_F(Decision, FewRowsAreDecode) {
  EXPECT_TRUE(decide(problem(1, 1, 8192, 32, 8, 128), 2).attention().decode);
  EXPECT_TRUE(decide(problem(1, 8, 8192, 8, 8, 128), 2).attention().decode);
  EXPECT_FALSE(decide(problem(1, 9, 8192, 8, 8, 128), 2).attention().decode);
}

TEST_F(Decision, KeysAreSplitWhenThreadsWouldIdle) {
  EXPECT_EQ(decide(problem(1, 1, 8192, 4, 1, 128), 4).attention().splits, 4);
  EXPECT_EQ(decide(problem(1, 1, 8192, 32, 8, 128), 2).attention().splits,
            2);  // This is decode, in which the 8 heads of a key stay together.
  EXPECT_EQ(decide(problem(1, 1, 8192, 32, 8, 128), 2).attention().heads, 8);
  // There are too few keys to split them, so the heads are split.
  EXPECT_EQ(decide(problem(1, 1, 512, 32, 8, 128), 2).attention().heads, 4);
  EXPECT_EQ(decide(problem(8, 1, 8192, 32, 8, 128), 2).attention().splits, 1);  // These are 8 items for 2 threads.
  // Of 3 items the last one would run alone.
  EXPECT_EQ(decide(problem(3, 1, 8192, 24, 3, 128), 2).attention().splits, 2);
  EXPECT_EQ(decide(problem(1, 1, 700, 8, 1, 128), 4).attention().splits, 1);  // Here a split gains nothing.
  Attention a = problem(1, 1, 8192, 4, 1, 128);
  a.probabilities = true;
  EXPECT_EQ(decide(a, 4).attention().splits, 1);
  a = problem(1, 1, 8192, 4, 1, 128);
  a.band = Band::window(512, 0, Align::bottom_right);
  EXPECT_EQ(decide(a, 4).attention().splits, 1);
  EXPECT_GT(decide(problem(1, 1, 8192, 4, 1, 128), 4).attention().memory.partials, 0u);
}

TEST_F(Decision, SmallProblemsStayOnOneThread) { EXPECT_EQ(decide(problem(1, 16, 16, 2, 2, 32), 8).threads, 1); }

TEST_F(Decision, MemoryIsLinearInTheLength) {
  const PlanData a = decide(problem(1, 16384, 16384, 1, 1, 128), 2),
                 b = decide(problem(1, 131072, 131072, 1, 1, 128), 2);
  EXPECT_LE(b.workspace, 8 * a.workspace);
  EXPECT_LT(b.workspace, 160u << 20);
}

TEST_F(Decision, EmptyProblemsNeedNothing) {
  EXPECT_EQ(decide(problem(0, 16, 16, 2, 2, 32), 2).workspace, 0u);
  EXPECT_EQ(decide(problem(1, 0, 16, 2, 2, 32), 2).workspace, 0u);
  EXPECT_EQ(decide(problem(1, 5, 16, 0, 0, 32), 2).workspace, 0u);
}

TEST_F(Decision, TheFastestUsableLevelIsTaken) {
  if (cpu::level_from_environment() != nullptr) GTEST_SKIP() << "FALCHION_CPU is set";
  Plan plan;
  ASSERT_TRUE(Plan::make(problem(1, 64, 64, 1, 1, 64), Pass::forward, {}, &plan));
  for (const Variant& variant : variants()) {
    if (variant.dtype != DType::bf16 || variant.kernel_as<cpu::AttentionKernel>() == nullptr) continue;
    for (const cpu::Level& level : cpu::cpu_levels()) {
      if (!level.usable || std::string(level.name) != variant.level) continue;
      EXPECT_EQ(data_of(plan)->variant, &variant);
      return;
    }
  }
}

// ---- forcing a level ------------------------------------------------------------------------------------------------

TEST(ForcedLevel, UnknownOrImpossible) {
  Target target;
  target.cpu_level = "avx9";
  Plan plan;
  const Status status = Plan::make(problem(1, 4, 4, 1, 1, 8), Pass::forward, target, &plan);
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_EQ(status.why, "cpu_level = avx9: there is no such CPU level; usable here: " + cpu::usable_levels());
  EXPECT_FALSE(plan);
  for (const cpu::Level& level : cpu::cpu_levels()) {
    if (level.usable) continue;
    target.cpu_level = level.name;
    EXPECT_EQ(Plan::make(problem(1, 4, 4, 1, 1, 8), Pass::forward, target, &plan).why,
              text("cpu_level = ", level.name, ": ", level.why_not, "; usable here: ", cpu::usable_levels()));
  }
}

TEST(ForcedLevel, ByTheEnvironment) {
  Plan plan;
  {
    const ForcedByTheEnvironment level("nonsense");
    const Status status = Plan::make(problem(1, 4, 4, 1, 1, 8), Pass::forward, {}, &plan);
    EXPECT_EQ(status.code, Code::unsupported);
    EXPECT_NE(status.why.find("FALCHION_CPU = nonsense"), std::string::npos);
    EXPECT_TRUE(Plan::make(problem(1, 4, 4, 1, 1, 8), Pass::forward, Backend::ref, &plan)) << "ref is no CPU level";
  }
  const ForcedByTheEnvironment level("generic");
  if (generic_is_built()) {
    ASSERT_TRUE(Plan::make(problem(1, 4, 4, 1, 1, 8), Pass::forward, {}, &plan));
    EXPECT_NE(plan.describe().find("cpu generic"), std::string::npos) << plan.describe();
  }
  // FALCHION_CPU names a level of the CPU and never a backend. So the GPU was considered first, as it is without the
  // variable.
  const std::string story = explain(problem(1, 4, 4, 1, 1, 8), Pass::forward, {});
  EXPECT_NE(story.find("sm80 bf16"), std::string::npos) << story;
}

/// FALCHION_CPU is set once for all operations. Where one has no kernel of that level, the next below is taken.
TEST(ForcedLevel, ByTheEnvironmentOrTheNextBelow) {
  const std::vector<std::string> order = {"amx_emulated", "amx",  "avx512_bf16", "vnni",
                                          "avx512",       "avx2", "neon",        "generic"};
  const auto rank = [&](const std::string& name) {
    return std::find(order.begin(), order.end(), name) - order.begin();
  };
  int below = 0;
  for (const cpu::Level& asked : cpu::cpu_levels()) {
    if (!asked.usable) continue;
    const ForcedByTheEnvironment environment(asked.name);
    for (const auto& [op, dtype] : {std::pair{"attention_forward", DType::bf16}, {"gemm", DType::i8}}) {
      std::string best;  // the level that is to be taken
      for (const Variant& v : variants()) {
        if (v.backend != Backend::cpu || !v.is(op) || v.dtype != dtype) continue;
        const auto all = cpu::cpu_levels();
        const bool usable = std::any_of(all.begin(), all.end(), [&](const cpu::Level& level) {
          return level.usable && std::string(level.name) == v.level;
        });
        const bool emulated = std::string(v.level) == "amx_emulated" || std::string(v.level) == "amx";
        if (!usable || rank(v.level) < rank(asked.name)) continue;
        if (std::string(asked.name) == "amx_emulated" && emulated && std::string(v.level) != asked.name) continue;
        if (best.empty() || rank(v.level) < rank(best)) best = v.level;
      }
      if (best.empty()) continue;
      Plan plan;
      const Status status =
          dtype == DType::i8
              ? Plan::make(Gemm{.dtype = DType::i8, .dtype_d = DType::i32, .m = 8, .n = 8, .k = 8}, {}, &plan)
              : Plan::make(problem(1, 4, 4, 1, 1, 8), Pass::forward, {}, &plan);
      ASSERT_TRUE(status) << asked.name << " " << op << ": " << status.why;
      EXPECT_EQ(data_of(plan)->variant->level, best) << asked.name << " " << op;
      if (best == asked.name) continue;
      ++below;
      EXPECT_NE(plan.explain().find(
                    text("FALCHION_CPU = ", asked.name, " has no such kernel here; the next level below is ", best)),
                std::string::npos)
          << plan.explain();
      Target named;
      named.cpu_level = asked.name;
      EXPECT_FALSE(Plan::make(problem(1, 4, 4, 1, 1, 8), Pass::forward, named, &plan) &&
                   Plan::make(Gemm{.dtype = DType::i8, .dtype_d = DType::i32, .m = 8, .n = 8, .k = 8}, named, &plan))
          << "cpu_level is that level or none";
    }
  }
  if (cpu::usable_levels().find("vnni") != std::string::npos && generic_is_built())
    EXPECT_GT(below, 0) << "attention has no kernel of vnni";
}

TEST(Levels, GenericIsAlwaysUsable) {
  bool generic = false;
  for (const cpu::Level& level : cpu::cpu_levels()) {
    EXPECT_EQ(level.usable, level.why_not.empty()) << level.name;
    generic = generic || (level.usable && std::string(level.name) == "generic");
  }
  EXPECT_TRUE(generic);
}

}  // namespace
}  // namespace falchion::testing
