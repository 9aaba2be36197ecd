// src/tiles/linear_attention/columns.hpp: how many CTAs share the columns of a head. It is plain C++, because the plan
// uses it too.
#pragma once

#include <cstdint>

#include "args/gpu_linear_attention_args.hpp"

namespace falchion::gpu {

/// The number of tiles of 64 columns that the sweep with the most columns has.
inline int linear_column_tiles(const LinearAttentionArgs& a, bool backward) {
  const std::int64_t columns = backward && a.d_qk > a.d_v ? a.d_qk : a.d_v;
  return static_cast<int>(columns + 63) / 64;
}

}  // namespace falchion::gpu
