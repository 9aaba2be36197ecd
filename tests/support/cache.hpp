// tests/support/cache.hpp: an instance whose K and V are a KV cache: the same keys, in pages in any order.
#pragma once

#include <cstdint>
#include <vector>

#include "support/instance.hpp"

namespace falchion::testing {

/// How the pages of a cache lie.
struct Pages {
  std::int64_t size;
  std::uint64_t seed = 0;  // 0: a sequence's pages follow each other; else they are shuffled
  bool starts = false;     // one table for all sequences, cut by page_starts; else each has a row
  Layout layout = Layout::dense;
};

/// The instance with its keys in pages. It needs used_k, and s_k is what each sequence has pages for. Every page and
/// every slot that holds no key is NaN, and some pages are nobody's.
Instance in_pages(const Instance& x, const Pages& pages);

/// The instance with its queries packed: those of used_q, or all of s_q, one sequence behind the other. K and V stay: a
/// cache.
Instance with_packed_queries(const Instance& x);

/// The instance whose last keys are new: rows of k_new and v_new, and NaN in the cache. It needs a cache, in rows or in
/// pages, in which all keys are. Rows without a key are NaN.
Instance with_new_keys(const Instance& x);

/// The instance with a rotary table, of which `rotated` has turned q and, of each sequence's last rows, the keys, in
/// double. Its problem says how (rotary_dim, rotary_pairs); positions: of the table.
struct Rotary {
  Instance given, rotated;
};
Rotary with_rotary(const Instance& x, std::int64_t dim, bool pairs, std::int64_t positions, Layout layout);

/// Takes some pages of each sequence away from `paged`, and hides their keys from `masked`, the same in rows with a
/// mask.
void take_pages_away(Instance* paged, Instance* masked);

inline std::int32_t* entry(Instance* x, std::int64_t row, std::int64_t column) {
  return static_cast<std::int32_t*>(x->page_table.view().data) + x->page_table.offset(row, column, 0, 0);
}

}  // namespace falchion::testing
