// src/sm80/attention_backward/store.cuh: the end of a tile of the backward pass. Gradients go from registers to memory,
// rounded, in f32, or added to the tensor's contents.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_backward/tile.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Stores this thread's part of a tile of grad_q, grad_k or grad_v, times `scale`. row0 is the tile's first row of the
/// sequence, column0 its first column. Where counts(row of the tile) is false, the row is stored as 0.
template <class Element, class Output, class Counts>
FALCHION_DEVICE void store_gradient(Output& out, const View& x, const Rows& rows, int h, int row0, int column0, int d,
                                    float scale, const AttentionBackwardArgs& a, Counts counts) {
  const std::int64_t head = rows.batch * x.stride[0] + rows.begin * x.stride[1] + h * x.stride[2];
  CUTE_UNROLL
  for (int r = 0; r < Output::kRows; ++r) {
    const int row = row0 + Output::row(r);
    if (row >= rows.length) continue;
    const bool there = counts(Output::row(r));
    const std::int64_t at = head + row * x.stride[1];
    CUTE_UNROLL
    for (int c = 0; c < Output::kColumns; ++c) {
      const int column = column0 + Output::column(c);
      if (column >= d) continue;
      const float value = there ? out(r, c) * scale : 0.f;
      if (a.grads_f32) {
        float* to = static_cast<float*>(x.data) + at + column;
        *to = a.accumulate ? *to + value : value;
      } else {
        static_cast<Element*>(x.data)[at + column] = Element(value);
      }
    }
  }
}

}  // namespace falchion::sm80
