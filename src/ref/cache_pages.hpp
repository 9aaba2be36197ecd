// src/ref/cache_pages.hpp: the pages of a run's cache. The plan hands the same to the kernels.
#pragma once

#include "falchion/falchion.hpp"
#include "policy/cache.hpp"

namespace falchion {

inline CachePages pages_of(const Attention& a, const Operands& x) {
  if (a.page_size == 0) return {};
  return {.size = a.page_size,
          .count = x.k.shape[0],
          .table = static_cast<const std::int32_t*>(x.page_table.data),
          .stride_sequence = x.page_table.stride[0],
          .stride_page = x.page_table.stride[1],
          .columns = x.page_table.shape[1],
          .starts = x.page_starts,
          .by_size = Divisor(a.page_size)};
}

}  // namespace falchion
