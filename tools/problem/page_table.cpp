// tools/problem/page_table.cpp: see page_table.hpp.
#include "problem/page_table.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/divide.hpp"
#include "problem/random_bits.hpp"

namespace falchion::tools {
namespace {

/// Draws for one table, one after the other.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  std::int64_t below(std::int64_t n) {
    return n <= 0 ? 0 : static_cast<std::int64_t>(random_bits(seed_, count_++) % static_cast<std::uint64_t>(n));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }

 private:
  std::uint64_t seed_, count_ = 0;
};

/// A number that is no page, of `count`.
std::int32_t no_page(Draws* draws, std::int64_t count) {
  const std::int64_t all[] = {-1,
                              -1,
                              std::numeric_limits<std::int32_t>::max(),
                              std::numeric_limits<std::int32_t>::min(),
                              count,
                              count + draws->below(1000)};
  return static_cast<std::int32_t>(all[draws->below(std::size(all))]);
}

/// Columns for the keys of each sequence, now and then with one more.
std::vector<std::int32_t> draw_starts(const Attention& a, const Lengths& used, const PageOrder& order, Draws* draws) {
  std::vector<std::int32_t> out{0};
  for (const std::int64_t n : used) {
    std::int64_t columns = ceil_div(std::clamp<std::int64_t>(n, 0, a.s_k), a.page_size) + (draws->one_in(4) ? 1 : 0);
    if (order.few) columns = ceil_div(columns, std::int64_t{2});
    out.push_back(out.back() + static_cast<std::int32_t>(columns));
  }
  return out;
}

/// A table of which no entry is set.
PageTable empty_table(const Attention& a, const Lengths& used, const PageOrder& order, const PageExtents& given,
                      Draws* draws) {
  PageTable out;
  out.starts.assign(given.starts.begin(), given.starts.end());
  if (out.starts.empty() && order.starts) out.starts = draw_starts(a, used, order, draws);
  out.rows = out.starts.empty() ? a.b : 1;
  out.columns = out.starts.empty() ? ceil_div(a.s_k, a.page_size) : std::max(out.starts.back(), 0);
  if (out.starts.empty() && order.few) out.columns = ceil_div(out.columns, std::int64_t{2});
  if (given.columns >= 0) out.columns = given.columns;
  for (std::int32_t& start : out.starts)
    if (order.wrong_starts && draws->one_in(3)) start = static_cast<std::int32_t>(draws->below(out.columns + 15)) - 5;
  out.entries.resize(static_cast<std::size_t>(out.rows * out.columns));
  return out;
}

/// Which entries have a page with a key in use.
std::vector<bool> entries_in_use(const Attention& a, const PageTable& table, const Lengths& used,
                                 const Lengths& first) {
  std::vector<bool> out(table.entries.size());
  const CachePages pages = table.pages(a.page_size);
  for (std::int64_t b = 0; b < a.b; ++b) {
    const auto [begin, end] = keys_in_use(a, pages, used, first, b);
    const std::int64_t row = table.starts.empty() ? b * table.columns : 0, at = row + pages.first_column(b);
    for (std::int64_t n = begin / a.page_size; n * a.page_size < end; ++n)
      out[static_cast<std::size_t>(at + n)] = begin < end;
  }
  return out;
}

}  // namespace

PageOrder PageOrder::of(const std::vector<std::string>& words) {
  PageOrder out;
  bool* const flags[] = {&out.shuffled, &out.shared, &out.holes, &out.starts, &out.wrong_starts, &out.few};
  for (std::size_t i = 0; i < std::size(flags); ++i)
    *flags[i] = std::find(words.begin(), words.end(), kPageWords[i]) != words.end();
  return out;
}

CachePages PageTable::pages(std::int64_t page_size) const {
  return {.size = page_size,
          .count = count,
          .table = entries.data(),
          .stride_sequence = columns,
          .stride_page = 1,
          .columns = columns,
          .starts = starts.empty() ? nullptr : starts.data(),
          .by_size = Divisor(page_size)};
}

KeyRange keys_in_use(const Attention& a, const CachePages& pages, const Lengths& used, const Lengths& first,
                     std::int64_t b) {
  const auto at = static_cast<std::size_t>(b);
  const std::int64_t capacity = a.page_size > 0 ? std::min(a.s_k, pages.room(b)) : a.s_k;
  const std::int64_t end = std::clamp<std::int64_t>(used[at], 0, capacity);
  return {first.empty() ? 0 : std::clamp<std::int64_t>(first[at], 0, end), end};
}

PageTable make_page_table(const Attention& a, const Lengths& used, const Lengths& first, const PageOrder& order,
                          std::uint64_t seed, const PageExtents& given) {
  Draws draws(seed);
  PageTable out = empty_table(a, used, order, given, &draws);
  const std::vector<bool> in_use = entries_in_use(a, out, used, first);
  const std::int64_t spare = draws.below(3);
  out.count = given.count >= 0 ? given.count : std::count(in_use.begin(), in_use.end(), true) + spare;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(out.count));
  std::iota(ids.begin(), ids.end(), 0);
  for (std::size_t i = ids.size(); order.shuffled && i > 1; --i)
    std::swap(ids[i - 1], ids[static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(i)))]);
  std::int64_t next = 0;
  for (std::size_t i = 0; i < in_use.size(); ++i) {
    const bool is_page = in_use[i] ? !(order.holes && draws.one_in(6)) : draws.one_in(2);
    if (!is_page || ids.empty()) {
      out.entries[i] = no_page(&draws, out.count);
    } else if (!in_use[i]) {
      out.entries[i] = ids[static_cast<std::size_t>(draws.below(out.count))];
    } else {
      const bool again = next == out.count || (order.shared && next > 0 && draws.one_in(3));
      out.entries[i] = ids[static_cast<std::size_t>(again ? draws.below(next) : next++)];
    }
  }
  return out;
}

}  // namespace falchion::tools
