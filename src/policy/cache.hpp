// src/policy/cache.hpp: where a key lies, in rows of a tensor or in the pages of a KV cache. This is the definition;
// every path asks it.
#pragma once

#include <cstdint>

#include "base/divisor.hpp"
#include "base/host_device.hpp"

namespace falchion {

/// The place of a key: row `row` of entry `batch` of k and v.
struct KeyPlace {
  std::int64_t batch, row;
  /// A key in a page that is not there is masked, and nothing of it is read.
  FALCHION_HD bool exists() const { return batch >= 0; }
};

/// The pages of a cache. k and v are (pages, size, h_k, d), and a row of the table says which pages a sequence has, in
/// the order of its keys.
struct CachePages {
  std::int64_t size = 0;                              // keys of a page; 0: there are no pages
  std::int64_t count = 0;                             // pages of k and v
  const std::int32_t* table = nullptr;                // (sequences, columns), or (1, columns) where there are starts
  std::int64_t stride_sequence = 0, stride_page = 0;  // of the table, in elements
  std::int64_t columns = 0;                           // pages in a row of the table
  const std::int32_t* starts = nullptr;               // (sequences + 1), or null: each sequence has a row
  Divisor by_size{};

  /// The first column of sequence b. Starts outside the table, or falling ones, are clamped.
  FALCHION_HD std::int64_t first_column(std::int64_t b) const { return starts == nullptr ? 0 : inside(starts[b]); }
  /// The most keys that sequence b has pages for.
  FALCHION_HD std::int64_t room(std::int64_t b) const {
    const std::int64_t end = starts == nullptr ? columns : inside(starts[b + 1]), first = first_column(b);
    return end > first ? (end - first) * size : 0;
  }

 private:
  FALCHION_HD std::int64_t inside(std::int64_t column) const {
    return column < 0 ? 0 : column > columns ? columns : column;
  }
};

/// The keys of one sequence: a base from which they are neighbours, or a table of pages. Of a key past the sequence's
/// length nothing may be asked.
struct KeyRows {
  std::int64_t batch = 0, begin = 0;    // key j is row begin + j of entry `batch`, or with pages key begin + j of them
  const std::int32_t* table = nullptr;  // the sequence's pages
  std::int64_t stride = 0, count = 0;   // between two pages of the table; pages of k and v
  Divisor by_size{};
  bool paged = false;

  static FALCHION_HD KeyRows of(const CachePages& pages, std::int64_t b, std::int64_t batch, std::int64_t begin) {
    if (pages.size == 0) return {batch, begin};
    const std::int64_t first = pages.first_column(b);
    return {0,
            begin,
            pages.table + (pages.starts == nullptr ? b * pages.stride_sequence : 0) + first * pages.stride_page,
            pages.stride_page,
            pages.count,
            pages.by_size,
            true};
  }
  FALCHION_HD KeyPlace at(std::int64_t j) const { return paged ? found(look(j)) : KeyPlace{batch, begin + j}; }

  /// What the table says of a key, which may still be on its way from memory, and the key's row in that page.
  struct Look {
    std::int32_t page;
    std::uint32_t row;
  };
  FALCHION_HD Look look(std::int64_t j) const {
    const auto key = static_cast<std::uint32_t>(begin + j);
    const std::uint32_t column = by_size.divide(key);
    return {table[column * stride], key - column * by_size.value()};
  }
  FALCHION_HD KeyPlace found(const Look& x) const { return {exists(x) ? x.page : -1, x.row}; }
  FALCHION_HD bool exists(const Look& x) const { return 0 <= x.page && x.page < count; }
};

/// The keys that a run appends to one sequence: the last `rows` of those that used_k counts.
struct NewKeys {
  KeyRows keys;            // the sequence's, from its slot 0 on
  std::int64_t first = 0;  // the key of row 0; below 0 where the sequence has fewer keys than rows
  std::int64_t room = 0;   // the most keys that the sequence may have
  std::int64_t padding = 0;

  /// used, first_k: as the caller gives them. A number that is out of range moves the keys; it does not fold them onto
  /// others.
  static FALCHION_HD NewKeys of(const KeyRows& keys, std::int64_t room, std::int64_t used, std::int64_t rows,
                                std::int64_t first_k) {
    return {keys, used - rows, room, first_k};
  }
  /// Where row i of k_new and v_new goes. It is nowhere before slot 0, past the last one, and in a page that is not
  /// there.
  FALCHION_HD KeyPlace at(std::int64_t i) const {
    const std::int64_t key = first + i;
    return 0 <= key && key < room ? keys.at(key) : KeyPlace{-1, 0};
  }
  /// Where row i of q and of k_new stands in the sequence, for rotary embedding.
  FALCHION_HD std::int64_t position(std::int64_t i) const { return first + i - padding; }
};

}  // namespace falchion
