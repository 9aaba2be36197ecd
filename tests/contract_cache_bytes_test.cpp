// tests/contract_cache_bytes_test.cpp: 8-bit KV caches, e4m3 and i8: scales that a tensor, a head, a page or a key has,
// in rows and in pages, under each feature, and new keys.
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <vector>

#include "support/cache.hpp"
#include "support/cache_bytes.hpp"
#include "support/contract.hpp"

namespace falchion::testing {
namespace {

constexpr DType kBytes[] = {DType::e4m3, DType::i8};
constexpr std::int64_t kCapacity = 140;
const std::vector<std::int32_t> kUsed = {0, 1, 63, 64, 65, 140};

Case rows(std::int64_t s_q, std::int64_t d = 64) { return Case{"bytes", 6, s_q, kCapacity, 4, 2, d, d}.used_k(kUsed); }

Instance cached(const Instance& x, const Pages& pages) {
  Instance out = pages.size > 0 ? in_pages(x, pages) : x;
  out.problem.cache = true;
  return out;
}

/// Hopper's own back end may refuse it, where it is asked for by name, and GPUs have no f32 beside 8 bits.
bool refused(const Path& path, const Instance& x, const Status& status) {
  const bool may = path.backend == Backend::sm90 || (path.on_gpu() && x.problem.dtype == DType::f32);
  if (may && status.code == Code::unsupported) return true;
  EXPECT_TRUE(status) << status.why;
  return !status;
}

/// make: the instance in the type of q. Each path against the definition, which is computed once.
template <class Make>
void same_as_defined(const Make& make, std::initializer_list<Scales> all) {
  for (const DType bytes : kBytes) {
    for (const Scales scales : all) {
      SCOPED_TRACE(text(name(bytes), ", ", name(scales)));
      std::map<DType, Reference> references;
      on_every_path_and_named_hopper([&](const Path& path, DType dtype) {
        const Reference& reference = references.try_emplace(dtype, in_bytes(make(dtype), bytes, scales)).first->second;
        Instance x = in_bytes(make(dtype), bytes, scales);
        if (refused(path, x, run(path, &x))) return;
        EXPECT_TRUE(matches(x, reference));
        if (x.problem.append) { EXPECT_EQ(reference.judge().check_cache(x.k.view(), x.v.view()), ""); }
      });
    }
  }
}
void same_as_defined(const Case& row, const Pages& pages, std::initializer_list<Scales> all = {Scales::key}) {
  same_as_defined([&](DType dtype) { return cached(make_instance(row, dtype, 5), pages); }, all);
}

constexpr std::initializer_list<Scales> kAll = {Scales::no, Scales::tensor, Scales::head, Scales::page, Scales::key};

TEST(CacheBytes, ScalesOfATensorAHeadAPageAndAKey) {
  for (const std::int64_t s_q : {1, 33}) {
    same_as_defined(rows(s_q).causal(), {0}, kAll);
    same_as_defined(rows(s_q).causal(), {16, 3}, kAll);
  }
}

TEST(CacheBytes, UnderEachFeature) {
  const Pages in_rows{0}, pages{16, 3, true};
  same_as_defined(rows(3).window(40, 0), pages);
  same_as_defined(rows(33).window(40, 9), in_rows);
  same_as_defined(rows(2).softcap(5.F).alibi(), in_rows);
  same_as_defined(rows(33).softcap(5.F).alibi().causal(), pages);
  same_as_defined(rows(1).scale(-0.2F), pages);
  same_as_defined(rows(33).scale(-0.2F).no_lse(), in_rows);
  same_as_defined(rows(4).first_k({0, 1, 3, 60, 2, 111}).causal(), pages);
  same_as_defined(rows(33).first_k({0, 1, 3, 60, 2, 111}).causal(), in_rows);
  same_as_defined(rows(33).used_q({0, 33, 7, 1, 30, 22}).causal(Align::top_left), pages);
  same_as_defined(rows(2).sinks(), in_rows);
  same_as_defined(rows(1, 128).causal(), pages);
  same_as_defined(rows(1, 256).causal(), in_rows);
  same_as_defined(rows(33, 96), pages);
  same_as_defined(rows(2, 37), in_rows);
  same_as_defined(rows(20, 37).causal(), pages);
  same_as_defined(rows(3).causal(), {1, 2});
  same_as_defined(rows(1).causal(), {16, 2, false, Layout::heads_first}, {Scales::head, Scales::key});
}

TEST(CacheBytes, PackedQueriesAndManyKeys) {
  same_as_defined(
      [](DType dtype) {
        return with_packed_queries(in_pages(make_instance(rows(7).causal(), dtype, 5), {16, 3}));
      },
      {Scales::head, Scales::key});
  same_as_defined(Case{"long", 1, 1, 4000, 2, 1, 64, 64}.used_k({3900}), {16, 1}, {Scales::head, Scales::key});
}

TEST(CacheBytes, NewKeysAreDividedByTheScaleOfTheirSlot) {
  for (const std::int64_t s_q : {1, 33}) {
    for (const Pages& pages : {Pages{0}, Pages{16, 3}}) {
      same_as_defined(
          [&](DType dtype) { return with_new_keys(cached(make_instance(rows(s_q).causal(), dtype, 5), pages)); },
          {Scales::no, Scales::head, Scales::page});
    }
  }
}

/// Each key's own scale, set before the key comes.
TEST(CacheBytes, NewKeysWithScalesOfTheirOwn) {
  const auto make = [](DType dtype, DType bytes, std::int64_t s_q, std::int64_t size) {
    const Instance all = cached(make_instance(rows(s_q).causal(), dtype, 5), {size, 3});
    Instance x = in_bytes(with_new_keys(all), bytes, Scales::key);
    const Instance known = in_bytes(all, bytes, Scales::key);
    x.k_scale = known.k_scale;
    x.v_scale = known.v_scale;
    return x;
  };
  for (const std::int64_t s_q : {1, 33}) {
    for (const std::int64_t size : {0, 16}) {
      on_every_path_and_named_hopper([&](const Path& path, DType dtype) {
        for (const DType bytes : kBytes) {
          Instance x = make(dtype, bytes, s_q, size);
          const Reference reference(make(dtype, bytes, s_q, size));
          if (refused(path, x, run(path, &x))) return;
          EXPECT_TRUE(matches(x, reference));
          EXPECT_EQ(reference.judge().check_cache(x.k.view(), x.v.view()), "");
        }
      });
    }
  }
}

TEST(CacheBytes, NewKeysTurnBeforeTheyAreDivided) {
  for (const bool pairs : {false, true}) {
    for (const std::int64_t s_q : {1, 20}) {
      same_as_defined(
          [&](DType dtype) {
            const Instance x = cached(make_instance(rows(s_q).causal(), dtype, 5), {16, 3});
            return with_new_keys(with_rotary(x, 32, pairs, kCapacity, Layout::dense).given);
          },
          {Scales::head});
    }
  }
}

/// A NaN in a code of K or V, or in a scale, is that of its key: rows that do not see the key are clean.
TEST(CacheBytes, ANanIsThatOfItsKey) {
  for (const bool in_scale : {false, true}) {
    for (const std::int64_t s_q : {3, 33}) {
      on_every_path_and_named_hopper([&](const Path& path, DType dtype) {
        Instance x = in_bytes(cached(make_instance(rows(s_q).causal(), dtype, 5), {0}), DType::e4m3, Scales::key);
        const std::int64_t last = 139;  // only the last query sees it
        for (std::int64_t h = 0; h < 2; ++h) {
          if (in_scale) x.v_scale.set(5, last, h, 0, kNan);
          if (!in_scale) set_row(&x.v, 5, last, h, kNan);
        }
        const Reference reference(x);
        if (refused(path, x, run(path, &x))) return;
        EXPECT_TRUE(matches(x, reference));
        for (std::int64_t h = 0; h < 4; ++h) {
          EXPECT_TRUE(row_has(x, 5, s_q - 1, h, is_nan));
          EXPECT_TRUE(row_is_clean(x, 5, s_q - 2, h) || path.on_gpu());
        }
      });
    }
  }
}

TEST(CacheBytes, PagesThatAreNotThereAreMasked) {
  for (const std::int64_t s_q : {2, 33}) {
    same_as_defined(
        [&](DType dtype) {
          Instance x = in_pages(make_instance(rows(s_q).causal(), dtype, 5), {16, 3});
          *entry(&x, 5, 3) = -1;
          *entry(&x, 5, 0) = 1 << 20;
          return x;
        },
        kAll);
  }
}

}  // namespace
}  // namespace falchion::testing
