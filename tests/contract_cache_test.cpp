// tests/contract_cache_test.cpp: a KV cache: the same keys in rows and in pages, pages that are not there, lengths that
// are out of range, queries that are packed while the keys are not.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "support/cache.hpp"
#include "support/contract.hpp"

namespace falchion::testing {
namespace {

/// A sequence for each length at which a block, a tile or a page may end.
constexpr std::int64_t kCapacity = 300;
const std::vector<std::int32_t> kUsed = {0, 1, 63, 64, 65, 300};

Case rows(std::int64_t s_q, std::int64_t d = 64) { return Case{"cache", 6, s_q, kCapacity, 4, 2, d, d}.used_k(kUsed); }

/// Runs it and says whether a path of Hopper alone has refused it.
bool refused(const Path& path, Instance* x, Status* status) {
  *status = run(path, x);
  return path.backend == Backend::sm90 && status->code == Code::unsupported;
}

/// The result of a run in bits: o and lse.
std::vector<std::byte> bits_of(const Instance& x) {
  std::vector<std::byte> out;
  for (const HostTensor* tensor : {&x.o, &x.lse})
    out.insert(out.end(), tensor->memory(), tensor->memory() + tensor->memory_bytes());
  return out;
}

/// What the case gives in rows, in each type, which is computed once for all paths and pages.
class InRows {
 public:
  explicit InRows(Case row) : row_(std::move(row)) {}
  const Instance& instance(DType dtype) { return of(dtype).instance; }
  const Reference& reference(DType dtype) { return of(dtype).reference; }

 private:
  struct Made {
    Instance instance;
    Reference reference;
  };
  Made& of(DType dtype) {
    const auto found = made_.find(dtype);
    if (found != made_.end()) return found->second;
    Instance x = make_instance(row_, dtype, 5);
    Reference reference(x);
    return made_.emplace(dtype, Made{std::move(x), std::move(reference)}).first->second;
  }

  Case row_;
  std::map<DType, Made> made_;
};

void same_in_pages(Case row, std::initializer_list<Pages> all) {
  InRows in_rows(std::move(row));
  on_every_path([&](const Path& path, DType dtype) {
    for (const Pages& pages : all) {
      SCOPED_TRACE(text("pages of ", pages.size, ", seed ", pages.seed, pages.starts ? ", starts" : ""));
      Instance x = in_pages(in_rows.instance(dtype), pages);
      expect_decode(path, x.problem);
      const Status status = run(path, &x);
      ASSERT_TRUE(status) << status.why;
      EXPECT_TRUE(matches(x, in_rows.reference(dtype)));
    }
  });
}

TEST(Cache, PagesOfEverySizeHoldTheSameKeys) {
  for (const std::int64_t s_q : {1, 5, 16, 70})
    same_in_pages(rows(s_q).causal(), {{1, 1}, {3, 2}, {16, 3}, {48, 4}, {64, 5}, {256, 6}});
}

TEST(Cache, PagesUnderEachFeature) {
  same_in_pages(rows(3).window(40, 0), {{16, 1}, {3, 2}});
  same_in_pages(rows(90).window(40, 9), {{16, 1}, {64, 2}});
  same_in_pages(rows(2).softcap(5.F).alibi(), {{16, 1}, {1, 2}});
  same_in_pages(rows(70).softcap(5.F).alibi().causal(), {{16, 1}, {64, 2}});
  same_in_pages(rows(1).scale(-0.2F), {{16, 1}});
  same_in_pages(rows(66).no_lse(), {{16, 1}});
  same_in_pages(rows(4).first_k({0, 1, 3, 60, 2, 111}).causal(), {{16, 1}, {3, 2}});
  same_in_pages(rows(40).first_k({0, 1, 3, 60, 2, 111}).causal(), {{16, 1}, {3, 2}});
  same_in_pages(rows(40).used_q({0, 40, 7, 1, 40, 33}).causal(Align::top_left), {{16, 1}});
  same_in_pages(rows(1, 128).causal(), {{16, 1}});
  same_in_pages(rows(1, 256).causal(), {{16, 1}, {16, 2, false, Layout::heads_first}});
  same_in_pages(rows(33, 256).causal(), {{16, 1}});
  same_in_pages(rows(33, 96).causal(), {{64, 1}});
  same_in_pages(rows(2, 40), {{16, 1}});
  same_in_pages(rows(20, 37).causal(), {{16, 1}});
}

TEST(Cache, PagesMayLieAnyhow) {
  for (const std::int64_t s_q : {1, 20})
    same_in_pages(rows(s_q).causal(), {{16, 1, false, Layout::heads_first},
                                       {16, 2, true, Layout::heads_first},
                                       {16, 3, false, Layout::gaps},
                                       {16, 4, true, Layout::odd},
                                       {16, 5, false, Layout::reversed},
                                       {64, 6, true, Layout::dense}});
}

TEST(Cache, ManyKeysAreCutIntoParts) {
  same_in_pages(Case{"long", 1, 1, 4000, 2, 1, 64, 64}.used_k({3900}), {{16, 1}, {256, 2}});
  same_in_pages(Case{"long", 2, 2, 2000, 8, 2, 128, 128}.used_k({1999, 3}).causal(), {{16, 1}, {1, 2}});
}

TEST(Cache, WhereAPageLiesChangesNoBits) {
  on_every_path([](const Path& path, DType dtype) {
    for (const std::int64_t s_q : {1, 40}) {
      const Instance x = make_instance(rows(s_q).causal(), dtype, 5);
      std::vector<std::byte> first;
      for (const Pages& pages : {Pages{16}, Pages{16, 9}, Pages{16, 10, true},
                                 Pages{16, 11, false, Layout::heads_first}, Pages{64, 12}, Pages{1, 13}}) {
        Instance paged = in_pages(x, pages);
        ASSERT_TRUE(run(path, &paged));
        if (path.on_gpu() && pages.size == 1 && s_q == 40) continue;  // another kernel than that of pages of 16
        const std::vector<std::byte> bits = bits_of(paged);
        if (first.empty()) first = bits;
        EXPECT_EQ(std::memcmp(first.data(), bits.data(), bits.size()), 0) << "pages of " << pages.size;
      }
      if (path.on_gpu()) continue;  // rows without pages have kernels of their own there
      Instance in_rows = x;
      ASSERT_TRUE(run(path, &in_rows));
      EXPECT_EQ(std::memcmp(first.data(), bits_of(in_rows).data(), first.size()), 0);
    }
  });
}

TEST(Cache, PagesThatAreNotThereAreMasked) {
  for (const auto& [s_q, d] : {std::pair<std::int64_t, std::int64_t>{1, 64}, {2, 64}, {40, 64}, {40, 128}}) {
    for (const std::int64_t size : {1, 16, 64}) {
      on_every_path([&](const Path& path, DType dtype) {
        Instance masked = make_instance(rows(s_q, d).causal().mask(), dtype, 5);
        Instance without = masked;
        without.problem.mask = false;
        without.mask = {};
        Instance paged = in_pages(without, {size, 3});
        take_pages_away(&paged, &masked);
        const Status status = run(path, &paged);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(paged, Reference(masked))) << "s_q " << s_q << ", pages of " << size;
      });
    }
  }
}

TEST(Cache, ASequenceOfWhichNoPageIsThereIsEmpty) {
  on_every_path([](const Path& path, DType dtype) {
    for (const std::int64_t s_q : {1, 40}) {
      Instance x = in_pages(make_instance(rows(s_q), dtype, 5), {16, 3});
      for (std::int64_t n = 0; n < x.page_table.shape()[1]; ++n) *entry(&x, 5, n) = -1;
      ASSERT_TRUE(run(path, &x));
      for (std::int64_t i = 0; i < s_q; ++i) {
        expect_empty(x, 0, i);  // it has no key
        expect_empty(x, 5, i);  // it has 300
      }
    }
  });
}

TEST(Cache, LengthsOutOfRangeAreClamped) {
  on_every_path([](const Path& path, DType dtype) {
    for (const std::int64_t s_q : {1, 40}) {
      Instance x = in_pages(make_instance(rows(s_q).causal(), dtype, 5), {16, 3});
      const Instance all =
          in_pages(make_instance(Case{"cache", 6, s_q, kCapacity, 4, 2, 64, 64}.causal().used_k({0, 1, 63, 64, 0, 300}),
                                 dtype, 5),
                   {16, 3});
      x.used_k = {INT32_MIN, 1, 63, 64, -1, INT32_MAX};
      ASSERT_TRUE(run(path, &x));
      EXPECT_TRUE(matches(x, Reference(all)));
      // A table of fewer columns than s_k asks for: the sequence ends with its last page.
      Instance few = in_pages(make_instance(rows(s_q).causal(), dtype, 5), {16, 3});
      few.problem.s_k = 1000;
      few.used_k[5] = 999;
      ASSERT_TRUE(run(path, &few));
      Instance whole = few;
      whole.used_k[5] = static_cast<std::int32_t>(few.page_table.shape()[1] * 16);
      EXPECT_TRUE(is_nan(few.o.get(5, s_q - 1, 0, 0)));  // slots behind the 300th key are NaN here
      EXPECT_TRUE(matches(few, Reference(whole)));
    }
  });
}

TEST(Cache, PackedQueriesOfACache) {
  for (const std::int64_t size : {0, 16}) {
    std::map<DType, std::pair<Instance, Reference>> made;
    on_every_path([&](const Path& path, DType dtype) {
      if (made.find(dtype) == made.end()) {
        Instance x =
            make_instance(rows(70).causal().used_q({3, 0, 70, 1, 12, 33}).first_k({0, 0, 5, 9, 1, 40}), dtype, 5);
        x = with_packed_queries(size == 0 ? x : in_pages(x, {size, 3}));
        made.emplace(dtype, std::pair(x, Reference(x)));
      }
      auto& [x, reference] = made.at(dtype);
      for (const std::int64_t hint : {70, 8, 0}) {  // s_q: sequences that are longer are computed all the same
        Instance hinted = x;
        hinted.problem.s_q = hint;
        const Status status = run(path, &hinted);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(hinted, reference)) << "s_q " << hint << ", pages of " << size;
      }
    });
  }
}

TEST(Cache, TheDefinitionInPagesIsThatInRows) {
  for (const DType dtype : kTypes) {
    Instance in_rows = make_instance(rows(5).causal().first_k({0, 0, 5, 9, 1, 40}), dtype, 5);
    ASSERT_TRUE(run(Target{Backend::ref}, &in_rows));
    for (const Pages& pages : {Pages{1, 2}, Pages{16, 3, true}, Pages{7, 4, false, Layout::heads_first}}) {
      Instance x = in_pages(in_rows, pages);
      ASSERT_TRUE(run(Target{Backend::ref}, &x));
      EXPECT_EQ(bits_of(x), bits_of(in_rows));
    }
  }
}

/// With split_keys the bits of a sequence depend on no other one: alone, and third of six, it has the same.
TEST(Cache, PartsOfAFixedLengthKeepASequencesBits) {
  for (const std::int64_t s_q : {1, 16, 40}) {
    for (const bool window : {false, true}) {
      on_every_path([&](const Path& path, DType dtype) {
        const auto banded = [&](Case row) { return window ? std::move(row).window(150, 0) : std::move(row).causal(); };
        Instance all = make_instance(banded(rows(s_q)), dtype, 5);
        all.problem.split_keys = 128;
        expect_decode(path, all.problem);
        Status status;
        if (refused(path, &all, &status)) return;
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(all, Reference(all)));
        for (std::int64_t b = 0; b < 6; ++b) {
          SCOPED_TRACE(text("sequence ", b, ", s_q ", s_q));
          const std::int32_t used = kUsed[static_cast<std::size_t>(b)];
          Instance one = make_instance(banded(Case{"alone", 1, s_q, kCapacity, 4, 2, 64, 64}.used_k({used})), dtype, 5);
          const auto take = [b](HostTensor* to, const HostTensor& from) {
            to->for_each([&](auto, auto i, auto h, auto d) { to->set(0, i, h, d, from.get(b, i, h, d)); });
          };
          take(&one.q, all.q);
          take(&one.k, all.k);
          take(&one.v, all.v);
          one.problem.split_keys = 128;
          ASSERT_TRUE(run(path, &one));
          one.o.for_each(
              [&](auto, auto i, auto h, auto d) { ASSERT_EQ(one.o.get(0, i, h, d), all.o.get(b, i, h, d)); });
          one.lse.for_each(
              [&](auto, auto h, auto i, auto) { ASSERT_EQ(one.lse.get(0, h, i, 0), all.lse.get(b, h, i, 0)); });
        }
      });
    }
  }
}

}  // namespace
}  // namespace falchion::testing
