// src/gpu/blocks/rows.cuh: the rows of a sequence, alone or packed with others.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion::gpu {

/// One sequence: `length` rows from row `begin` of batch entry `batch`.
struct Rows {
  std::int64_t batch, begin;
  int length;
  int first = 0;  // rows of padding before `begin`, where padding is on the left

  static FALCHION_DEVICE Rows of(int b, const std::int32_t* cu, std::int64_t total, std::int64_t capacity,
                                 const std::int32_t* used) {
    Rows rows{b, 0, static_cast<int>(capacity)};
    if (cu != nullptr) {  // clamped to the total, even for invalid lengths
      const std::int64_t begin = min(max(std::int64_t{cu[b]}, std::int64_t{0}), total);
      const std::int64_t end = min(max(std::int64_t{cu[b + 1]}, begin), total);
      rows = {0, begin, static_cast<int>(end - begin)};
    }
    if (used != nullptr) rows.length = min(max(used[b], 0), rows.length);
    return rows;
  }
};

}  // namespace falchion::gpu
