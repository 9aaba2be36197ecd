// tests/cuda/decode_parts_test.cpp: split_keys in Hopper's decode kernel: the bits of a sequence are the same alone,
// among others in any order, in rows and in pages, whatever the workspace holds.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"
#include "support/cache.hpp"

namespace falchion::testing {
namespace {

struct InParts {
  Case row;
  std::int64_t split_keys;
  bool append = false;
};

/// Fewer parts than SMs and more, parts of one tile, one part a sequence, row tiles, and bands.
std::vector<InParts> shapes() {
  const std::vector<std::int32_t> ragged = {5000, 1, 0, 63, 64, 65, 128, 3333};
  std::vector<InParts> out;
  out.push_back({Case{"one sequence", 1, 1, 8192, 32, 8, 128, 128}.used_k({8192}), 1024});
  out.push_back({Case{"128 parts", 2, 1, 8192, 8, 1, 128, 128}.used_k({8192, 8000}), 64});
  out.push_back({Case{"ragged", 8, 1, 5000, 32, 8, 128, 128}.sinks().used_k(ragged), 1024});
  out.push_back({Case{"append", 8, 2, 5000, 8, 2, 64, 64}.causal().used_k(ragged), 128, true});
  out.push_back({Case{"one part", 8, 1, 5000, 32, 8, 128, 128}.used_k(ragged), 8192});
  out.push_back({Case{"window", 8, 3, 5000, 8, 2, 64, 40}.window(900, 0).used_k(ragged), 192});
  out.push_back({Case{"row tiles", 8, 15, 5000, 6, 3, 128, 128}.causal().used_k(ragged), 256});
  out.push_back({Case{"d 256", 8, 3, 5000, 6, 2, 256, 256}.causal().used_k(ragged), 512});
  out.push_back({Case{"d 256, 32 rows", 8, 9, 5000, 6, 2, 200, 256}.causal().used_k(ragged), 512});
  std::vector<std::int32_t> used(64);
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = static_cast<std::int32_t>(random_bits(3, i) % 4097);
  out.push_back({Case{"64 sequences", 64, 1, 4096, 8, 2, 128, 128}.used_k(used), 1024});
  return out;
}

/// Sequences of an instance, in the order of `which`.
Instance some_of(const Instance& all, const InParts& x, const std::vector<std::int64_t>& which) {
  Case row = x.row;
  row.b = static_cast<std::int64_t>(which.size());
  std::vector<std::int32_t> used;
  for (const std::int64_t b : which) used.push_back(all.used_k[static_cast<std::size_t>(b)]);
  Instance out = make_instance(std::move(row).used_k(used), all.problem.dtype);
  const auto take = [&which](HostTensor* to, const HostTensor& from) {
    to->for_each([&](auto b, auto i, auto h, auto d) {
      to->set(b, i, h, d, from.get(which[static_cast<std::size_t>(b)], i, h, d));
    });
  };
  take(&out.q, all.q);
  take(&out.k, all.k);
  take(&out.v, all.v);
  out.sinks = all.sinks;
  return out;
}

/// Runs it by kind decode twice, with different bytes in the workspace, and returns the bits of O and LSE of each
/// sequence.
void run_parts(const Instance& in_rows, const InParts& parts, const Pages& pages, std::vector<std::string>* bits) {
  Instance x = in_rows;
  x.problem.cache = true;
  x.problem.split_keys = parts.split_keys;
  if (pages.size > 0) x = in_pages(x, pages);
  if (parts.append) x = with_new_keys(x);
  const Reference reference(x);
  OnDevice device(kHopper, &x);
  ASSERT_OK(device.status());
  ASSERT_EQ(data_of(device.plan())->variant->kind, VariantKind::decode);
  ASSERT_OK(device.upload());
  std::string first;
  for (const std::uint64_t seed : {1, 2, 0}) {  // 0: what the run before has left
    if (seed > 0) { ASSERT_OK(device.spoil_workspace(seed)); }
    ASSERT_OK(device.run());
    ASSERT_OK(device.download());
    if (first.empty()) {
      EXPECT_TRUE(matches(x, reference));
      first = output_bytes(x);
    }
    EXPECT_EQ(output_bytes(x), first);
  }
  bits->assign(static_cast<std::size_t>(x.problem.b), "");
  const auto add = [bits](std::int64_t b, double number) {
    (*bits)[static_cast<std::size_t>(b)].append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  x.o.for_each([&](auto b, auto i, auto h, auto d) { add(b, x.o.get(b, i, h, d)); });
  x.lse.for_each([&](auto b, auto h, auto i, auto) { add(b, x.lse.get(b, h, i, 0)); });
}

class DecodeParts : public ::testing::TestWithParam<InParts> {};

TEST_P(DecodeParts, KeepTheBitsOfASequence) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  const InParts& parts = GetParam();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    const Instance all = make_instance(parts.row, dtype);
    std::vector<std::string> expected, bits;
    run_parts(all, parts, {0}, &expected);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(parts.row.b));
    for (const std::int64_t page : {1, 16, 256}) {
      run_parts(all, parts, {page, 3}, &bits);
      EXPECT_EQ(bits, expected) << "pages of " << page;
    }
    std::vector<std::int64_t> order(expected.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = 0; i < order.size(); ++i)
      std::swap(order[i], order[i + random_bits(5, i) % (order.size() - i)]);
    run_parts(some_of(all, parts, order), parts, {0}, &bits);
    ASSERT_EQ(bits.size(), order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t b = static_cast<std::size_t>(order[i]);
      EXPECT_TRUE(bits[i] == expected[b]) << "sequence " << b << " in another order";
      if (i >= 8) continue;
      std::vector<std::string> alone;
      run_parts(some_of(all, parts, {order[i]}), parts, {i % 2 == 0 ? 0 : 16, 3}, &alone);
      ASSERT_EQ(alone.size(), 1U);
      EXPECT_TRUE(alone[0] == expected[b]) << "sequence " << b << " alone";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeParts, ::testing::ValuesIn(shapes()), [](const auto& info) {
  std::string name = info.param.row.name;
  std::replace_if(
      name.begin(), name.end(), [](char x) { return x == ' ' || x == ','; }, '_');
  return name;
});

}  // namespace
}  // namespace falchion::testing
