// tests/verify_storm_test.cpp: tests the storms of `falchion verify --random`: drawing, text, memory, shrinking, and
// that faults are found. tests/verify_watchdog_test.cpp tests what ends a storm from outside.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "plan/text.hpp"
#include "tool.hpp"
#include "verify/draw.hpp"
#include "verify/paths.hpp"
#include "verify/storage.hpp"
#include "verify/storm.hpp"
#include "verify/subject.hpp"

namespace falchion::tools::storm {
namespace {

constexpr Op kOps[] = {Op::attention, Op::linear, Op::linear_backward, Op::attention_backward,
                       Op::gemm,      Op::norm,   Op::quantise,        Op::norm_backward};
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
  for (const char* bad :
       {"op=attention s_q", "op=attention s_p=3", "op=attention s_q=many", "op=conv", "op=gemm k=12 k2=5",
        "op=norm kind=batch", "op=norm rows=12 s=5", "op=norm h=0", "op=norm plant=nan_y", "op=norm weight_ones=8",
        "op=gemm n2=0", "op=gemm m=-1", "op=gemm activation=tanh", "op=gemm layout_q=0213", "op=gemm s_q=4",
        "op=attention layout_q=sideways", "op=linear s_q=3", "op=attention align=left",
        // These lists do not have one number for each sequence, or the problem has no such list.
        "op=attention b=2 packed=1 lengths_q=1,2", "op=attention b=2 packed=1 lengths_q=1,2 lengths_k=1",
        "op=attention lengths_q=1 lengths_k=1", "op=attention b=2 uses_k=1 used_k=4", "op=attention used_k=4",
        "op=linear b=2 packed=1 lengths=1", "op=linear lengths=1",
        // These numbers are too small or too large.
        "op=attention s_q=-1", "op=attention b=-1", "op=linear s=-1", "op=attention h_q=4294967297",
        "op=attention uses_k=1 used_k=4294967297", "op=linear packed=1 lengths=-1",
        "op=linear packed=1 lengths=4294967297", "op=linear packed=1 lengths=1 spare=-1",
        "op=linear packed=1 b=0 spare=1", "op=linear b=2 packed=1 lengths=2147483647,2147483647",
        "op=attention threads=-1", "op=linear segments=-1", "op=attention bias=1 bias_ones=16",
        "op=attention layout_q=pad-1", "op=attention layout_q=flip16",
        "op=attention s_q=2147483647 h_q=2147483647 h_k=1",
        // These words are unknown.
        "op=attention scores=tall", "op=linear scores=rising", "op=attention bias=1 bias_data=tiny",
        "op=attention mask=1 mask_data=half", "op=linear decay=head decay_data=slow", "op=attention plant=n",
        "op=linear plant=n", "op=linear plant=nan_o", "op=linear plant=neg_q", "op=attention layout_decay=pad1",
        "op=linear layout_lse=pad1", "op=linear layout_x=pad1",
        // These give a key twice.
        "op=attention s_q=1 s_q=2", "op=attention op=linear"})
    EXPECT_THROW(parse_problem(bad), UsageError) << bad;
}

/// Checks that a storm draws all that it promises to draw.
TEST(VerifyStorm, TheWholeSpaceIsDrawn) {
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Problem p = draw_problem(1, i, Op::attention, kTypes);
    const Attention& a = p.attention;
    const auto note = [&](bool is, const std::string& what) {
      if (is) seen.insert(what);
    };
    note(a.s_q == 0, "no queries");
    note(a.s_k == 0, "no keys");
    note(a.b == 0, "no batch");
    note(a.h_k > 0 && a.h_q / a.h_k == 16, "groups of 16");
    note(a.h_k > 0 && a.h_q / a.h_k == 5, "groups of 5");
    note(a.d_qk == 256, "d 256");
    note(a.d_qk != a.d_v, "d_v apart");
    note(a.s_q > 8 * a.s_k, "many queries");
    note(a.s_k > 1000 * a.s_q, "many keys");
    note(a.packed && a.used_k, "packed and used");
    note(a.band.align == Align::top_left && a.band.right == 0, "causal, top left");
    note(a.band.align == Align::at && std::abs(a.band.offset) < 1000, "a diagonal at any key");
    note(a.band.align == Align::at && std::abs(a.band.offset) == 1 << 30, "a diagonal far away");
    note(p.origin != Rng::Origin{}, "dropout of a slice");
    note(a.alibi, "alibi");
    note(a.score.scale < 0, "negative scale");
    note(a.score.softcap > 0, "softcap");
    note(a.mask, "mask");
    note(a.dropout == 1, "everything dropped");
    note(a.probabilities, "probabilities");
    note(a.bias && p.bias.one != 0, "bias of extent 1");
    note(p.storage_of("bias").zero != 0, "bias of stride 0");
    note(a.bias && p.data.bias == "large", "bias of -1e9");
    note(p.storage_of("k").flip != 0, "keys backwards");
    note(p.storage_of("q").start % 2 == 1, "unaligned q");
    note(p.storage_of("v").wild, "a stride nobody may use");
    const auto empty = static_cast<std::size_t>(std::count(p.used_k.begin(), p.used_k.end(), 0));
    note(p.used_k.size() > 8 && 4 * empty > 2 * p.used_k.size(), "mostly empty sequences");
    note(!p.used_k.empty() && empty == p.used_k.size(), "all sequences empty");
  }
  EXPECT_EQ(seen.size(), 28U) << ::testing::PrintToString(seen);
}

TEST(VerifyStorm, StridesAreWhatTheTextSays) {
  const Strides x = strides_of(parse_storage("0213+pad3+gap5+start1+flip2"), {2, 3, 4, 8});
  EXPECT_EQ(x.stride, (std::array<std::int64_t, 4>{4 * (3 * 11 + 5), -11, 3 * 11 + 5, 1}));
  EXPECT_EQ(x.first, 2 * 11);
  EXPECT_EQ(strides_of(parse_storage("zero6"), {2, 3, 4, 8}).stride, (std::array<std::int64_t, 4>{8, 0, 0, 1}));
  EXPECT_EQ(strides_of({}, {2, 0, 4, 8}).count, 0);
}

/// Marks the bytes that a run writes, except for the highest byte of each element, because a change of a low byte may
/// be within the limit. An element of O has two bytes and one of the LSE four. Neighbours of O lie one behind the
/// other.
std::vector<bool> low_bytes_of_outputs(const Subject& subject, const Plan& plan, std::size_t elements_of_o) {
  const Image& image = subject.image();
  std::vector<std::uint64_t> aligned(image.size() / 8);
  auto* copy = reinterpret_cast<std::byte*>(aligned.data());
  std::memcpy(copy, image.data(), image.size());
  EXPECT_TRUE(subject.run(plan, copy, nullptr, 0));
  std::vector<bool> low(image.size());
  std::size_t seen = 0;
  for (std::size_t at = 0; at < image.size();) {
    const std::size_t size = seen < elements_of_o ? 2 : 4;
    at = (at + size - 1) / size * size;
    const bool written = std::memcmp(copy + at, image.data() + at, size) != 0;
    if (written) std::fill_n(low.begin() + static_cast<std::ptrdiff_t>(at), size - 1, true);
    seen += written ? 1 : 0;
    at += size;
  }
  return low;
}

/// Every byte that a run must not write is watched, and so is the high byte of every output. The judge finds a change
/// of any one of them.
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
  const std::vector<bool> low = low_bytes_of_outputs(*subject, plan, 8 * 4);
  std::size_t missed = 0;
  for (std::size_t at = 0; at < image.size(); ++at) {
    std::memcpy(copy, image.data(), image.size());
    ASSERT_TRUE(subject->run(plan, copy, nullptr, 0));
    copy[at] ^= std::byte{0xFF};
    const std::string why = subject->judge(copy, false);
    const bool found = !why.empty() || !image.difference(copy, image.data()).empty();
    EXPECT_TRUE(found || low[at]) << "byte " << at << " of " << image.size();
    missed += found ? 0 : 1;
  }
  EXPECT_EQ(std::count(low.begin(), low.end(), true), 8 * 4 * 1 + 8 * 3);
  EXPECT_LT(missed, std::size_t{8} * 4 + 8 * 3);  // Most of the low bytes are judged too.
}

TEST(VerifyStorm, AnElementThatIsNotWrittenIsFound) {
  const auto subject = make_subject(parse_problem("op=attention backend=ref dtype=f32 s_q=2 s_k=2 d_qk=4 d_v=4"));
  std::vector<std::byte> copy(subject->image().data(), subject->image().data() + subject->image().size());
  EXPECT_EQ(subject->judge(copy.data(), false), "o[0, 0, 0, 0] was not written");
}

/// The plan is that of another problem, whose scale is 1 % larger. It runs on the memory of this problem.
TEST(VerifyStorm, AWrongResultIsFound) {
  const Problem right = parse_problem("op=linear backend=ref dtype=f32 s=9 d_qk=4 d_v=4 scale=1 decay=token data=5");
  const auto subject = make_subject(right);
  for (const float scale : {1.F, 1.01F}) {
    LinearAttention problem = right.linear;
    problem.scale = scale;
    Plan plan;
    ASSERT_TRUE(Plan::make(problem, Pass::forward, Target(Backend::ref), &plan));
    GuardedBuffer copy, workspace;
    copy.resize(subject->image().size());
    workspace.resize(plan.workspace_bytes());
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

/// A problem is completely described by its text. Made again from that text, it has the same bits.
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

StormOptions options_of(std::int64_t problems) {
  StormOptions options;
  options.problems = problems;
  options.workers = 1;
  options.as_json = true;
  options.ops = {Op::attention};
  options.types = {DType::f32};
  return options;
}
/// Returns the groups of a storm's report by back end.
std::map<std::string, nlohmann::json> groups_of(const StormOptions& options) {
  ::testing::internal::CaptureStdout();
  std::map<std::string, nlohmann::json> out;
  try {
    run_storm(options);
  } catch (const UsageError&) {  // Nothing ran.
  }
  const auto report = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  for (const auto& group : report["groups"]) out[group["backend"]] = group;
  return out;
}

TEST(VerifyStorm, AGroupOfWhichAllWasRefusedIsNotOk) {
  StormOptions options = options_of(60);
  options.attempt = [](const Problem& p, Bench*, DeviceArena*, Watchdog::Slot*) {
    return p.backend == Backend::ref ? Outcome{Outcome::Kind::refused, "no"} : Outcome{};
  };
  auto groups = groups_of(options);
  EXPECT_EQ(groups.at("ref")["result"], "refused");
  EXPECT_EQ(groups.at("best")["result"], "ok");
}

/// A result that `best` computed on the CPU does not count for a GPU.
TEST(VerifyStorm, ResultsAreGroupedByWhereTheyRan) {
  StormOptions options = options_of(60);
  options.attempt = [](const Problem& p, Bench*, DeviceArena*, Watchdog::Slot*) {
    return Outcome{Outcome::Kind::passed, "", "", p.data.seed % 2 == 0 ? "sm90" : "cpu avx2"};
  };
  const auto groups = groups_of(options);
  EXPECT_EQ(groups.count("best -> sm90"), 1U);
  EXPECT_EQ(groups.count("best -> cpu avx2"), 1U);
  EXPECT_EQ(groups.count("ref"), 1U);
}

TEST(VerifyStorm, MakingSmallEndsWithTheStorm) {
  StormOptions options = options_of(1000);
  options.seconds = 0.2;
  options.grace = 0.2;
  int trials = 0;
  options.attempt = [&trials](const Problem&, Bench*, DeviceArena*, Watchdog::Slot*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    // Any other problem passes, so each way to make it smaller is tried.
    return trials++ == 0 ? Outcome{Outcome::Kind::failed, "wrong"} : Outcome{};
  };
  const auto start = std::chrono::steady_clock::now();
  groups_of(options);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

/// Too little memory for a problem is the storm's own failure and not a crash of the library.
TEST(VerifyStorm, AnExceptionEndsTheStormInWords) {
  StormOptions options = options_of(9);
  options.attempt = [](const Problem&, Bench*, DeviceArena*, Watchdog::Slot*) -> Outcome { throw std::bad_alloc(); };
  ::testing::internal::CaptureStdout();
  try {
    run_storm(options);
    ADD_FAILURE() << "no exception";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what.rfind("the storm cannot go on: std::bad_alloc; it was at: falchion verify", 0), 0U)
        << error.what;
  }
  ::testing::internal::GetCapturedStdout();
}

/// Types that no kernel of the path is for are not drawn. On the CPU all other types are promised.
TEST(VerifyStorm, APathWithoutAKernelIsNotDrawn) {
  for (const Op op : kOps) {
    for (const DType dtype : kTypes) {
      for (const Backend backend : {Backend::sm80, Backend::sm90})
        EXPECT_EQ(storm_paths(name(backend), "", op, dtype).size(), has_variant({backend, ""}, op, dtype) ? 1U : 0U);
      for (const Path& path : storm_paths("best", "", op, dtype))
        EXPECT_TRUE(has_variant(path, op, dtype)) << path.name();
    }
  }
  EXPECT_FALSE(has_variant({Backend::sm90, ""}, Op::attention, DType::f32));
}

TEST(VerifyStorm, NoPathOfTheCpuMayRefuseWhatTheContractPromises) {
  EXPECT_FALSE(may_be_unsupported(parse_problem("op=attention backend=ref d_qk=256")));
  EXPECT_FALSE(may_be_unsupported(parse_problem("op=attention backend=best d_qk=256")));
  EXPECT_TRUE(may_be_unsupported(parse_problem("op=attention backend=ref d_qk=257")));
  EXPECT_TRUE(may_be_unsupported(parse_problem("op=attention backend=sm90")));
  for (const Path& path : storm_paths("cpu", "", Op::linear, DType::f16))
    EXPECT_FALSE(may_be_unsupported(parse_problem("op=linear dtype=f16 backend=cpu level=" + path.level)));
}

TEST(VerifyStorm, ARunMayExceedTheHintOnlyWhereTheContractSaysSo) {
  const std::pair<const char*, bool> table[] = {
      {"op=attention backend=ref b=2 d_qk=4 d_v=4 packed=1 s_q=2 s_k=4 lengths_q=9,9 lengths_k=5,3", false},
      {"op=attention backend=ref b=2 d_qk=4 d_v=4 packed=1 s_q=2 s_k=4 lengths_q=2,2 lengths_k=4,4 spare=9", false},
      {"op=attention backend=ref b=2 d_qk=4 d_v=4 packed=1 s_q=2 s_k=4 lengths_q=2,2 lengths_k=5,4", true},
      {"op=linear backend=ref b=2 d_qk=4 d_v=4 packed=1 s=4 lengths=7,1 spare=9", false},
      {"op=linear backend=ref b=2 d_qk=4 d_v=4 packed=1 s=4 lengths=7,2", true},
  };
  for (const auto& [line, may] : table) {
    const Problem p = parse_problem(line);
    Plan plan;
    const Target target(Backend::ref);
    ASSERT_TRUE(p.op == Op::attention ? Plan::make(p.attention, Pass::forward, target, &plan)
                                      : Plan::make(p.linear, Pass::forward, target, &plan));
    EXPECT_EQ(may_exceed_the_hint(p, plan), may) << line;
  }
}

/// A refusal is right only where it is allowed, if it comes both times, and if the memory is as it was.
TEST(VerifyStorm, ARefusedRunLeavesTheMemoryAlone) {
  const Problem p = parse_problem("op=linear backend=ref b=2 d_qk=4 d_v=4 packed=1 s=4 lengths=7,2");
  Plan plan;
  ASSERT_TRUE(Plan::make(p.linear, Pass::forward, Target(Backend::ref), &plan));
  const auto subject = make_subject(p);
  const std::byte* image = subject->image().data();
  std::vector<std::byte> one(image, image + subject->image().size()), two = one;
  const Status too_long{Code::invalid, "too long"}, lost{Code::device, "lost"};
  using Kind = Outcome::Kind;
  EXPECT_EQ(conclude(p, plan, {{too_long, too_long}, one.data(), two.data()}, subject.get()).kind, Kind::refused);
  EXPECT_EQ(conclude(p, plan, {{lost, lost}, one.data(), two.data()}, subject.get()).kind, Kind::failed);
  EXPECT_EQ(conclude(p, plan, {{too_long, {}}, one.data(), two.data()}, subject.get()).why,
            "two runs differ: run: invalid: too long; run again: ok");
  two[3] ^= std::byte{1};
  EXPECT_EQ(conclude(p, plan, {{too_long, too_long}, one.data(), two.data()}, subject.get()).kind, Kind::failed);
}

TEST(VerifyStorm, AStormInWhichNothingRanIsNoSuccess) {
  StormOptions options;
  options.problems = 3;
  options.workers = 1;
  options.backend = "sm90";
  options.ops = {Op::attention};
  options.types = {DType::f32};  // Hopper's own kernels have no variant for this type.
  EXPECT_THROW(run_storm(options), UsageError);
}

}  // namespace
}  // namespace falchion::tools::storm
