// tests/cuda/decode_test.cpp: tests Hopper's decode kernel where the cases of tests/cases.def are too small for it: a
// sequence on many CTAs, many sequences on one, lengths that change under a CUDA graph, a workspace that holds
// anything, and two streams that share the SMs.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"

namespace falchion::testing {
namespace {

/// Problems whose lists of tiles differ: one head on all SMs, with totals; heads side by side; more heads than SMs; a
/// number of heads that divides nothing; more sequences than threads; two row blocks; other head dims.
std::vector<Case> shapes() {
  std::vector<Case> out;
  out.push_back(Case{"one head", 1, 1, 20000, 8, 1, 128, 128});
  out.push_back(Case{"one head, d 64", 1, 1, 40000, 3, 1, 64, 64});
  out.push_back(Case{"one head, d 256", 1, 1, 9000, 2, 1, 256, 256});
  out.push_back(Case{"eight heads", 1, 1, 8192, 32, 8, 128, 128});
  out.push_back(Case{"eight heads, 63 keys more", 1, 1, 8255, 32, 8, 128, 128});
  out.push_back(Case{"seven heads", 3, 1, 3000, 7, 7, 64, 64});
  out.push_back(Case{"many heads", 1, 1, 700, 150, 150, 64, 64});
  out.push_back(Case{"four queries", 2, 4, 5000, 8, 2, 128, 128}.causal());
  out.push_back(Case{"five queries in a window", 2, 5, 5000, 6, 2, 64, 64}.window(900, 0));
  out.push_back(Case{"five queries of four heads", 3, 5, 4000, 8, 2, 64, 64}.causal());
  out.push_back(Case{"thirty rows, d 256", 1, 15, 3000, 4, 2, 192, 256}.causal());
  out.push_back(Case{"twelve rows, d 256", 2, 6, 3000, 4, 2, 256, 256}.causal());
  out.push_back(Case{"seven rows", 5, 1, 2100, 14, 2, 80, 40});
  out.push_back(Case{"ragged", 6, 2, 4000, 8, 4, 128, 128}.causal().used_k({4000, 0, 63, 64, 65, 1717}));
  out.push_back(Case{"padded", 3, 1, 3000, 8, 2, 128, 128}.first_k({0, 100, 2999}).used_k({3000, 1200, 3000}));
  std::vector<std::int32_t> q(40, 1), k(40);
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<std::int32_t>(i * i % 700);
  q[3] = 0;
  q[4] = 30;  // more than the hint says
  out.push_back(Case{"packed", 40, 1, 700, 8, 2, 64, 64}.packed(q, k).causal());
  std::vector<std::int32_t> used(700);
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = static_cast<std::int32_t>(i * 37 % 200);
  out.push_back(Case{"many sequences", 700, 1, 200, 2, 1, 64, 64}.used_k(used));
  return out;
}

class Decode : public ::testing::TestWithParam<Case> {};

/// The workspace may hold anything before a run. Each run has the same bits.
TEST_P(Decode, FromAnyWorkspace) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Instance x = make_instance(GetParam(), dtype);
    const Reference reference(x);
    OnDevice device(kHopper, &x);
    ASSERT_OK(device.status());
    EXPECT_EQ(data_of(device.plan())->variant->kind, VariantKind::decode);
    std::string first;
    for (const std::uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(seed);
      ASSERT_OK(device.upload());
      ASSERT_OK(device.spoil_workspace(seed));
      ASSERT_OK(device.run());
      ASSERT_OK(device.download());
      if (first.empty()) {
        EXPECT_TRUE(matches(x, reference));
        first = output_bytes(x);
      }
      EXPECT_EQ(output_bytes(x), first);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Decode, ::testing::ValuesIn(shapes()), [](const auto& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char x) { return x == ' ' || x == ','; }, '_');
  return name;
});

/// A plan of the problem, captured once, and launched as often as one likes.
class Captured {
 public:
  explicit Captured(const OnDevice& device) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    const Status status = device.run(stream_);
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_TRUE(status) << status.why;
    EXPECT_EQ(cudaGraphInstantiate(&replay_, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  ~Captured() { cudaGraphExecDestroy(replay_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  cudaError_t launch() const { return cudaGraphLaunch(replay_, stream_); }
  cudaError_t wait() const { return cudaStreamSynchronize(stream_); }

 private:
  OwnStream stream_;
  cudaGraphExec_t replay_ = nullptr;
};

/// One graph for 50 sets of lengths: each replay has the bits of a launch of its own. Every third replay finds other
/// bytes in the workspace, the others what the replay before has left there, under the same launch number.
TEST(DecodeGraph, FiftySetsOfLengths) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  for (const Case& row : {Case{"b 3", 3, 1, 6000, 8, 2, 128, 128}.used_k({6000, 6000, 6000}),
                          Case{"b 40", 40, 2, 900, 8, 2, 64, 64}.causal().used_k(std::vector<std::int32_t>(40, 900))}) {
    Instance x = make_instance(row, DType::bf16);
    OnDevice device(kHopper, &x);
    ASSERT_OK(device.status());
    const Captured captured(device);
    const auto most = static_cast<std::uint64_t>(x.problem.s_k);
    for (std::uint64_t set = 0; set < 50; ++set) {
      SCOPED_TRACE(set);
      for (std::size_t i = 0; i < x.used_k.size(); ++i) {
        const std::uint64_t bits = random_bits(set, i);
        x.used_k[i] = static_cast<std::int32_t>(bits % 5 == 0 ? bits / 5 % 70 : bits / 5 % (most + 1));
      }
      ASSERT_OK(device.upload());
      if (set % 3 == 0) ASSERT_OK(device.spoil_workspace(set));
      ASSERT_CUDA(captured.launch());
      ASSERT_CUDA(captured.wait());
      ASSERT_OK(device.download());
      const std::string replayed = output_bytes(x);
      if (set < 5) { EXPECT_TRUE(matches(x, Reference(x))); }
      x.poison_outputs();
      ASSERT_OK(device.upload());
      ASSERT_OK(device.run());
      ASSERT_OK(device.download());
      EXPECT_EQ(output_bytes(x), replayed);
    }
  }
}

/// Two plans on two streams take each other's SMs. Part of a grid then waits until the other one ends, and nobody may
/// wait for what has not begun.
TEST(DecodeGraph, TwoStreamsAtOnce) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  Instance x = make_instance(Case{"x", 1, 1, 9000, 8, 1, 128, 128}, DType::bf16);
  Instance y = make_instance(Case{"y", 4, 1, 3000, 32, 8, 128, 128}.used_k({3000, 1, 700, 2222}), DType::bf16);
  OnDevice first(kHopper, &x), second(kHopper, &y);
  ASSERT_OK(first.status());
  ASSERT_OK(second.status());
  const Captured one(first), two(second);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_CUDA(one.launch());
    ASSERT_CUDA(two.launch());
  }
  ASSERT_CUDA(one.wait());
  ASSERT_CUDA(two.wait());
  ASSERT_OK(first.download());
  ASSERT_OK(second.download());
  EXPECT_TRUE(matches(x, Reference(x)));
  EXPECT_TRUE(matches(y, Reference(y)));
}

/// Many replays one behind another, each of which may begin before the one before it has ended, and all with the same
/// launch number.
TEST(DecodeGraph, ManyReplaysSlow) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  for (const Case& row :
       {Case{"one head", 1, 1, 4000, 8, 1, 128, 128}, Case{"eight heads", 1, 1, 1024, 32, 8, 128, 128},
        Case{"ragged", 5, 1, 2000, 8, 2, 64, 64}.used_k({2000, 0, 63, 64, 1717})}) {
    SCOPED_TRACE(row.name);
    Instance x = make_instance(row, DType::bf16);
    OnDevice device(kHopper, &x);
    ASSERT_OK(device.status());
    const Captured captured(device);
    for (int i = 0; i < 200000; ++i) {
      ASSERT_CUDA(captured.launch());
      if (i % 1000 == 0) { ASSERT_CUDA(captured.wait()); }
    }
    ASSERT_CUDA(captured.wait());
    ASSERT_OK(device.download());
    EXPECT_TRUE(matches(x, Reference(x)));
  }
}

}  // namespace
}  // namespace falchion::testing
