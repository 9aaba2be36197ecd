// tests/cuda/decode_bytes_test.cpp: Hopper's decode kernel over 8-bit caches: every size of it, with each kind of
// scales, in rows and in pages, with new keys, and from any workspace.
#include <cstdint>
#include <string>
#include <vector>

#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"
#include "support/cache.hpp"
#include "support/cache_bytes.hpp"

namespace falchion::testing {
namespace {

/// 8, 16 and 32 rows of each head dim, a sequence on many CTAs, and sequences of all lengths.
std::vector<Case> shapes() {
  std::vector<Case> out;
  out.push_back(Case{"d 64", 1, 1, 9000, 8, 2, 64, 64}.used_k({8999}));
  out.push_back(Case{"d 128", 3, 1, 3000, 32, 8, 128, 128}.used_k({3000, 1, 1717}));
  out.push_back(Case{"d 256", 1, 1, 5000, 2, 1, 256, 256}.used_k({5000}));
  out.push_back(Case{"other head dims", 2, 2, 1500, 4, 2, 112, 48}.causal().used_k({1500, 700}));
  out.push_back(Case{"16 rows, d 64", 2, 4, 2000, 8, 2, 64, 64}.causal().used_k({2000, 33}));
  out.push_back(Case{"16 rows, d 128", 2, 4, 2000, 8, 2, 128, 128}.window(900, 0).used_k({2000, 1033}));
  out.push_back(Case{"16 rows, d 256", 2, 6, 1200, 4, 2, 192, 256}.causal().used_k({1200, 640}));
  out.push_back(Case{"32 rows, d 64", 1, 8, 3000, 8, 2, 64, 64}.causal().used_k({2999}));
  out.push_back(Case{"32 rows, d 128", 2, 8, 2000, 8, 2, 128, 128}.causal().used_k({2000, 77}));
  out.push_back(Case{"32 rows, d 256", 2, 15, 1100, 4, 2, 256, 192}.causal().used_k({1100, 1000}));
  out.push_back(Case{"ragged", 6, 2, 400, 8, 4, 128, 128}.causal().used_k({400, 0, 63, 64, 65, 317}));
  std::vector<std::int32_t> used(500);
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = static_cast<std::int32_t>(i * 37 % 200);
  out.push_back(Case{"many sequences", 500, 1, 200, 2, 1, 64, 64}.used_k(used));
  return out;
}

/// Runs it on Hopper's kernel and compares all it writes with the definition. Each run has the same bits.
void expect_right(Instance x) {
  const Reference reference(x);
  OnDevice device(kHopper, &x);
  ASSERT_OK(device.status());
  EXPECT_EQ(data_of(device.plan())->variant->kind, VariantKind::decode_bytes);
  std::string first;
  for (const std::uint64_t seed : {1, 2}) {
    SCOPED_TRACE(seed);
    ASSERT_OK(device.upload());
    ASSERT_OK(device.spoil_workspace(seed));
    ASSERT_OK(device.run());
    ASSERT_OK(device.download());
    if (first.empty()) {
      EXPECT_TRUE(matches(x, reference));
      if (x.problem.append) { EXPECT_EQ(reference.judge().check_cache(x.k.view(), x.v.view()), ""); }
      first = output_bytes(x);
    }
    EXPECT_EQ(output_bytes(x), first);
    if (x.problem.append) break;  // the new keys are in the cache now
  }
}

class DecodeBytes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(DecodeBytes, HaveTheNumbersOfTheDefinition) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  std::size_t n = GetParam();
  for (const DType q : {DType::bf16, DType::f16}) {
    for (const DType dtype : {DType::e4m3, DType::i8}) {
      for (const bool pages : {false, true}) {
        const Scales scales = kAllScales[n++ % std::size(kAllScales)];
        SCOPED_TRACE(std::string(name(q)) + ", " + name(dtype) + ", " + name(scales) + (pages ? ", pages" : ""));
        const Instance x = make_instance(shapes()[GetParam()], q);
        expect_right(in_bytes(pages ? in_pages(x, {16, 3}) : x, dtype, scales));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeBytes, ::testing::Range<std::size_t>(0, shapes().size()));

/// Each kind of scales beside each type, with new keys that turn, and with holes in the table.
TEST(DecodeBytesOf, NewKeysUnderEachKindOfScales) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  for (const DType dtype : {DType::e4m3, DType::i8}) {
    for (const Scales scales : kAllScales) {
      for (const std::int64_t page : {0, 1, 48}) {
        SCOPED_TRACE(std::string(name(dtype)) + ", " + name(scales) + ", pages of " + std::to_string(page));
        const Case row = Case{"step", 4, 3, 900, 8, 2, 128, 128}.causal().used_k({900, 64, 3, 1});
        Instance x = make_instance(row, DType::bf16);
        x.problem.cache = true;
        if (page > 0) x = in_pages(x, {page, 5});
        expect_right(in_bytes(with_new_keys(with_rotary(x, 64, page == 1, 900, Layout::dense).given), dtype, scales));
      }
    }
  }
}

/// Scales of V that lie 2^80 apart: P times the scale is rounded to f16 and must neither overflow nor vanish.
TEST(DecodeBytesOf, ScalesThatLieFarApart) {
  if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  for (const DType dtype : {DType::e4m3, DType::i8}) {
    for (const float least : {0x1p-90F, 0x1p-40F, 0x1p40F}) {
      SCOPED_TRACE(std::string(name(dtype)) + ", " + std::to_string(least));
      Instance x = in_bytes(make_instance(Case{"far", 2, 1, 700, 4, 2, 128, 128}.used_k({700, 300}), DType::bf16),
                            dtype, Scales::key);
      x.v_scale.for_each([&](auto b, auto j, auto h, auto d) {
        const float old = x.v_scale.get(b, j, h, d);
        x.v_scale.set(b, j, h, d, b == 0 ? old * least : old * (j % 3 == 0 ? 1 : least));
      });
      expect_right(std::move(x));
    }
  }
}

}  // namespace
}  // namespace falchion::testing
