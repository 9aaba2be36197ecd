// tests/verify_storm_test.cpp: the storms of `falchion verify --random`: drawing, text, memory, shrinking, the
// watchdog, and that faults are found.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <set>
#include <thread>

#include "plan/text.hpp"
#include "tool.hpp"
#include "verify/draw.hpp"
#include "verify/storage.hpp"
#include "verify/storm.hpp"
#include "verify/subject.hpp"

namespace falchion::tools::storm {
namespace {

constexpr Op kOps[] = {Op::attention, Op::linear, Op::linear_backward};
const std::vector<DType> kTypes = {DType::f32, DType::f16, DType::bf16};

TEST(VerifyStorm, AProblemPrintsAsOneLineAndParsesBack) {
  for (const Op op : kOps) {
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const Problem problem = draw_problem(7, i, op, kTypes);
      const std::string line = to_text(problem);
      ASSERT_EQ(line.find('\n'), std::string::npos);
      const Problem again = parse_problem(line);
      ASSERT_EQ(to_text(again), line);
      ASSERT_TRUE(again == problem) << line;
    }
  }
}

TEST(VerifyStorm, AnUnknownKeyOrValueIsRefused) {
  for (const char* bad : {"op=attention s_q", "op=attention s_p=3", "op=attention s_q=many", "op=gemm",
                          "op=attention layout_q=sideways", "op=linear s_q=3", "op=attention align=left"})
    EXPECT_THROW(parse_problem(bad), UsageError) << bad;
}

/// What a storm promises to draw is drawn.
TEST(VerifyStorm, TheWholeSpaceIsDrawn) {
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Problem p = draw_problem(1, i, Op::attention, kTypes);
    const Attention& a = p.attention;
    const auto note = [&](bool is, const std::string& what) {
      if (is) seen.insert(what);
    };
    note(a.s_q == 0, "no queries"), note(a.s_k == 0, "no keys"), note(a.b == 0, "no batch");
    note(a.h_k > 0 && a.h_q / a.h_k == 16, "groups of 16"), note(a.h_k > 0 && a.h_q / a.h_k == 5, "groups of 5");
    note(a.d_qk == 256, "d 256"), note(a.d_qk != a.d_v, "d_v apart"), note(a.s_q > 8 * a.s_k, "many queries");
    note(a.s_k > 1000 * a.s_q, "many keys"), note(a.packed && a.used_k, "packed and used");
    note(a.band.align == Align::top_left && a.band.right == 0, "causal, top left"), note(a.alibi, "alibi");
    note(a.score.scale < 0, "negative scale"), note(a.score.softcap > 0, "softcap"), note(a.mask, "mask");
    note(a.dropout.p == 1, "everything dropped"), note(a.probabilities, "probabilities");
    note(a.bias && p.bias.one != 0, "bias of extent 1"), note(p.storage_of("bias").zero != 0, "bias of stride 0");
    note(a.bias && p.data.bias == "large", "bias of -1e9"), note(p.storage_of("k").flip != 0, "keys backwards");
    note(p.storage_of("q").start % 2 == 1, "unaligned q"), note(p.storage_of("v").wild, "a stride nobody may use");
    const auto empty = static_cast<std::size_t>(std::count(p.used_k.begin(), p.used_k.end(), 0));
    note(p.used_k.size() > 8 && 4 * empty > 2 * p.used_k.size(), "mostly empty sequences");
    note(!p.used_k.empty() && empty == p.used_k.size(), "all sequences empty");
  }
  EXPECT_EQ(seen.size(), 25U) << ::testing::PrintToString(seen);
}

TEST(VerifyStorm, StridesAreWhatTheTextSays) {
  const Strides x = strides_of(parse_storage("0213+pad3+gap5+start1+flip2"), {2, 3, 4, 8});
  EXPECT_EQ(x.stride, (std::array<std::int64_t, 4>{4 * (3 * 11 + 5), -11, 3 * 11 + 5, 1}));
  EXPECT_EQ(x.first, 2 * 11);
  EXPECT_EQ(strides_of(parse_storage("zero6"), {2, 3, 4, 8}).stride, (std::array<std::int64_t, 4>{8, 0, 0, 1}));
  EXPECT_EQ(strides_of({}, {2, 0, 4, 8}).count, 0);
}

/// Every byte that is not to be written is watched: the judge finds a change of any one of them.
TEST(VerifyStorm, AStrayWriteAnywhereIsFound) {
  const Problem problem = parse_problem(
      "op=attention backend=ref dtype=bf16 b=2 s_q=5 s_k=6 d_qk=4 d_v=4 lse=1 uses_q=1 used_q=3,5 "
      "layout_o=pad3+start1");
  Plan plan;
  ASSERT_TRUE(Plan::make(problem.attention, Pass::forward, Target(Backend::ref), &plan));
  const auto subject = make_subject(problem);
  const Image& image = subject->image();
  std::vector<std::uint64_t> aligned(image.size() / 8);
  auto* copy = reinterpret_cast<std::byte*>(aligned.data());
  std::size_t found = 0;
  for (std::size_t at = 0; at < image.size(); ++at) {
    std::memcpy(copy, image.data(), image.size());
    ASSERT_TRUE(subject->run(plan, copy, nullptr, 0));
    copy[at] ^= std::byte{0xFF};
    const std::string why = subject->judge(copy, false);
    found += !why.empty() || !image.difference(copy, image.data()).empty() ? 1 : 0;
  }
  const std::size_t lowest_bytes = 2UL * 8 * 4 + 8 * 4;  // a few low bits of an output may change within the limit
  EXPECT_GE(found, image.size() - lowest_bytes);
}

TEST(VerifyStorm, AnElementThatIsNotWrittenIsFound) {
  const auto subject = make_subject(parse_problem("op=attention backend=ref dtype=f32 s_q=2 s_k=2 d_qk=4 d_v=4"));
  std::vector<std::byte> copy(subject->image().data(), subject->image().data() + subject->image().size());
  EXPECT_EQ(subject->judge(copy.data(), false), "o[0, 0, 0, 0] was not written");
}

/// The plan of another problem, whose scale is 1 % larger, on the memory of this one.
TEST(VerifyStorm, AWrongResultIsFound) {
  const Problem right = parse_problem("op=linear backend=ref dtype=f32 s=9 d_qk=4 d_v=4 scale=1 decay=token data=5");
  const auto subject = make_subject(right);
  for (const float scale : {1.F, 1.01F}) {
    LinearAttention problem = right.linear;
    problem.scale = scale;
    Plan plan;
    ASSERT_TRUE(Plan::make(problem, Pass::forward, Target(Backend::ref), &plan));
    GuardedBuffer copy, workspace;
    copy.resize(subject->image().size()), workspace.resize(plan.workspace_bytes());
    std::memcpy(copy.data(), subject->image().data(), copy.size());
    ASSERT_TRUE(subject->run(plan, copy.data(), workspace.data(), workspace.size()));
    EXPECT_EQ(subject->judge(copy.data(), false).empty(), scale == 1) << scale;
  }
}

TEST(VerifyStorm, FailuresAreMadeSmall) {
  const Problem large = parse_problem(
      "op=attention dtype=f16 b=9 s_q=300 s_k=77 h_q=12 h_k=3 d_qk=64 d_v=96 right=0 align=top_left softcap=5 alibi=1 "
      "lse=1 uses_k=1 used_k=1,2,3,4,50,6,7,8,9 data=3 scores=rising layout_q=0213+pad3 layout_v=start1");
  int trials = 0;
  const Problem small = shrink(large, [&](const Problem& p) {
    ++trials;
    const auto longest = std::max_element(p.used_k.begin(), p.used_k.end());
    return p.attention.alibi && p.attention.s_q >= 7 && longest != p.used_k.end() && *longest >= 40;
  });
  EXPECT_EQ(to_text(small), "op=attention dtype=f16 s_q=7 d_qk=1 d_v=1 alibi=1 uses_k=1 used_k=40 data=3");
  EXPECT_LT(trials, 600);
}

/// A problem is all in its text: made of it, it has the same bits.
TEST(VerifyStorm, AProblemIsMadeTheSameTwice) {
  for (const Op op : kOps) {
    for (std::uint64_t i = 0; i < 60; ++i) {
      const Problem problem = draw_problem(3, i, op, kTypes);
      const auto one = make_subject(problem), two = make_subject(parse_problem(to_text(problem)));
      ASSERT_EQ(one->image().size(), two->image().size()) << to_text(problem);
      ASSERT_EQ(one->image().difference(one->image().data(), two->image().data()), "") << to_text(problem);
    }
  }
}

TEST(VerifyStorm, AStormInWhichNothingRanIsNoSuccess) {
  StormOptions options;
  options.problems = 3, options.workers = 1, options.backend = "sm90", options.ops = {Op::attention};
  options.types = {DType::f32};  // Hopper's own kernels have no row for it
  EXPECT_THROW(run_storm(options), UsageError);
}

TEST(VerifyStormDeathTest, ARunThatDoesNotEndIsTold) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto hang = [] {
    Watchdog watchdog(0.3);
    Watchdog::Slot* slot = watchdog.add_slot();
    slot->work_on("falchion verify --problem 'op=attention s_q=1'");
    slot->start();
    std::this_thread::sleep_for(std::chrono::seconds(30));
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(exit_failed),
              "did not end within 0.3 s\nFAIL falchion verify --problem 'op=attention s_q=1'");
}

TEST(VerifyStormDeathTest, ACrashIsTold) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto crash = [] {
    Watchdog watchdog(60);
    watchdog.add_slot()->work_on("falchion verify --problem 'op=linear s=1'");
    std::raise(SIGSEGV);
  };
  EXPECT_EXIT(crash(), ::testing::ExitedWithCode(exit_failed),
              "SIGSEGV\nFAIL falchion verify --problem 'op=linear s=1'");
}

}  // namespace
}  // namespace falchion::tools::storm
