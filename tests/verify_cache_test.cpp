// tests/verify_cache_test.cpp: tests the KV caches that storms draw: their tables of pages, what lies in slots that no
// sequence uses, and that a path which reads the wrong key is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/size.hpp"
#include "policy/dtype.hpp"
#include "problem/page_table.hpp"
#include "support/faulty_path.hpp"
#include "tool.hpp"
#include "verify/draw.hpp"
#include "verify/paths.hpp"
#include "verify/storm.hpp"
#include "verify/subject.hpp"

namespace falchion::tools::storm {
namespace {

const std::vector<DType> kTypes = {DType::f32, DType::bf16};

Problem draw_cache(std::uint64_t index) { return draw_problem(11, index, Op::attention, kTypes, {.caches = 1}); }

TEST(VerifyCache, TheWholeSpaceIsDrawn) {
  std::set<std::string> seen;
  std::set<std::int64_t> sizes;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Problem p = draw_cache(i);
    const Attention& a = p.attention;
    ASSERT_TRUE(a.cache && a.used_k) << to_text(p);
    const auto note = [&](bool is, const std::string& what) {
      if (is) seen.insert(what);
    };
    sizes.insert(a.page_size);
    for (const std::string& word : p.pages) seen.insert(word);
    note(a.packed && a.page_size > 0, "packed queries");
    note(a.packed && a.page_size == 0, "packed queries of rows");
    note(a.first_k, "left padding");
    note(a.used_q, "used queries");
    note(a.split_keys > 0, "parts of the keys");
    note(a.append && a.packed, "new keys, packed");
    note(a.append && a.rotary_dim == 0, "new keys that do not turn");
    note(a.rotary_pairs, "pairs that turn");
    note(a.rotary_dim > 0 && a.rotary_dim < a.d_qk, "some columns that turn");
    note(a.rotary_dim > 0 && p.positions < a.s_k, "positions past the table");
    note(a.s_q > 64, "many queries");
    note(a.s_q == 1, "one query");
    note(a.s_k > 4000, "many keys");
    note(a.b > 32, "many sequences");
    note(a.band.left >= 0, "window");
    note(a.band.right == 0, "causal");
    note(a.dtype_k == DType::e4m3, "e4m3");
    note(a.dtype_k == DType::i8 && a.append, "i8, new keys");
    note(a.k_scale && p.k_scale.one == 7, "a scale of all");
    note(a.v_scale && p.v_scale.one == 3, "scales of heads");
    note(a.v_scale && p.v_scale.one == 0 && a.append, "scales of keys, new ones too");
    note(is_8bit(a.dtype_k) && !a.k_scale, "8 bits without scales");
    note(p.storage_of("k").order == "0213" && a.page_size > 0, "heads before slots");
    note(p.storage_of("page_table").order != "0123", "columns before rows");
    note(p.storage_of("page_table").pad > 0, "a table with gaps");
    for (const std::int64_t n : p.used_k) note(n < 0 || n > a.s_k, "lengths out of range");
  }
  EXPECT_EQ(seen.size(), 26U + std::size(kPageWords)) << ::testing::PrintToString(seen);
  for (const std::int64_t size : {0, 1, 3, 16, 48, 64, 256}) EXPECT_EQ(sizes.count(size), 1U) << size;
  EXPECT_GT(sizes.size(), 100U);
}

TEST(VerifyCache, AllProblemsWithoutOneStayAsTheyWere) {
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Problem none = draw_problem(11, i, Op::attention, kTypes, {.caches = 0}),
                  some = draw_problem(11, i, Op::attention, kTypes);
    EXPECT_FALSE(none.attention.cache);
    if (!some.attention.cache) { EXPECT_EQ(to_text(some), to_text(none)); }
  }
}

Attention pages_of_16(std::int64_t b, std::int64_t s_k) {
  return {.b = b, .s_k = s_k, .used_k = true, .cache = true, .page_size = 16};
}

/// The pages that keys in use lie in, in the order of the table.
std::vector<std::int64_t> pages_in_use(const Attention& a, const PageTable& table, const Lengths& used) {
  std::vector<std::int64_t> out;
  const CachePages pages = table.pages(a.page_size);
  for (std::int64_t b = 0; b < a.b; ++b) {
    const KeyRange keys = keys_in_use(a, pages, used, {}, b);
    for (std::int64_t j = keys.begin; j < keys.end; j += a.page_size)
      out.push_back(KeyRows::of(pages, b, 0, 0).at(j).batch);
  }
  return out;
}

TEST(VerifyCache, ATableIsWhatItsWordsSay) {
  const Attention a = pages_of_16(5, 400);
  const Lengths used = {400, 0, 17, 1 << 30, 333};  // 25, 0, 2, 25 and 21 pages
  for (const bool starts : {false, true}) {
    const auto made = [&](PageOrder order) {
      order.starts = starts;
      return make_page_table(a, used, {}, order, 3);
    };
    std::vector<std::int64_t> pages = pages_in_use(a, made({}), used);
    EXPECT_EQ(pages.size(), 73U);
    EXPECT_TRUE(std::is_sorted(pages.begin(), pages.end()));
    pages = pages_in_use(a, made({.shuffled = true}), used);
    EXPECT_FALSE(std::is_sorted(pages.begin(), pages.end()));
    EXPECT_EQ(std::set(pages.begin(), pages.end()).size(), 73U);
    EXPECT_EQ(std::count(pages.begin(), pages.end(), -1), 0);
    pages = pages_in_use(a, made({.shared = true}), used);
    EXPECT_LT(std::set(pages.begin(), pages.end()).size(), 65U);
    pages = pages_in_use(a, made({.holes = true}), used);
    EXPECT_GT(std::count(pages.begin(), pages.end(), -1), 3);
    EXPECT_EQ(made({}).starts.size(), starts ? 6U : 0U);
    EXPECT_LT(pages_in_use(a, made({.few = true}), used).size(), 50U);
  }
  const PageTable wrong = make_page_table(a, used, {}, {.starts = true, .wrong_starts = true}, 3);
  EXPECT_FALSE(std::is_sorted(wrong.starts.begin(), wrong.starts.end()));
}

/// Every slot that holds no key of a sequence is NaN in K and in V, and none that does.
TEST(VerifyCache, SlotsThatNoSequenceUsesAreNaN) {
  const auto subject = make_subject(parse_problem(
      "op=attention backend=ref dtype=f32 b=3 s_q=2 s_k=60 d_qk=4 d_v=4 cache=1 page_size=8 pages=shuffled,holes "
      "uses_k=1 used_k=60,0,13 uses_first=1 first_k=3,0,9 layout_k=0213 data=4"));
  const Attention a{.b = 3, .s_k = 60, .used_k = true, .first_k = true, .cache = true, .page_size = 8};
  const Lengths used = {60, 0, 13}, first = {3, 0, 9};
  const PageTable table = make_page_table(a, used, first, {.shuffled = true, .holes = true}, random_bits(4, 12));
  const CachePages pages = table.pages(8);
  std::set<std::pair<std::int64_t, std::int64_t>> in_use;
  for (std::int64_t b = 0; b < 3; ++b) {
    const KeyRange keys = keys_in_use(a, pages, used, first, b);
    for (std::int64_t j = keys.begin; j < keys.end; ++j)
      if (const KeyPlace at = KeyRows::of(pages, b, 0, 0).at(j); at.exists()) in_use.insert({at.batch, at.row});
  }
  EXPECT_GT(in_use.size(), 30U);
  for (const char* name : {"k", "v"}) {
    const Tensor x = subject->image().find(name)->on(subject->image().data());
    ASSERT_EQ(x.shape[0], table.count);
    for (std::int64_t page = 0; page < x.shape[0]; ++page)
      for (std::int64_t slot = 0; slot < 8; ++slot)
        EXPECT_NE(std::isnan(static_cast<float*>(x.data)[page * x.stride[0] + slot * x.stride[1]]),
                  in_use.contains({page, slot}));
  }
}

void change_lengths(const char* array, std::int64_t by, const Image& image, std::int64_t b, std::byte* copy) {
  auto* lengths = reinterpret_cast<std::int32_t*>(copy + image.find_array(array));
  for (std::int64_t i = 0; i < b; ++i) lengths[i] += static_cast<std::int32_t>(by);
}

/// f(entry, the entry of the next column) for each of a table of rows.
template <class F>
void change_table(const Image& image, std::byte* copy, const F& f) {
  const Tensor table = image.find("page_table")->on(copy);
  for (std::int64_t row = 0; row < table.shape[0]; ++row)
    for (std::int64_t column = 0; column < table.shape[1]; ++column) {
      auto* entry = static_cast<std::int32_t*>(table.data) + row * table.stride[0] + column * table.stride[1];
      f(entry, column + 1 < table.shape[1] ? entry[table.stride[1]] : *entry);
    }
}

/// Each key has the scale of the one behind it in its entry of the cache.
void change_scales(const Image& image, std::byte* copy) {
  const Tensor x = image.find("v_scale")->on(copy);
  auto* data = static_cast<float*>(x.data);
  for (std::int64_t b = 0; b < x.shape[0]; ++b)
    for (std::int64_t j = 0; j + 1 < x.shape[1]; ++j)
      for (std::int64_t h = 0; h < x.shape[2]; ++h) {
        const std::int64_t at = b * x.stride[0] + j * x.stride[1] + h * x.stride[2];
        data[at] = data[at + x.stride[1]];
      }
}

const Fault kFaults[] = {
    {"reads the next key's scale",
     [](const Problem& p) {
       return p.attention.v_scale && (p.v_scale.one & 2U) == 0 && (p.storage_of("v_scale").zero & 2U) == 0 &&
              (p.attention.page_size > 1 || p.attention.page_size == 0);
     },
     [](const Problem&, const Image& image, std::byte* copy) { change_scales(image, copy); }},
    {"reads a slot past the end", [](const Problem&) { return true; },
     [](const Problem& p, const Image& image, std::byte* copy) {
       change_lengths("used_k", 1, image, p.attention.b, copy);
     }},
    {"leaves out the last key", [](const Problem&) { return true; },
     [](const Problem& p, const Image& image, std::byte* copy) {
       change_lengths("used_k", -1, image, p.attention.b, copy);
     }},
    {"reads a slot before the first key", [](const Problem& p) { return p.attention.first_k; },
     [](const Problem& p, const Image& image, std::byte* copy) {
       change_lengths("first_k", -1, image, p.attention.b, copy);
     }},
    {"reads the next page", [](const Problem& p) { return p.attention.page_size > 0; },
     [](const Problem&, const Image& image, std::byte* copy) {
       change_table(image, copy, [](std::int32_t* entry, std::int32_t next) { *entry = next; });
     }},
    {"clamps a page that is not there",
     [](const Problem& p) { return std::find(p.pages.begin(), p.pages.end(), "holes") != p.pages.end(); },
     [](const Problem&, const Image& image, std::byte* copy) {
       const auto pages = static_cast<std::int32_t>(image.find("k")->view.shape[0]);
       change_table(image, copy, [&](std::int32_t* entry, std::int32_t) { *entry = std::clamp(*entry, 0, pages - 1); });
     }},
};

TEST(VerifyCache, APathThatReadsTheWrongKeyIsFound) { expect_found(kFaults, draw_cache, 20000); }

TEST(VerifyCache, FailuresAreMadeSmall) {
  const Problem large = parse_problem(
      "op=attention dtype=f16 b=4 s_q=30 s_k=500 h_q=12 h_k=3 d_qk=64 d_v=96 lse=1 packed=1 lengths_q=3,30,0,5 cache=1 "
      "page_size=48 pages=shuffled,shared,starts uses_k=1 used_k=100,200,300,77 layout_page_table=pad3");
  const auto small = [&](const std::function<bool(const Problem&)>& fails) { return to_text(shrink(large, fails)); };
  EXPECT_EQ(small([](const Problem&) { return true; }), "op=attention dtype=f16 d_qk=1 d_v=1");
  EXPECT_EQ(small([](const Problem& p) { return p.attention.cache && p.attention.used_k && p.used_k[0] >= 40; }),
            "op=attention dtype=f16 d_qk=1 d_v=1 cache=1 uses_k=1 used_k=40");
  EXPECT_EQ(small([](const Problem& p) {
              return p.attention.page_size > 1 && p.attention.packed && p.attention.used_k &&
                     std::find(p.pages.begin(), p.pages.end(), "shared") != p.pages.end();
            }),
            "op=attention dtype=f16 d_qk=1 d_v=1 packed=1 lengths_q=0 cache=1 page_size=2 pages=shared "
            "uses_k=1 used_k=0");
}

TEST(VerifyCache, AnUnknownKeyOrValueIsRefused) {
  for (const char* bad :
       {"op=attention page_size=16", "op=attention cache=1 uses_k=1 used_k=3 page_size=-1",
        "op=attention cache=1 uses_k=1 used_k=3 page_size=16 pages=far", "op=attention-backward cache=1",
        "op=attention cache=1 uses_k=1 used_k=3 packed=1 lengths_q=1 lengths_k=3",
        "op=attention cache=1 uses_k=1 used_k=3 page_size=16 layout_page_table=zero1", "op=attention page_count=3",
        "op=attention cache=1 uses_k=1 used_k=3 page_size=16 page_starts=0",
        "op=attention cache=1 s_k=2147483647 uses_k=1 used_k=2147483647 page_size=2147483647 h_q=512 h_k=512"})
    EXPECT_THROW(parse_problem(bad), UsageError) << bad;
}

}  // namespace
}  // namespace falchion::tools::storm
