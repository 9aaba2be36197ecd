// src/gpu/linear_attention_columns.hpp: how many CTAs share the columns of a head. Plain C++: the plan counts with it
// too.
#pragma once

#include <cstdint>

#include "args/gpu_linear_attention_args.hpp"

namespace falchion::gpu {

/// Tiles of 64 columns of the sweep that has most.
inline int linear_column_tiles(const LinearAttentionArgs& a, bool backward) {
  const std::int64_t columns = backward && a.d_qk > a.d_v ? a.d_qk : a.d_v;
  return static_cast<int>(columns + 63) / 64;
}

}  // namespace falchion::gpu
