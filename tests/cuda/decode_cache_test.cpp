// tests/cuda/decode_cache_test.cpp: Hopper's decode kernel over a KV cache in pages, with new keys, rotary embedding
// and sinks, on many CTAs; and graphs whose lengths and pages another kernel changes between two replays.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "api/data_of.hpp"
#include "device.hpp"
#include "kernels.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"
#include "support/cache.hpp"

namespace falchion::testing {
namespace {

/// A problem with lengths, and how its keys lie and come.
struct Cached {
  Case row;
  Pages pages;
  bool append = false;
  std::int64_t rotary_dim = 0;
  bool rotary_pairs = false;
};

Instance make(const Cached& cached, DType dtype) {
  Instance x = make_instance(cached.row, dtype);
  x.problem.cache = true;
  if (cached.pages.size > 0) x = in_pages(x, cached.pages);
  if (cached.rotary_dim > 0)
    x = with_rotary(x, cached.rotary_dim, cached.rotary_pairs, cached.row.s_k, Layout::dense).given;
  return cached.append ? with_new_keys(x) : x;
}

/// One sequence on all SMs and many on one, pages that end inside of a tile and pages of several tiles, tables with
/// starts, new keys in two tiles and in two pages, and lengths around all of these.
std::vector<Cached> shapes() {
  const std::vector<std::int32_t> ragged = {5000, 1, 0, 63, 64, 65, 128, 3333};
  std::vector<Cached> out;
  out.push_back({Case{"pages of 16", 1, 1, 20000, 32, 8, 128, 128}.used_k({19990}), {16, 3}});
  out.push_back({Case{"pages of 1", 2, 1, 3000, 8, 2, 64, 64}.used_k({3000, 1777}), {1, 3}});
  out.push_back({Case{"pages of 3, d 256", 2, 2, 2000, 4, 2, 256, 256}.causal().used_k({2000, 777}), {3, 3}});
  out.push_back(
      {Case{"pages of 256 with starts", 3, 1, 4096, 32, 8, 128, 128}.used_k({4096, 255, 257}), {256, 3, true}});
  out.push_back({Case{"ragged", 8, 1, 5000, 32, 8, 128, 128}.used_k(ragged), {16, 3}});
  out.push_back({Case{"sinks", 8, 1, 5000, 32, 8, 128, 128}.sinks().used_k(ragged), {16, 3}});
  out.push_back({Case{"window and sinks", 8, 4, 5000, 8, 2, 64, 64}.window(900, 0).sinks().used_k(ragged), {16, 3}});
  out.push_back({Case{"append", 8, 1, 5000, 32, 8, 128, 128}.used_k(ragged), {16, 3}, true});
  out.push_back({Case{"append, pages of 1", 8, 4, 5000, 8, 2, 64, 64}.causal().used_k(ragged), {1, 3}, true});
  out.push_back({Case{"append in rows", 8, 1, 5000, 32, 8, 128, 128}.used_k(ragged), {0}, true});
  out.push_back({Case{"rotary alone", 8, 2, 5000, 8, 2, 128, 128}.causal().used_k(ragged), {16, 3}, false, 64});
  out.push_back(
      {Case{"append, rotary, sinks", 8, 1, 5000, 32, 8, 128, 128}.sinks().used_k(ragged), {16, 3}, true, 128});
  out.push_back({Case{"four new keys in pairs", 8, 4, 5000, 8, 2, 64, 64}.causal().sinks().used_k(ragged),
                 {3, 3},
                 true,
                 32,
                 true});
  out.push_back(
      {Case{"append, rotary, d 256", 3, 2, 1500, 4, 2, 256, 256}.causal().used_k({1500, 65, 2}), {64, 3}, true, 256});
  return out;
}

class DecodeCache : public ::testing::TestWithParam<Cached> {};

/// The kind is decode, whatever the plan could have taken instead, and all runs have the same bits.
TEST_P(DecodeCache, IsTheDefinition) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    Instance x = make(GetParam(), dtype);
    const Reference reference(x);
    OnDevice device(kHopper, &x);
    ASSERT_OK(device.status());
    ASSERT_EQ(data_of(device.plan())->variant->kind, VariantKind::decode);
    ASSERT_OK(device.upload());
    std::string first;
    for (const std::uint64_t seed : {1, 2, 3}) {
      ASSERT_OK(device.spoil_workspace(seed));
      ASSERT_OK(device.run());  // new keys are written again, over themselves
      ASSERT_OK(device.download());
      if (first.empty()) {
        EXPECT_TRUE(matches(x, reference));
        if (GetParam().append) { EXPECT_EQ(reference.judge().check_cache(x.k.view(), x.v.view()), ""); }
        first = output_bytes(x);
      }
      EXPECT_EQ(output_bytes(x), first);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeCache, ::testing::ValuesIn(shapes()), [](const auto& info) {
  std::string name = info.param.row.name;
  std::replace_if(
      name.begin(), name.end(), [](char x) { return x == ' ' || x == ','; }, '_');
  return name;
});

/// Lists of numbers on the device, of which the next one goes where a run reads it.
class Lists {
 public:
  Lists(const std::vector<std::int32_t>& numbers, std::size_t sets, const void* to)
      : sets_(static_cast<int>(sets)),
        size_(static_cast<int>(numbers.size() / sets)),
        to_(const_cast<int*>(static_cast<const int*>(to))) {
    EXPECT_TRUE(cuda::Memory::make(numbers.size() * sizeof(int), &lists_));
    EXPECT_TRUE(cuda::Memory::make(sizeof(int), &turn_));
    EXPECT_EQ(cudaMemcpy(lists_.data(), numbers.data(), lists_.size(), cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaMemset(turn_.data(), 0, sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  int next(cudaStream_t stream) const {
    return launch_next_of(reinterpret_cast<int*>(turn_.data()), reinterpret_cast<const int*>(lists_.data()), sets_,
                          size_, to_, stream);
  }

 private:
  int sets_, size_;
  int* to_;
  cuda::Memory lists_, turn_;
};

constexpr std::size_t kSets = 23;

/// Lengths of every set. A tenth is past the end or below 0, a fifth is short.
std::vector<std::int32_t> lengths_of_sets(const Attention& a) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < kSets * static_cast<std::size_t>(a.b); ++i) {
    const std::uint64_t bits = random_bits(11, i), most = static_cast<std::uint64_t>(a.s_k);
    const std::uint64_t n = bits % 10 == 0 ? most + 5 : bits % 5 == 1 ? bits / 10 % 70 : bits / 10 % (most + 1);
    out.push_back(bits % 10 == 5 ? -3 : static_cast<std::int32_t>(n));
  }
  return out;
}

/// Tables of every set, each an order of all pages, of which some are not there.
std::vector<std::int32_t> tables_of_sets(const Instance& x) {
  const auto entries = static_cast<std::size_t>(x.page_table.shape()[0] * x.page_table.shape()[1]);
  std::vector<std::int32_t> out, order(entries);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t set = 0; set < kSets; ++set) {
    for (std::size_t i = entries; i > 1; --i) std::swap(order[i - 1], order[random_bits(set + 100, i) % i]);
    for (std::size_t i = 0; i < entries; ++i) {
      const std::uint64_t bits = random_bits(set + 200, i) % 50;
      out.push_back(bits == 0 ? -1 : bits == 1 ? INT32_MAX : order[i]);
    }
  }
  return out;
}

/// All slots and all new rows hold numbers, since each set has other slots.
void fill_slots(Instance* x) {
  for (HostTensor* tensor : {&x->k, &x->v, &x->k_new, &x->v_new})
    tensor->for_each([&](auto b, auto s, auto h, auto d) {
      const float value = tensor->get(b, s, h, d);
      if (std::isnan(value)) tensor->set(b, s, h, d, 0.25F * static_cast<float>((b + s + d) % 7) - 0.75F);
    });
}

/// One graph: the next lengths, the next table, a run. A million replays, a part at a time without a wait. After each
/// part the result has the bits that a run of its own had with the same set: the last one of the part.
void replays(const Cached& cached) {
  Instance x = make(cached, DType::bf16);
  fill_slots(&x);
  OnDevice device(kHopper, &x);
  ASSERT_OK(device.status());
  ASSERT_EQ(data_of(device.plan())->variant->kind, VariantKind::decode);
  ASSERT_OK(device.upload());
  const Lists lengths(lengths_of_sets(x.problem), kSets, device.operands().used_k);
  const Lists tables(tables_of_sets(x), kSets, device.operands().page_table.data);
  const OwnStream stream;
  std::vector<std::string> wanted(kSets);
  for (int turn = 0; turn < 2; ++turn)  // from the second turn on a set finds the new keys of the same sets before it
    for (std::string& bytes : wanted) {
      ASSERT_EQ(lengths.next(stream), 0);
      ASSERT_EQ(tables.next(stream), 0);
      ASSERT_OK(device.run(stream));
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      ASSERT_OK(device.download());
      bytes = output_bytes(x);
    }
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const int of_lengths = lengths.next(stream), of_tables = tables.next(stream);
  const Status captured = device.run(stream);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_EQ(of_lengths + of_tables, 0);
  ASSERT_OK(captured);
  cudaGraphExec_t replay = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  constexpr std::int64_t kPart = 20000, kReplays = 1000000;
  for (std::int64_t done = kPart; done <= kReplays; done += kPart) {
    for (std::int64_t i = 0; i < kPart; ++i) ASSERT_CUDA(cudaGraphLaunch(replay, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_OK(device.download());
    ASSERT_TRUE(output_bytes(x) == wanted[static_cast<std::size_t>(done - 1) % kSets]) << "after " << done;
  }
  ASSERT_CUDA(cudaGraphExecDestroy(replay));
}

TEST(DecodeCacheGraph, ManyReplaysWithOtherLengthsAndPagesSlow) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  const std::vector<std::int32_t> whole(5, 2000);
  replays({Case{"pages", 5, 1, 2000, 8, 2, 64, 64}.used_k(whole), {16, 3}});
  replays({Case{"append", 5, 2, 2000, 8, 2, 128, 128}.causal().sinks().used_k(whole), {16, 3}, true, 64});
}

}  // namespace
}  // namespace falchion::testing
