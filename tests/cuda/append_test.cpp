// tests/cuda/append_test.cpp: new keys and rotary embedding under a CUDA graph: one capture serves all lengths, and
// each replay has the bits of a run of its own and leaves the same cache.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "device.hpp"
#include "support/cache.hpp"

namespace falchion::testing {
namespace {

/// The bytes of k and v.
std::string cache_bytes(const Instance& x) {
  std::string out;
  for (const HostTensor* tensor : {&x.k, &x.v})
    out.append(reinterpret_cast<const char*>(tensor->memory()), tensor->memory_bytes());
  return out;
}
void set_cache(const std::string& bytes, Instance* x) {
  std::memcpy(x->k.memory(), bytes.data(), x->k.memory_bytes());
  std::memcpy(x->v.memory(), bytes.data() + x->k.memory_bytes(), x->v.memory_bytes());
}

/// Three sequences, in rows or in pages, all of whose slots and new rows hold numbers.
Instance step(std::int64_t s_q, std::int64_t page_size) {
  const Case row = Case{"step", 3, s_q, 900, 8, 2, 128, 128}.causal().used_k({900, 900, 900});
  Instance x = make_instance(row, DType::bf16);
  x.problem.cache = true;
  if (page_size > 0) x = in_pages(x, {page_size, 3});
  x = with_new_keys(with_rotary(x, 64, false, 900, Layout::dense).given);
  for (HostTensor* tensor : {&x.k, &x.v})
    tensor->for_each([&](auto b, auto s, auto h, auto d) {
      if (std::isnan(tensor->get(b, s, h, d))) tensor->set(b, s, h, d, 0.25F * static_cast<float>(s % 5));
    });
  return x;
}

void replays_are_runs(const Path& path, Instance x) {
  const std::string cache = cache_bytes(x);
  Plan plan;
  const Status made = Plan::make(x.problem, Pass::forward, path.target(), &plan);
  ASSERT_OK(made);
  x.shares_tiles = true;
  x.poison_outputs();
  std::vector<cuda::Bytes> whole;
  for (const HostTensor* tensor : x.tensors()) whole.push_back({tensor->memory(), tensor->memory_bytes()});
  PlanOnDevice<Operands> device(made, plan, x.problem, x.operands(), whole);
  ASSERT_OK(device.status());
  with_graph_of(device, [&](const auto& launch) {
    for (std::uint64_t set = 0; set < 20; ++set) {
      SCOPED_TRACE(set);
      for (std::size_t i = 0; i < x.used_k.size(); ++i)
        x.used_k[i] = static_cast<std::int32_t>(random_bits(set, i) % (set % 4 == 0 ? 70 : 903));  // past 900 too
      set_cache(cache, &x);
      x.poison_outputs();
      const Reference reference(x);
      ASSERT_OK(device.upload());
      launch();
      ASSERT_OK(device.download());
      const std::string replayed = output_bytes(x), left = cache_bytes(x);
      EXPECT_TRUE(matches(x, reference));
      EXPECT_EQ(reference.judge().check_cache(x.k.view(), x.v.view()), "");
      set_cache(cache, &x);
      x.poison_outputs();
      ASSERT_OK(device.upload());
      ASSERT_OK(device.run(device.operands()));
      ASSERT_OK(device.download());
      EXPECT_TRUE(output_bytes(x) == replayed);
      EXPECT_TRUE(cache_bytes(x) == left);
    }
  });
}

TEST(AppendGraph, OneGraphForAllLengths) {
  for (const Backend backend : {Backend::sm80, Backend::best}) {
    const Path path{backend, ""};
    if (const std::string why = path.why_not(); !why.empty() && backend == Backend::sm80) GTEST_SKIP() << why;
    if (!path.why_not().empty()) continue;
    for (const std::int64_t s_q : {1, 5, 70})
      for (const std::int64_t page_size : {0, 16}) {
        SCOPED_TRACE(text(path.name(), ", s_q ", s_q, ", pages of ", page_size));
        replays_are_runs(path, step(s_q, page_size));
      }
  }
}

}  // namespace
}  // namespace falchion::testing
