// src/ladder/head.hpp: one head of a tensor (b, s, h, d) seen as a matrix, which the steps of every ladder use.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion::ladder {

/// One head of one batch entry: X[i][x] is element x of row i. Rows lie `stride` elements apart.
template <class T>
struct Head {
  T* data;
  std::int64_t stride;
  FALCHION_HD T* operator[](std::int64_t row) const { return data + row * stride; }
};

}  // namespace falchion::ladder
