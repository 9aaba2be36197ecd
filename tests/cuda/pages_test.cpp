// tests/cuda/pages_test.cpp: tests Hopper's kernel for chunks of a prompt over the pages of a cache, kind pages, where
// the contract's tests are too small for it or cannot say which kernel they want.
#include <cstdint>
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

class CachePagesOnHopper : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_hopper(); !why.empty()) GTEST_SKIP() << why;
  }
};

/// Runs it twice on the kind, and returns its bits.
std::string bits_of(Instance* x, VariantKind kind) {
  OnDevice device(kHopper, x);
  std::string first;
  const auto run = [&] {
    ASSERT_OK(device.status());
    ASSERT_EQ(data_of(device.plan())->variant->kind, kind);
    for (const std::uint64_t seed : {1, 2}) {
      ASSERT_OK(device.upload());
      ASSERT_OK(device.spoil_workspace(seed));
      ASSERT_OK(device.run());
      ASSERT_OK(device.download());
      if (first.empty()) first = output_bytes(*x);
      ASSERT_TRUE(output_bytes(*x) == first) << "two runs have other bits";
    }
  };
  run();
  return first;
}

const std::vector<std::int32_t> kUsed = {0, 1, 63, 64, 65, 128, 700};

Case rows(std::int64_t s_q, std::int64_t d) { return Case{"chunk", 7, s_q, 700, 4, 2, d, d}.used_k(kUsed); }

/// The page size, and where pages lie, changes no bits.
void same_in_pages(const Case& row) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    const Instance in_rows = make_instance(row, dtype, 5);
    const Reference reference(in_rows);
    std::string first;
    for (const Pages& pages :
         {Pages{16, 1}, Pages{16, 2, true}, Pages{16, 3, false, Layout::heads_first}, Pages{8, 5}, Pages{24, 6},
          Pages{32, 7}, Pages{64, 8}, Pages{128, 9}, Pages{256, 10}, Pages{1024, 11}}) {
      SCOPED_TRACE(text("pages of ", pages.size, ", seed ", pages.seed));
      Instance x = in_pages(in_rows, pages);
      const std::string bits = bits_of(&x, VariantKind::pages);
      EXPECT_TRUE(matches(x, reference));
      if (first.empty()) first = bits;
      ASSERT_TRUE(bits == first) << "other bits";
    }
    if (in_rows.problem.d_qk != 128 && in_rows.problem.d_qk != 256) continue;  // kind plain has another tile there
    Instance plain = in_rows;
    EXPECT_TRUE(bits_of(&plain, VariantKind::plain) == first) << "other bits than in rows";
  }
}

TEST_F(CachePagesOnHopper, OfEverySizeHoldTheSameKeys) {
  for (const std::int64_t d : {64, 128, 256}) {
    SCOPED_TRACE(d);
    same_in_pages(rows(150, d).causal());
  }
  same_in_pages(rows(300, 128));
}

TEST_F(CachePagesOnHopper, UnderEachFeature) {
  same_in_pages(rows(150, 128).window(200, 0));
  same_in_pages(rows(150, 64).window(100, 30));
  same_in_pages(rows(150, 128).causal(Align::at, 20).sinks());
  same_in_pages(rows(150, 96).causal().used_q({0, 150, 7, 1, 150, 33, 149}).no_lse());
}

TEST_F(CachePagesOnHopper, ThatAreNotThereAreMasked) {
  for (const std::int64_t d : {64, 128, 256}) {
    for (const std::int64_t size : {8, 16, 64, 128, 256}) {
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(text("d ", d, ", pages of ", size, causal ? ", causal" : ""));
        Case row = rows(150, d).mask();
        if (causal) row = std::move(row).causal();
        Instance masked = make_instance(row, DType::bf16, 5), without = masked;
        without.problem.mask = false;
        without.mask = {};
        Instance paged = in_pages(without, {size, 3});
        take_pages_away(&paged, &masked);
        bits_of(&paged, VariantKind::pages);
        EXPECT_TRUE(matches(paged, Reference(masked)));
      }
    }
  }
}

/// More tiles of rows than CTAs, so that they are drawn from the counter, some of them without keys.
TEST_F(CachePagesOnHopper, ManyTiles) {
  std::vector<std::int32_t> used(40);
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = static_cast<std::int32_t>(i * i * 37 % 400);
  for (const std::int64_t d : {64, 128}) {
    Instance in_rows = make_instance(Case{"many", 40, 70, 400, 8, 8, d, d}.causal().used_k(used), DType::bf16, 5);
    Instance x = in_pages(in_rows, {16, 3});
    bits_of(&x, VariantKind::pages);
    EXPECT_TRUE(matches(x, Reference(in_rows)));
  }
}

/// A long cache: each ring goes round many times, and the diagonal lies far to the right.
TEST_F(CachePagesOnHopper, ManyKeys) {
  for (const std::int64_t d : {64, 128}) {
    Instance in_rows = make_instance(Case{"long", 1, 130, 20000, 2, 1, d, d}.causal().used_k({19999}), DType::bf16, 5);
    Instance x = in_pages(in_rows, {16, 3});
    bits_of(&x, VariantKind::pages);
    EXPECT_TRUE(matches(x, Reference(in_rows)));
  }
}

/// Queries are packed, the keys of a cache are not: in pages and in rows.
TEST_F(CachePagesOnHopper, UnderPackedQueries) {
  for (const std::int64_t d : {64, 128}) {
    for (const std::int64_t size : {0, 16, 128}) {
      for (const std::int64_t hint : {150, 40, 0}) {
        SCOPED_TRACE(text("d ", d, ", pages of ", size, ", s_q ", hint));
        Instance in_rows = make_instance(rows(150, d).causal().used_q({0, 1, 40, 64, 150, 129, 150}), DType::bf16, 5);
        in_rows.problem.cache = true;
        Instance x = with_packed_queries(size == 0 ? in_rows : in_pages(in_rows, {size, 3}));
        const Reference reference(x);
        x.problem.s_q = hint;
        bits_of(&x, size == 0 ? VariantKind::plain : VariantKind::pages);
        EXPECT_TRUE(matches(x, reference));
      }
    }
  }
}

/// Packed rows whose keys are cut into parts, with sinks of each sequence and rows of no sequence; and more rows than
/// the plan has counted on, which are not cut.
TEST_F(CachePagesOnHopper, UnderPackedQueriesInParts) {
  for (const std::int64_t d : {64, 128}) {
    for (const std::int64_t hint : {64, 20}) {
      SCOPED_TRACE(text("d ", d, ", s_q ", hint));
      Instance in_rows = make_instance(
          Case{"parts", 3, 64, 6000, 8, 2, d, d}.causal().sinks_by_batch().used_q({64, 7, 50}).used_k({6000, 3001, 40}),
          DType::bf16, 5);
      Instance x = with_packed_queries(in_pages(in_rows, {16, 3}));
      const Reference reference(x);
      x.problem.s_q = hint;
      {
        OnDevice device(kHopper, &x);
        ASSERT_OK(device.status());
        EXPECT_GT(data_of(device.plan())->attention().splits, 1);
      }
      bits_of(&x, VariantKind::pages);
      EXPECT_TRUE(matches(x, reference));
    }
  }
}

}  // namespace
}  // namespace falchion::testing
