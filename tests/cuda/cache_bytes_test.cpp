// tests/cuda/cache_bytes_test.cpp: 8-bit KV caches on kind bytes of sm80, which takes every shape.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
#include "support/cache.hpp"
#include "support/cache_bytes.hpp"

namespace falchion::testing {
namespace {

const Path kSm80{Backend::sm80, ""};
constexpr DType kBytes[] = {DType::e4m3, DType::i8};
constexpr std::int64_t kCapacity = 140;
const std::vector<std::int32_t> kUsed = {0, 1, 63, 64, 65, 140};

class CacheBytesOnSm80 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = kSm80.why_not(); !why.empty()) GTEST_SKIP() << why;
  }
};

Case rows(std::int64_t s_q, std::int64_t d = 64) { return Case{"bytes", 6, s_q, kCapacity, 4, 2, d, d}.used_k(kUsed); }

/// Runs it on kind bytes and compares it with the definition, the cache too.
void expect_right(Instance* x) {
  OnDevice device(kSm80, x);
  ASSERT_OK(device.status());
  ASSERT_EQ(data_of(device.plan())->variant->kind, VariantKind::bytes);
  const Reference reference(*x);
  ASSERT_OK(device.upload());
  ASSERT_OK(device.spoil_workspace(1));
  ASSERT_OK(device.run());
  ASSERT_OK(device.download());
  EXPECT_TRUE(matches(*x, reference));
  if (x->problem.append) { EXPECT_EQ(reference.judge().check_cache(x->k.view(), x->v.view()), ""); }
}

/// For each type of q and of the cache: f(a cache in rows or in pages, the type of the cache, what shares a scale).
template <class F>
void in_each_form(const Case& row, const std::vector<Pages>& all, const F& f) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Pages& pages : all) {
      const Instance made = make_instance(row, dtype, 5), cache = pages.size > 0 ? in_pages(made, pages) : made;
      for (const DType bytes : kBytes) {
        for (const Scales scales : kAllScales) {
          SCOPED_TRACE(text(name(dtype), ", ", name(bytes), ", ", name(scales), ", pages of ", pages.size));
          f(cache, bytes, scales);
        }
      }
    }
  }
}

void right_in_each_form(const Case& row, const std::vector<Pages>& all = {{0}, {16, 3}}) {
  in_each_form(row, all, [](const Instance& cache, DType bytes, Scales scales) {
    Instance x = in_bytes(cache, bytes, scales);
    expect_right(&x);
  });
}

TEST_F(CacheBytesOnSm80, RowsAndPagesOfEverySize) {
  for (const std::int64_t s_q : {1, 5, 70})
    right_in_each_form(rows(s_q).causal(),
                       {{0}, {1, 1}, {3, 2}, {16, 3, true}, {64, 5}, {16, 6, false, Layout::heads_first}});
}

TEST_F(CacheBytesOnSm80, UnderEachFeature) {
  right_in_each_form(rows(3).window(40, 0));
  right_in_each_form(rows(90).window(40, 9));
  right_in_each_form(rows(2).softcap(5.F).sinks());
  right_in_each_form(rows(66).scale(-0.2F).no_lse());
  right_in_each_form(rows(40).first_k({0, 1, 3, 60, 2, 111}).causal());
  right_in_each_form(rows(40).used_q({0, 40, 7, 1, 40, 33}).causal(Align::top_left));
  for (const std::int64_t d : {20, 37, 96, 128, 250, 256}) right_in_each_form(rows(33, d).causal());
  right_in_each_form(Case{"wide v", 6, 3, kCapacity, 4, 2, 64, 128}.used_k(kUsed).causal());
  right_in_each_form(Case{"gaps", 6, 3, kCapacity, 4, 2, 64, 64}.used_k(kUsed).layout(Layout::gaps));
}

TEST_F(CacheBytesOnSm80, ManyKeysAreCutIntoParts) {
  right_in_each_form(Case{"long", 1, 1, 4000, 2, 1, 64, 64}.used_k({3900}));
  in_each_form(Case{"parts", 2, 5, 2000, 8, 2, 128, 128}.used_k({1999, 3}).causal(), {{0}, {16, 3}},
               [](Instance cache, DType bytes, Scales scales) {
                 cache.problem.split_keys = 128;
                 Instance x = in_bytes(cache, bytes, scales);
                 expect_right(&x);
               });
}

TEST_F(CacheBytesOnSm80, PackedQueries) {
  in_each_form(rows(70).causal().used_q({3, 0, 70, 1, 12, 33}), {{0}, {16, 3}},
               [](const Instance& cache, DType bytes, Scales scales) {
                 Instance x = in_bytes(with_packed_queries(cache), bytes, scales);
                 expect_right(&x);
               });
}

TEST_F(CacheBytesOnSm80, PagesThatAreNotThere) {
  in_each_form(rows(5), {{16, 3}}, [](const Instance& cache, DType bytes, Scales scales) {
    Instance x = in_bytes(cache, bytes, scales);
    *entry(&x, 5, 4) = -1;
    *entry(&x, 5, 1) = INT32_MAX;
    for (std::int64_t n = 0; n < x.page_table.shape()[1]; ++n) *entry(&x, 4, n) = -1;
    expect_right(&x);
  });
}

/// Where l sums P but O sums P v, the sizes of v may differ by more than f16 holds.
TEST_F(CacheBytesOnSm80, ScalesOfAnySize) {
  in_each_form(rows(5), {{0}, {16, 3}}, [](const Instance& cache, DType bytes, Scales scales) {
    if (scales != Scales::key) return;
    for (const int away : {-14, 13}) {  // about what O may have in f16
      SCOPED_TRACE(away);
      Instance x = in_bytes(cache, bytes, scales);
      x.v_scale.for_each([&](auto b, auto j, auto h, auto) {
        const float far = std::ldexp(1.F, away - (j % 3 == 0 ? 0 : j % 3 == 1 ? 6 : 20));
        x.v_scale.set(b, j, h, 0, x.v_scale.get(b, j, h, 0) * far);
        x.k_scale.set(b, j, h, 0, x.k_scale.get(b, j, h, 0) * (j % 2 == 0 ? 1.F : 0x1p-10F));
      });
      expect_right(&x);
    }
  });
}

/// The instance, whose cache has all keys, with the last keys new. Their slots hold other numbers.
Instance with_new_bytes(const Instance& cache, const Instance& in_bytes_of_cache) {
  const Instance fresh = with_new_keys(cache);
  Instance x = in_bytes_of_cache;
  x.problem.append = true;
  x.k_new = fresh.k_new;
  x.v_new = fresh.v_new;
  const auto spoil = [](const HostTensor& before, const HostTensor& after, HostTensor* bytes) {
    bytes->for_each([&](auto b, auto j, auto h, auto d) {
      if (std::isnan(after.get(b, j, h, d)) && !std::isnan(before.get(b, j, h, d)))
        bytes->set(b, j, h, d, bytes->view().dtype == DType::i8 ? 77 : std::numeric_limits<float>::quiet_NaN());
    });
  };
  spoil(cache.k, fresh.k, &x.k);
  spoil(cache.v, fresh.v, &x.v);
  return x;
}

TEST_F(CacheBytesOnSm80, NewKeysAreRoundedAndSeen) {
  const std::vector<Pages> all = {{0}, {1, 1}, {16, 3, true}, {16, 6, false, Layout::heads_first}};
  const auto check = [](const Instance& cache, DType bytes, Scales scales) {
    Instance x = with_new_bytes(cache, in_bytes(cache, bytes, scales));
    expect_right(&x);
  };
  for (const std::int64_t s_q : {1, 5, 70}) in_each_form(rows(s_q).causal(), all, check);
  for (const std::int64_t d : {37, 128, 256}) in_each_form(rows(3, d).causal(), {{0}, {16, 3}}, check);
}

TEST_F(CacheBytesOnSm80, NewKeysTurnBeforeTheyAreRounded) {
  for (const bool pairs : {false, true}) {
    in_each_form(rows(5).causal(), {{0}, {16, 3}}, [&](const Instance& cache, DType bytes, Scales scales) {
      const Instance given = with_rotary(cache, 48, pairs, 200, Layout::dense).given;
      Instance x = with_new_bytes(given, in_bytes(given, bytes, scales));
      expect_right(&x);
    });
  }
}

TEST_F(CacheBytesOnSm80, F32IsRefused) {
  Instance x = in_bytes(make_instance(rows(5), DType::f32, 5), DType::e4m3, Scales::head);
  const Status status = make(x.problem, kSm80.target());
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_NE(status.why.find("an 8-bit cache needs another type"), std::string::npos) << status.why;
}

}  // namespace
}  // namespace falchion::testing
