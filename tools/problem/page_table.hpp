// tools/problem/page_table.hpp: random tables of the pages of a KV cache. Where a key lies then is policy/cache.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "falchion/falchion.hpp"
#include "policy/cache.hpp"

namespace falchion::tools {

/// How pages lie. Without any of these each sequence has a row of the table, and pages follow each other.
struct PageOrder {
  bool shuffled = false;      // pages lie in any order
  bool shared = false;        // a third of the entries name the page of an earlier one
  bool holes = false;         // a sixth of the entries are no page
  bool starts = false;        // one row for all sequences, cut by page_starts
  bool wrong_starts = false;  // some starts fall, or leave the table
  bool few = false;           // half the columns that the keys need

  /// By their names, which are these.
  static PageOrder of(const std::vector<std::string>& words);
};
inline constexpr std::string_view kPageWords[] = {"shuffled", "shared", "holes", "starts", "wrong_starts", "few"};

/// One number for each sequence.
using Lengths = std::vector<std::int64_t>;

/// What is given and not drawn: -1, or no starts.
struct PageExtents {
  std::int64_t count = -1, columns = -1;
  Lengths starts{};
};

struct PageTable {
  std::int64_t rows = 0, columns = 0;
  std::int64_t count = 0;             // pages of k and v; some are nobody's
  std::vector<std::int32_t> entries;  // rows x columns
  std::vector<std::int32_t> starts;   // empty: each sequence has a row

  /// The same for policy/cache.hpp.
  CachePages pages(std::int64_t page_size) const;
};

struct KeyRange {
  std::int64_t begin, end;
};
/// The keys of sequence b that count. used, first: may be out of range; first may be empty.
KeyRange keys_in_use(const Attention& a, const CachePages& pages, const Lengths& used, const Lengths& first,
                     std::int64_t b);

/// Entries whose pages have no key in use hold anything, numbers that are no page too.
PageTable make_page_table(const Attention& a, const Lengths& used, const Lengths& first, const PageOrder& order,
                          std::uint64_t seed, const PageExtents& given = {});

}  // namespace falchion::tools
