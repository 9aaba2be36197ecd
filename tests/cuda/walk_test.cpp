// tests/cuda/walk_test.cpp: compares Hopper's CTAs, each of which may work on many tiles of rows, with sm80, where each
// CTA has one tile. The tests against the reference are too small for a second tile. This one finds errors in what is
// carried from tile to tile, CTAs that hang at tiles without keys, and tiles that are drawn twice or never.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "api/data_of.hpp"
#include "args/gpu_attention_args.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"
#include "support/compare.hpp"

namespace falchion::testing {
namespace {

/// Returns the largest difference over the elements that both have written, or NaN where only one has a number.
double difference(const HostTensor& a, const HostTensor& b) {
  double most = 0;
  a.for_each([&](auto i, auto j, auto k, auto l) {
    const double x = a.get(i, j, k, l), y = b.get(i, j, k, l);
    if (x == y || (std::isnan(x) && std::isnan(y))) return;
    most = std::isnan(x - y) ? x - y : std::isnan(most) ? most : std::max(most, std::abs(x - y));
  });
  return most;
}

/// Compares what both paths have written.
void expect_the_same(const Instance& x, const Instance& y) {
  // |O| is below 4, and mostly below 1. In f32 the error of either path is some units.
  const DType dtype = x.problem.dtype;
  EXPECT_LE(difference(x.o, y.o), (dtype == DType::f32 ? 16 : 4) * unit_at(dtype, 1));
  EXPECT_LE(difference(x.lse, y.lse), 1e-3);
}

/// Runs the case on both paths in all types and compares what they write. `see` checks what else must be true of the
/// plan.
template <class See>
void expect_as_sm80(const Case& row, const See& see) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    Instance x = make_instance(row, dtype), y = make_instance(row, dtype);
    OnDevice hopper(Path{Backend::sm90, ""}, &x), ampere(Path{Backend::sm80, ""}, &y);
    for (OnDevice* path : {&hopper, &ampere}) {
      ASSERT_OK(path->status());
      ASSERT_OK(path->run());
      ASSERT_OK(path->download());
    }
    see(*data_of(hopper.plan()));
    expect_the_same(x, y);
  }
}

class Walk : public ::testing::TestWithParam<Case> {};

TEST_P(Walk, IsAsOneTileEach) {
  expect_as_sm80(GetParam(), [](const PlanData& plan) {
    EXPECT_GT(plan.attention().walkers, 0);
    EXPECT_GT(plan.items, plan.attention().walkers) << "a second tile for somebody";
  });
}

/// In these cases a CTA meets tiles without keys after one with keys. Such launches used to hang. The cure was that a
/// consumer gives its record back before it looks for the next tile.
class Ragged : public ::testing::TestWithParam<Case> {};

TEST_P(Ragged, EndsAndIsAsOneTileEach) {
  expect_as_sm80(GetParam(), [](const PlanData&) {});
}

/// In these cases the CTAs draw their tiles from a counter, and there are more tiles than CTAs.
class Counted : public ::testing::TestWithParam<Case> {};

/// The workspace may hold anything before a run. Which CTA gets which tile is different each time, and must not change
/// a bit of the result.
TEST_P(Counted, FromAnyWorkspace) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  Instance x = make_instance(GetParam(), DType::bf16), y = make_instance(GetParam(), DType::bf16);
  OnDevice hopper(Path{Backend::sm90, ""}, &x), ampere(Path{Backend::sm80, ""}, &y);
  ASSERT_OK(hopper.status());
  ASSERT_OK(ampere.status());
  const PlanData& plan = *data_of(hopper.plan());
  EXPECT_TRUE(plan.attention().counted);
  EXPECT_GT(plan.items, plan.attention().walkers);
  EXPECT_EQ(plan.workspace, gpu::kTileCounterBytes);
  ASSERT_OK(ampere.run());
  ASSERT_OK(ampere.download());
  std::string first;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    SCOPED_TRACE(seed);
    ASSERT_OK(hopper.upload());
    ASSERT_OK(hopper.spoil_workspace(seed));
    ASSERT_OK(hopper.run());
    ASSERT_OK(hopper.download());
    expect_the_same(x, y);
    if (first.empty()) first = output_bytes(x);
    EXPECT_EQ(output_bytes(x), first);
  }
}

/// A graph runs with the same launch number each time and finds in the workspace what its last run left there. Between
/// two of its runs the workspace is left alone, and then another launch uses it.
TEST_P(Counted, AGraphRunsAgain) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  Instance x = make_instance(GetParam(), DType::bf16);
  OnDevice hopper(Path{Backend::sm90, ""}, &x);
  ASSERT_OK(hopper.status());
  ASSERT_OK(hopper.run());
  ASSERT_OK(hopper.download());
  const std::string expected = output_bytes(x);
  const OwnStream stream;
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const Status status = hopper.run(stream);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_TRUE(status) << status.why;
  cudaGraphExec_t replay = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  ASSERT_OK(hopper.spoil_workspace(5));
  for (int run = 0; run < 5; ++run) {
    SCOPED_TRACE(run);
    ASSERT_OK(hopper.upload());
    if (run == 3) {
      ASSERT_OK(hopper.run(stream));
    } else {
      ASSERT_CUDA(cudaGraphLaunch(replay, stream));
    }
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_OK(hopper.download());
    EXPECT_EQ(output_bytes(x), expected);
  }
  ASSERT_CUDA(cudaGraphExecDestroy(replay));
  ASSERT_CUDA(cudaGraphDestroy(graph));
}

/// Returns the lengths of 40 sequences, each from 1 to 128 rows, which is two tiles.
std::vector<std::int32_t> lengths(int seed) {
  std::vector<std::int32_t> out;
  for (int i = 0; i < 40; ++i) out.push_back(1 + (i * 37 + seed * 53) % 128);
  return out;
}

/// Returns `count` lengths, of which one in `every` is `full` and the others are 0.
std::vector<std::int32_t> mostly_empty(int count, int every, std::int32_t full) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count), 0);
  for (std::size_t i = 0; i < out.size(); i += static_cast<std::size_t>(every)) out[i] = full;
  return out;
}
std::vector<std::int32_t> all_of(int count, std::int32_t length) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(count), length);
}
/// Returns the lengths of 40 sequences, each from 1 to 300.
std::vector<std::int32_t> long_lengths(int seed) {
  std::vector<std::int32_t> out;
  for (int i = 0; i < 40; ++i) out.push_back(1 + (i * 389 + seed * 211) % 300);
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    Tiles, Ragged,
    ::testing::Values(
        Case{"three_quarters_empty", 64, 64, 128, 8, 2, 128, 128}.causal().used_k(mostly_empty(64, 4, 128)),
        Case{"one_full", 64, 64, 128, 8, 2, 128, 128}.causal().used_k(mostly_empty(64, 64, 128)),
        Case{"all_empty", 64, 64, 128, 8, 2, 128, 128}.causal().used_k(mostly_empty(64, 1, 0)),
        Case{"packed_long_and_short", 40, 300, 300, 8, 2, 128, 128}.causal().packed(long_lengths(1), long_lengths(2)),
        Case{"packed_no_keys", 64, 130, 130, 8, 2, 128, 128}.causal().packed(all_of(64, 130), mostly_empty(64, 4, 130)),
        Case{"packed_few_keys", 4, 1000, 50, 8, 2, 128, 128}.causal().packed(all_of(4, 1000), all_of(4, 50)),
        Case{"one_key", 3, 1025, 1, 12, 3, 128, 64}.window(32, 35),
        Case{"top_left", 2, 777, 64, 21, 3, 32, 128}.window(33, 16, Align::top_left),
        Case{"odd_head_dim", 2, 1025, 257, 21, 3, 80, 80}.window(236, 42),
        Case{"d_64", 64, 300, 60, 8, 2, 64, 64}.causal().packed(all_of(64, 300), mostly_empty(64, 4, 60)),
        Case{"d_256", 16, 300, 50, 8, 4, 256, 256}.causal().packed(all_of(16, 300), all_of(16, 50)),
        Case{"d_192_128", 16, 300, 50, 8, 4, 192, 128}.causal().packed(all_of(16, 300), all_of(16, 50))),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Tiles, Walk,
    ::testing::Values(Case{"full", 4, 600, 600, 16, 16, 64, 64}, Case{"causal", 4, 600, 600, 16, 16, 64, 64}.causal(),
                      Case{"causal_even", 4, 1000, 1000, 16, 16, 64, 64}.causal(),
                      Case{"causal_more_keys", 4, 600, 900, 16, 4, 64, 64}.causal(),
                      Case{"causal_more_queries", 4, 900, 600, 16, 16, 64, 64}.causal(),
                      Case{"window", 4, 600, 600, 16, 16, 64, 64}.window(100, 30),
                      Case{"used_k", 4, 600, 600, 16, 16, 64, 64}.used_k({600, 0, 65, 333}),
                      Case{"used_q_causal", 4, 600, 600, 16, 16, 64, 64}.causal().used_q({600, 0, 65, 333}),
                      Case{"packed", 40, 128, 128, 8, 8, 64, 64}.packed(lengths(1), lengths(2)),
                      Case{"packed_causal", 40, 128, 128, 16, 16, 64, 64}.packed(lengths(1), lengths(2)).causal(),
                      Case{"d_128", 2, 700, 700, 16, 16, 128, 128}.causal(),
                      Case{"d_192_128", 2, 700, 700, 16, 16, 192, 128}.causal(),
                      Case{"d_192", 2, 700, 700, 16, 16, 192, 192}.causal(),
                      Case{"d_256", 2, 700, 700, 16, 16, 256, 256}.causal(),
                      Case{"d_96", 2, 700, 700, 16, 16, 96, 96}.causal(),
                      Case{"softcap_d_256", 2, 700, 700, 16, 16, 256, 256}.causal().softcap(5),
                      Case{"softcap_d_192", 2, 700, 700, 16, 16, 192, 160}.softcap(5),
                      Case{"alibi_d_128", 2, 700, 700, 16, 16, 128, 128}.causal().alibi(),
                      Case{"alibi_d_96", 2, 700, 700, 16, 16, 96, 96}.causal().alibi()),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Tiles, Counted,
    ::testing::Values(
        Case{"causal", 1, 3000, 3000, 16, 16, 128, 128}.causal(), Case{"gqa", 2, 1000, 1000, 32, 4, 128, 128}.causal(),
        Case{"heads_of_one_section_and_more", 3, 2000, 2000, 11, 11, 64, 64}.causal(),
        Case{"top_left", 2, 1500, 700, 16, 16, 64, 64}.causal(Align::top_left),
        Case{"window", 2, 1500, 1500, 16, 8, 128, 128}.window(300, 30),
        Case{"used_k", 4, 600, 600, 16, 16, 64, 64}.used_k({600, 0, 65, 333}),
        Case{"first_k", 4, 600, 600, 16, 16, 64, 64}.first_k({0, 600, 65, 333}),
        Case{"packed", 40, 300, 300, 8, 8, 128, 128}.packed(long_lengths(1), long_lengths(2)),
        Case{"packed_causal", 40, 300, 300, 16, 4, 64, 64}.packed(long_lengths(1), long_lengths(2)).causal(),
        Case{"packed_no_keys", 64, 130, 130, 8, 2, 128, 128}.causal().packed(all_of(64, 130), mostly_empty(64, 4, 130)),
        Case{"d_192_128", 2, 1000, 1000, 16, 16, 192, 128}.causal(),
        Case{"d_256", 2, 1000, 1000, 16, 16, 256, 256}.causal(),
        Case{"softcap", 2, 1000, 1000, 16, 16, 128, 128}.causal().softcap(5)),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace falchion::testing
