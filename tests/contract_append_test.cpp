// tests/contract_append_test.cpp: new keys that a run writes into a KV cache and sees, and rotary embedding.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "support/cache.hpp"
#include "support/contract.hpp"

namespace falchion::testing {
namespace {

constexpr std::int64_t kCapacity = 140;
const std::vector<std::int32_t> kUsed = {0, 1, 63, 64, 65, 140};

Case rows(std::int64_t s_q, std::int64_t d = 64) { return Case{"cache", 6, s_q, kCapacity, 4, 2, d, d}.used_k(kUsed); }

/// The instance in rows, or in pages.
Instance cached(const Instance& x, const Pages& pages) {
  Instance out = pages.size > 0 ? in_pages(x, pages) : x;
  out.problem.cache = true;
  return out;
}

/// Runs it. Hopper's own back end, where it is asked for by name, may refuse it.
bool refused(const Path& path, Instance* x) {
  const Status status = run(path, x);
  if (path.backend == Backend::sm90 && status.code == Code::unsupported) return true;
  EXPECT_TRUE(status) << status.why;
  return !status;
}

std::vector<std::byte> bits_of(const Instance& x) {
  std::vector<std::byte> out;
  for (const HostTensor* tensor : {&x.o, &x.lse})
    out.insert(out.end(), tensor->memory(), tensor->memory() + tensor->memory_bytes());
  return out;
}

/// The run's result and its cache are those of the definition.
void expect_appended(const Path& path, Instance* x, const Reference& reference) {
  expect_decode(path, x->problem);
  if (refused(path, x)) return;
  EXPECT_TRUE(matches(*x, reference));
  EXPECT_EQ(reference.judge().check_cache(x->k.view(), x->v.view()), "");
}

/// What is made once for each type, and serves all paths.
template <class T>
class OfEachType {
 public:
  explicit OfEachType(std::function<T(DType)> make) : make_(std::move(make)) {}
  const T& of(DType dtype) {
    const auto found = made_.find(dtype);
    return found != made_.end() ? found->second : made_.emplace(dtype, make_(dtype)).first->second;
  }

 private:
  std::function<T(DType)> make_;
  std::map<DType, T> made_;
};

/// New keys give the bits of a run for which they have been in the cache, and are there afterwards.
void same_with_new_keys(const Case& row, const std::vector<Pages>& all) {
  for (const Pages& pages : all) {
    SCOPED_TRACE(text("pages of ", pages.size, pages.starts ? ", starts" : ""));
    OfEachType<Instance> made([&](DType dtype) { return cached(make_instance(row, dtype, 5), pages); });
    OfEachType<Reference> references([&](DType dtype) { return Reference(with_new_keys(made.of(dtype))); });
    on_every_path_and_named_hopper([&](const Path& path, DType dtype) {
      Instance before = made.of(dtype), fresh = with_new_keys(before);
      expect_appended(path, &fresh, references.of(dtype));
      // With first_k Hopper's decode does not append, so other kernels compute the two.
      if ((path.on_gpu() && before.problem.first_k) || refused(path, &before)) return;
      EXPECT_EQ(bits_of(fresh), bits_of(before));
      before.k.for_each([&](auto b, auto s, auto h, auto d) {
        const float wanted = before.k.get(b, s, h, d), got = fresh.k.get(b, s, h, d);
        ASSERT_TRUE(wanted == got || (is_nan(wanted) && is_nan(got))) << "k[" << b << "][" << s << "]";
      });
    });
  }
}

TEST(Append, NewKeysAreSeenAndWritten) {
  for (const std::int64_t s_q : {1, 5, 16, 70})
    same_with_new_keys(rows(s_q).causal(),
                       {{0}, {1, 1}, {3, 2}, {16, 3, true}, {64, 5}, {16, 6, false, Layout::heads_first}});
}

TEST(Append, UnderEachFeature) {
  const std::vector<Pages> all = {{0}, {16, 3}};
  same_with_new_keys(rows(3).window(40, 0), all);
  same_with_new_keys(rows(90).window(40, 9), all);
  same_with_new_keys(rows(2).softcap(5.F).alibi(), all);
  same_with_new_keys(rows(66).no_lse(), all);
  same_with_new_keys(rows(4).first_k({0, 1, 3, 60, 2, 111}).causal(), all);
  same_with_new_keys(rows(40).used_q({0, 40, 7, 1, 40, 33}).causal(), all);
  same_with_new_keys(rows(1, 128).causal(), all);
  same_with_new_keys(rows(33, 256).causal(), all);
  same_with_new_keys(rows(20, 37).causal(), all);
  same_with_new_keys(Case{"long", 1, 1, 4000, 2, 1, 64, 64}.used_k({3900}), all);
  same_with_new_keys(Case{"wide v", 6, 3, kCapacity, 4, 2, 64, 128}.used_k(kUsed).causal(), all);
}

TEST(Append, PackedQueriesBringTheirKeys) {
  for (const std::int64_t size : {0, 16}) {
    OfEachType<Instance> made([&](DType dtype) {
      const Case row = rows(70).causal().used_q({3, 0, 70, 1, 12, 33});
      return with_packed_queries(cached(make_instance(row, dtype, 5), {size, 3}));
    });
    OfEachType<Reference> references([&](DType dtype) { return Reference(with_new_keys(made.of(dtype))); });
    on_every_path([&](const Path& path, DType dtype) {
      for (const std::int64_t hint : {70, 8, 0}) {
        Instance x = with_new_keys(made.of(dtype));
        x.problem.s_q = hint;
        expect_appended(path, &x, references.of(dtype));
      }
    });
  }
}

/// Sequence 1 has fewer keys than rows, 2 has `used` keys, 4 has lost pages, among them that of its last key. Some rows
/// are past used_q. Slots and rows hold numbers where there is no key.
Instance with_lost_rows(std::int64_t s_q, std::int32_t used, DType dtype) {
  const Case row = rows(s_q).causal().used_q({4, 4, 3, 0, 2, 1});
  Instance x = with_new_keys(cached(make_instance(row, dtype, 5), {16, 3}));
  x.used_k[2] = used;
  *entry(&x, 4, 4) = -1;
  *entry(&x, 4, 1) = INT32_MAX;
  float next = 0;
  for (HostTensor* tensor : {&x.k, &x.v, &x.k_new, &x.v_new}) {
    next += 0.25F;
    tensor->for_each([&](auto b, auto s, auto h, auto d) {
      if (is_nan(tensor->get(b, s, h, d))) tensor->set(b, s, h, d, next);
    });
  }
  return x;
}

TEST(Append, ARowWithoutASlotIsNotWritten) {
  for (const std::int64_t s_q : {4, 40}) {
    for (const std::int32_t used : {static_cast<std::int32_t>(kCapacity) + 1, INT32_MIN, -1, INT32_MAX}) {
      SCOPED_TRACE(text("used_k ", used));
      OfEachType<Reference> references([&](DType dtype) { return Reference(with_lost_rows(s_q, used, dtype)); });
      on_every_path([&](const Path& path, DType dtype) {
        Instance x = with_lost_rows(s_q, used, dtype);
        expect_appended(path, &x, references.of(dtype));
      });
    }
  }
}

// ---- Rotary embedding -----------------------------------------------------------------------------------------------

struct Turns {
  std::int64_t dim;
  bool pairs;
  std::int64_t positions = kCapacity;
  Layout layout = Layout::dense;
};

/// With and without new keys, the result is that of operands which the test has rotated.
void same_as_rotated(const Case& row, std::int64_t size, const std::vector<Turns>& all) {
  for (const Turns& turns : all) {
    SCOPED_TRACE(text("rotary_dim ", turns.dim, turns.pairs ? ", pairs" : "", ", pages of ", size));
    OfEachType<Rotary> made([&](DType dtype) {
      const Instance whole = cached(make_instance(row, dtype, 5), {size, 3});
      return with_rotary(whole, turns.dim, turns.pairs, turns.positions, turns.layout);
    });
    OfEachType<Reference> rotated([&](DType dtype) { return Reference(made.of(dtype).rotated); });
    OfEachType<Reference> defined([&](DType dtype) { return Reference(with_new_keys(made.of(dtype).given)); });
    on_every_path_and_named_hopper([&](const Path& path, DType dtype) {
      Instance fresh = with_new_keys(made.of(dtype).given);
      expect_appended(path, &fresh, defined.of(dtype));
      if (refused(path, &fresh)) return;
      EXPECT_TRUE(matches(fresh, rotated.of(dtype)));
      Instance read = made.of(dtype).given;  // q alone turns
      read.k = made.of(dtype).rotated.k;
      if (refused(path, &read)) return;
      EXPECT_TRUE(matches(read, rotated.of(dtype)));
    });
  }
}

TEST(Rotary, HalvesAndPairs) {
  const std::vector<Turns> all = {{64, false}, {64, true},  {2, false},
                                  {16, true},  {34, false}, {32, false, kCapacity, Layout::gaps}};
  for (const std::int64_t s_q : {1, 70}) same_as_rotated(rows(s_q).causal(), 0, all);
  for (const std::int64_t s_q : {1, 5}) same_as_rotated(rows(s_q).causal(), 16, all);
}

TEST(Rotary, UnderEachFeature) {
  const std::vector<Turns> all = {{32, false}, {64, true}};
  same_as_rotated(rows(4).first_k({0, 1, 3, 60, 2, 111}).causal(), 16, all);
  same_as_rotated(rows(40).used_q({0, 40, 7, 1, 40, 33}).causal(), 0, all);
  same_as_rotated(rows(3, 128).window(40, 0), 16, {{128, false}, {96, true}});
  same_as_rotated(rows(20, 37).causal(), 16, {{36, false}, {2, true}});
  same_as_rotated(rows(1, 256).causal(), 0, {{256, false}});
  same_as_rotated(Case{"long", 1, 1, 4000, 2, 1, 64, 64}.used_k({3900}), 0, {{64, false, 4000}});
}

TEST(Rotary, APositionPastTheTableIsClamped) {
  same_as_rotated(rows(5).causal(), 16, {{64, false, 64}, {64, true, 1}});
  same_as_rotated(rows(70).causal(), 0, {{64, false, 64}});
}

TEST(Rotary, PackedQueries) {
  for (const std::int64_t size : {0, 16}) {
    OfEachType<Rotary> made([&](DType dtype) {
      const Case row = rows(70).causal().used_q({3, 0, 70, 1, 12, 33});
      const Instance packed = with_packed_queries(cached(make_instance(row, dtype, 5), {size, 3}));
      return with_rotary(packed, 32, false, kCapacity, Layout::dense);
    });
    OfEachType<Reference> references([&](DType dtype) { return Reference(with_new_keys(made.of(dtype).given)); });
    on_every_path([&](const Path& path, DType dtype) {
      Instance x = with_new_keys(made.of(dtype).given);
      expect_appended(path, &x, references.of(dtype));
      x.problem.s_q = 19;  // 6 * 19 of 119 rows
      const Status status = run(path, &x);
      EXPECT_EQ(status.code, Code::invalid);
      EXPECT_EQ(status.why,
                "q.shape[1] = 119: with rotary_dim packed rows are at most b * s_q = 114; plan with the longest length "
                "as s_q");
    });
  }
}

}  // namespace
}  // namespace falchion::testing
