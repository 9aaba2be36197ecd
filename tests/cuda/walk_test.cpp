// tests/cuda/walk_test.cpp: Hopper's CTAs that walk over many tiles, beside sm80, where each CTA has one: the tests
// against the reference are too small for a second tile. What is carried from tile to tile shows here.
#include <algorithm>
#include <cmath>
#include <vector>

#include "device.hpp"
#include "gpu/runtime.hpp"
#include "plan/plan_data.hpp"
#include "support/compare.hpp"

namespace falchion::testing {
namespace {

/// The largest difference over what both have written; NaN where only one has a number.
double difference(const HostTensor& a, const HostTensor& b) {
  double most = 0;
  a.for_each([&](auto i, auto j, auto k, auto l) {
    const double x = a.get(i, j, k, l), y = b.get(i, j, k, l);
    if (x == y || (std::isnan(x) && std::isnan(y))) return;
    most = std::isnan(x - y) ? x - y : std::isnan(most) ? most : std::max(most, std::abs(x - y));
  });
  return most;
}

class Walk : public ::testing::TestWithParam<Case> {};

TEST_P(Walk, IsAsOneTileEach) {
  const gpu::Device device = gpu::current_device();
  if (device.sm != 90) GTEST_SKIP() << (device.sm == 0 ? device.why_not : device.name + " is no Hopper");
  for (const DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    Instance x = make_instance(GetParam(), dtype);
    OnDevice hopper(Path{Backend::sm90, ""}, &x);
    ASSERT_OK(hopper.status());
    const GpuPlan& plan = hopper.plan().data()->gpu;
    EXPECT_GT(plan.walkers, 0);
    EXPECT_GT(hopper.plan().data()->items, plan.walkers) << "a second tile for somebody";
    ASSERT_OK(hopper.run());
    ASSERT_OK(hopper.download());
    const HostTensor o = x.o, lse = x.lse;
    OnDevice ampere(Path{Backend::sm80, ""}, &x);
    ASSERT_OK(ampere.status());
    ASSERT_OK(ampere.run());
    ASSERT_OK(ampere.download());
    EXPECT_LE(difference(o, x.o), 4 * unit_at(dtype, 1));  // |O| is below 4, mostly below 1
    EXPECT_LE(difference(lse, x.lse), 1e-3);
  }
}

/// 40 sequences of 1 to 2 x 64 rows; keys likewise.
std::vector<std::int32_t> lengths(int seed) {
  std::vector<std::int32_t> out;
  for (int i = 0; i < 40; ++i) out.push_back(1 + (i * 37 + seed * 53) % 128);
  return out;
}

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
