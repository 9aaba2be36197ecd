// src/ref/cache_pages.hpp: the pages of a run's cache, and its rotary table. The plan hands the same to the kernels.
#pragma once

#include "falchion/falchion.hpp"
#include "policy/cache.hpp"
#include "policy/rotary.hpp"

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

/// The rotary table of an operand, or nothing that turns.
inline RotaryTable rotation_of(const Attention& a, const Operands& x) {
  if (a.rotary_dim == 0) return {};
  return {.data = static_cast<const float*>(x.rotary.data),
          .stride_position = x.rotary.stride[1],
          .stride_sine = x.rotary.stride[2],
          .stride_pair = x.rotary.stride[3],
          .positions = x.rotary.shape[1],
          .dim = a.rotary_dim,
          .pairs = a.rotary_pairs};
}

}  // namespace falchion
