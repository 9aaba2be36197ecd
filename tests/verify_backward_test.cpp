// tests/verify_backward_test.cpp: tests the storms of attention's backward pass: what they draw, print, shrink and
// find. tests/verify_storm_test.cpp tests what all storms share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tool.hpp"
#include "verify/draw.hpp"
#include "verify/paths.hpp"
#include "verify/storm.hpp"
#include "verify/subject.hpp"

namespace falchion::tools::storm {
namespace {

const std::vector<DType> kTypes = {DType::f32, DType::f16, DType::bf16};
const std::string kSmall = "op=attention-backward backend=ref dtype=f32 s_q=5 s_k=6 d_qk=4 d_v=4 ";

TEST(VerifyBackward, TheWholeSpaceIsDrawn) {
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Problem p = draw_problem(1, i, Op::attention_backward, kTypes);
    const Attention& a = p.attention;
    const auto note = [&](bool is, const std::string& what) {
      if (is) seen.insert(what);
    };
    note(a.any_order, "any order");
    note(a.grads == Grads::f32, "gradients in f32");
    note(a.grads == Grads::accumulate, "gradients that are added");
    note(a.zero_unused && a.used_q, "zeros in unused rows");
    for (const int frozen : {0, 1, 2, 3}) note(a.frozen == frozen, "frozen " + std::to_string(frozen));
    note(a.grad_lse, "a gradient of lse");
    for (unsigned ones = 0; ones < 16; ++ones)
      note(a.grad_bias && p.grad_bias.one == ones, "grad_bias " + std::to_string(ones));
    note(a.grad_alibi && p.grad_alibi_by_batch, "grad_alibi by batch");
    note(a.grad_alibi && !p.grad_alibi_by_batch, "grad_alibi of all");
    note(p.storage_of("grad_o").zero == 15, "the gradient of a plain sum");
    note(p.storage_of("grad_q").pad > 0, "padding of grad_q");
    for (const char* state : {"own", "merged", "any", "gone"}) note(p.data.state == state, state);
    for (const std::string& plant : p.data.plant) note(plant == "nan_grad_o" || plant == "inf_lse", plant);
    note(a.packed && a.used_k, "packed and used");
    note(a.dropout == 1, "everything dropped");
    note(a.s_k == 0, "no keys");
    note(a.s_q == 0, "no queries");
    EXPECT_FALSE(a.lse || a.row_max || a.probabilities);
  }
  EXPECT_EQ(seen.size(), 39U) << ::testing::PrintToString(seen);
}

/// Each key that only this pass has, with another value than its default.
const char* const kFields[] = {"any_order=1",
                               "grads=f32",
                               "grads=accumulate",
                               "zero_unused=1",
                               "frozen=3",
                               "grad_lse=1",
                               "bias=1 grad_bias=1",
                               "bias=1 grad_bias=1 grad_bias_ones=11",
                               "alibi=1 grad_alibi=1",
                               "alibi=1 grad_alibi=1 grad_alibi_by_batch=1",
                               "amount_grad=100",
                               "state=gone",
                               "plant=inf_grad_o",
                               "layout_grad_o=zero15",
                               "layout_grad_q=pad3",
                               "layout_grad_alibi=start1"};

TEST(VerifyBackward, EachFieldSurvivesPrintingAndParsing) {
  for (const std::string field : kFields) {
    const Problem problem = parse_problem("op=attention-backward " + field);
    EXPECT_FALSE(problem == parse_problem("op=attention-backward")) << field;
    const std::string line = to_text(problem);
    for (std::size_t at = 0; at < field.size();) {
      const std::size_t end = std::min(field.find(' ', at), field.size());
      EXPECT_NE(line.find(" " + field.substr(at, end - at)), std::string::npos) << line;
      at = end + 1;
    }
    EXPECT_TRUE(parse_problem(line) == problem) << line;
  }
}

TEST(VerifyBackward, WhatHasNoSoundValueIsRefused) {
  for (const char* bad :
       {"op=attention-backward frozen=4", "op=attention-backward grads=half", "op=attention-backward state=lost",
        "op=attention-backward grad_bias=1", "op=attention-backward grad_alibi=1",
        "op=attention-backward bias=1 grad_bias=1 grad_bias_ones=16", "op=attention-backward plant=nan_grad_q",
        "op=attention-backward grads=accumulate zero_unused=1", "op=attention-backward layout_row_max=pad1",
        // These belong to the other pass.
        "op=attention-backward lse=1", "op=attention-backward probabilities=1", "op=attention any_order=1",
        "op=attention grads=f32", "op=attention plant=nan_grad_o", "op=attention layout_grad_q=pad1"})
    EXPECT_THROW(parse_problem(bad), UsageError) << bad;
}

/// Whatever fails for another reason loses all that only this pass has.
TEST(VerifyBackward, ShrinkingDropsEachField) {
  for (const std::string field : kFields) {
    const Problem large = parse_problem("op=attention-backward dtype=f16 s_q=9 s_k=9 d_qk=4 d_v=4 " + field);
    const Problem small = shrink(large, [](const Problem& p) { return p.attention.s_q >= 7; });
    EXPECT_EQ(to_text(small), "op=attention-backward dtype=f16 s_q=7 d_qk=1 d_v=1") << field;
  }
  const Problem large = parse_problem("op=attention-backward dtype=f16 s_q=9 s_k=9 d_qk=4 d_v=4 frozen=2 any_order=1");
  EXPECT_EQ(to_text(shrink(large, [](const Problem& p) { return p.attention.frozen == 2; })),
            "op=attention-backward dtype=f16 d_qk=1 d_v=1 frozen=2");
}

/// A subject with one run of a plan on a copy of its memory.
struct Ran {
  std::unique_ptr<Subject> subject;
  std::vector<std::uint64_t> aligned;
  std::byte* copy = nullptr;

  Ran(const Problem& problem, const Attention& planned) : subject(make_subject(problem)) {
    const Image& image = subject->image();
    aligned.resize(image.size() / 8);
    copy = reinterpret_cast<std::byte*>(aligned.data());
    std::memcpy(copy, image.data(), image.size());
    Plan plan;
    const Status made = Plan::make(planned, Pass::backward, Target(Backend::ref), &plan);
    EXPECT_TRUE(made) << made.why;
    const Status done = subject->run(plan, copy, nullptr, 0);
    EXPECT_TRUE(done) << done.why;
  }
  /// What the storm says of it.
  std::string why() {
    const std::string said = subject->judge(copy, false);
    return said.empty() ? subject->image().difference(copy, subject->image().data()) : said;
  }
};

/// A fault in each part of the pass, made by running the plan of another problem on this one's memory.
TEST(VerifyBackward, AWrongGradientIsFound) {
  struct Fault {
    const char *fields, *says;
    void (*make)(Attention*);
  } const table[] = {
      {"scale=1", "grad_q", [](Attention* a) { a->score.scale = 1.01F; }},
      {"softcap=5", "grad_q", [](Attention* a) { a->score.softcap = 5.5F; }},
      {"frozen=1 right=0 align=top_left", "grad_k", [](Attention* a) { a->band = Band::full(); }},
      {"frozen=1 dropout=0.3", "grad_k", [](Attention* a) { a->dropout = 0.31F; }},
      {"frozen=3 bias=1 grad_bias=1", "grad_bias", [](Attention* a) { a->score.scale = 0.6F; }},
      {"frozen=3 alibi=1 grad_alibi=1", "grad_alibi", [](Attention* a) { a->score.scale = 0.6F; }},
      {"grads=accumulate", "grad_q", [](Attention* a) { a->grads = Grads::f32; }},
      {"zero_unused=1 uses_q=1 used_q=3", "grad_q", [](Attention* a) { a->zero_unused = false; }},
      {"uses_q=1 used_q=3", "byte", [](Attention* a) { a->zero_unused = true; }},
      {"grads=f32 state=merged", "grad_q", [](Attention* a) { a->score.scale = 0.6F; }},
  };
  for (const auto& [fields, says, make] : table) {
    const Problem problem = parse_problem(kSmall + fields);
    EXPECT_EQ(Ran(problem, problem.attention).why(), "") << fields;
    Attention faulty = problem.attention;
    make(&faulty);
    const std::string why = Ran(problem, faulty).why();
    EXPECT_EQ(why.rfind(says, 0), 0U) << fields << ": " << why;
  }
}

/// A storm over a pass without the softcap fails, and each reported failure is small and has a softcap.
TEST(VerifyBackward, AStormFindsAFaultAndMakesItSmall) {
  StormOptions options;
  options.problems = 60;
  options.workers = 1;
  options.backend = "ref";
  options.ops = {Op::attention_backward};
  options.types = {DType::f32};
  options.as_json = true;
  options.attempt = [](const Problem& p, Bench*, DeviceArena*, Watchdog::Slot*) {
    Attention faulty = p.attention;
    faulty.score.softcap = 0;
    const std::string why = Ran(p, faulty).why();
    return Outcome{why.empty() ? Outcome::Kind::passed : Outcome::Kind::failed, why};
  };
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_storm(options), exit_failed);
  ::testing::internal::GetCapturedStderr();
  const auto report = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  ASSERT_FALSE(report["failures"].empty());
  for (const auto& failure : report["failures"]) {
    const std::string command = failure["command"];
    EXPECT_NE(command.find(" softcap="), std::string::npos) << command;
    EXPECT_LT(command.size(), failure["drawn"].get<std::string>().size()) << command;
  }
}

TEST(VerifyBackward, AnElementThatIsNotWrittenIsFound) {
  const auto subject = make_subject(parse_problem(kSmall + "frozen=1"));
  std::vector<std::byte> copy(subject->image().data(), subject->image().data() + subject->image().size());
  EXPECT_EQ(subject->judge(copy.data(), false), "grad_k[0, 0, 0, 0] was not written");
}

/// Every byte that a run must not write is watched, and so is the high byte of every gradient.
TEST(VerifyBackward, AStrayWriteAnywhereIsFound) {
  const Problem problem = parse_problem(kSmall + "uses_q=1 used_q=3 layout_grad_q=pad3+start1 grad_lse=1");
  const Ran clean(problem, problem.attention);
  const Image& image = clean.subject->image();
  std::size_t gradients = 0, missed = 0;
  for (std::size_t at = 0; at < image.size(); ++at) {
    const bool written = clean.copy[at] != image.data()[at];
    gradients += written ? 1 : 0;
    std::vector<std::uint64_t> aligned = clean.aligned;
    auto* copy = reinterpret_cast<std::byte*>(aligned.data());
    copy[at] ^= std::byte{0xFF};
    const bool found = !clean.subject->judge(copy, false).empty() || !image.difference(copy, image.data()).empty();
    const bool low = at % 4 != 3 && (written || clean.copy[at - at % 4 + 3] != image.data()[at - at % 4 + 3]);
    EXPECT_TRUE(found || low) << "byte " << at << " of " << image.size();
    missed += found ? 0 : 1;
  }
  EXPECT_GT(gradients, 60 * 3U);  // grad_q has 12 numbers that are written, grad_k and grad_v have 24 each
  EXPECT_LT(missed, 2 * 60U);
}

/// Two runs may differ in grad_q where any order is allowed, and nowhere else. Both are judged.
TEST(VerifyBackward, OnlyGradQMayDifferFromRunToRun) {
  for (const bool any_order : {false, true}) {
    const Problem p = parse_problem(kSmall + "layout_grad_q=start1" + (any_order ? " any_order=1" : ""));
    Plan plan;
    ASSERT_TRUE(Plan::make(p.attention, Pass::backward, Target(Backend::ref), &plan));
    /// The first byte of an operand's memory that the run writes, found by freezing the others.
    const auto place_of = [&](std::uint8_t frozen) {
      Problem one = p;
      one.attention.frozen = frozen;
      const Ran ran(one, one.attention);
      const std::byte* image = ran.subject->image().data();
      return std::mismatch(ran.copy, ran.copy + ran.subject->image().size(), image).first - ran.copy;
    };
    const auto outcome = [&](std::ptrdiff_t at, std::byte change) {
      Ran one(p, p.attention), two(p, p.attention);
      two.copy[at] ^= change;
      return conclude(p, plan, {{{}, {}}, one.copy, two.copy}, one.subject.get()).why;
    };
    const std::ptrdiff_t of_q = place_of(2);  // the lowest byte of an element, which is a rounding
    EXPECT_EQ(outcome(of_q, std::byte{1}), any_order ? "" : "two runs differ: byte 0 of grad_q");
    const std::string wrong = outcome(of_q + 3, std::byte{0x40});
    EXPECT_EQ(wrong.rfind(any_order ? "grad_q[" : "two runs differ", 0), 0U) << wrong;
    Ran clean(p, p.attention);
    std::ptrdiff_t last = static_cast<std::ptrdiff_t>(clean.subject->image().size()) - 1;
    while (clean.copy[last] == clean.subject->image().data()[last]) --last;
    EXPECT_EQ(outcome(last - 3, std::byte{1}).rfind("two runs differ: byte", 0), 0U) << "a byte of grad_v";
  }
}

TEST(VerifyBackward, ARunMayExceedTheHintOnlyWhereThereIsAWorkspace) {
  const Problem p = parse_problem(
      "op=attention-backward backend=ref b=2 d_qk=4 d_v=4 packed=1 s_q=2 s_k=4 lengths_q=9,9 lengths_k=5,4");
  Plan plan;
  ASSERT_TRUE(Plan::make(p.attention, Pass::backward, Target(Backend::ref), &plan));
  EXPECT_FALSE(may_exceed_the_hint(p, plan));
  EXPECT_FALSE(may_be_unsupported(p));
}

}  // namespace
}  // namespace falchion::tools::storm
