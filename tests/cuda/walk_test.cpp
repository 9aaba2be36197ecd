// tests/cuda/walk_test.cpp: compares Hopper's CTAs, each of which may work on many tiles of rows, with sm80, where each
// CTA has one tile. The tests against the reference are too small for a second tile. This one finds errors in what is
// carried from tile to tile, and CTAs that hang at tiles without keys.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/runtime.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
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

/// Why this suite cannot run on this machine, or "" where it can.
std::string why_not_here() {
  const cuda::Device device = cuda::current_device();
  if (device.sm == 90) return "";
  return device.sm == 0 ? device.why_not : device.name + " is no Hopper";
}

/// Runs the case on both paths in all types and compares what they write. `see` checks what else must be true of the
/// plan.
template <class See>
void expect_as_sm80(const Case& row, const See& see) {
  if (const std::string why = why_not_here(); !why.empty()) GTEST_SKIP() << why;
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(name(dtype));
    if (dtype == DType::f32 && (row.score_.softcap > 0 || row.alibi_)) continue;  // sm90 has no such variant in f32
    Instance x = make_instance(row, dtype), y = make_instance(row, dtype);
    OnDevice hopper(Path{Backend::sm90, ""}, &x), ampere(Path{Backend::sm80, ""}, &y);
    for (OnDevice* path : {&hopper, &ampere}) {
      ASSERT_OK(path->status());
      ASSERT_OK(path->run());
      ASSERT_OK(path->download());
    }
    see(*hopper.plan().data());
    // |O| is below 4, and mostly below 1. In f32 the error of either path is some units.
    EXPECT_LE(difference(x.o, y.o), (dtype == DType::f32 ? 16 : 4) * unit_at(dtype, 1));
    EXPECT_LE(difference(x.lse, y.lse), 1e-3);
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

}  // namespace
}  // namespace falchion::testing
