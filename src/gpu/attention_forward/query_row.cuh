// src/gpu/attention_forward/query_row.cuh: finds the sequence of a row of q, for kernels of which a warp has such a
// row.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"

namespace falchion::gpu {

/// One row of q, of all sequences together: which sequence has it, and where it is there.
struct QueryRow {
  int b = 0, i = 0;
  Rows q{};
  bool exists = false;

  /// All lanes of the warp look for it. Where wrong starts give it to several sequences, the first one has it.
  FALCHION_DEVICE QueryRow(const AttentionArgs& a, int row) {
    if (a.cu_q == nullptr) {
      b = row / static_cast<int>(a.s_q);
      i = row - b * static_cast<int>(a.s_q);
      q = rows_of_q(a, b);
      exists = i < q.length;
      return;
    }
    const int lane = static_cast<int>(threadIdx.x) % 32, count = static_cast<int>(a.b);
    for (int base = 0; base < count && !exists; base += 32) {
      const Rows mine = rows_of_q(a, min(base + lane, count - 1));
      const unsigned has_it = __ballot_sync(~0U, mine.begin <= row && row < mine.begin + mine.length);
      if (has_it == 0) continue;
      exists = true;
      b = min(base + __ffs(static_cast<int>(has_it)) - 1, count - 1);
      q = rows_of_q(a, b);
      i = row - static_cast<int>(q.begin);
    }
  }
};

}  // namespace falchion::gpu
