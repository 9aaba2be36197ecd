// src/tiles/attention_backward/workspace.hpp: the workspace of the kernels of attention's backward pass. It is plain
// C++, because the plan counts its bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/gpu_attention_backward_args.hpp"
#include "base/divide.hpp"
#include "base/host_device.hpp"

namespace falchion::gpu {

/// Rows of a sequence are padded to multiples of this in the workspace, so that whole tiles can be copied.
inline constexpr int kPaddedRows = 128;

/// The statistics of a query row that the pass needs beside its operands. A masked-out row has an lse of +inf, so that
/// its probabilities are 0, and a delta of -0, which no sum gives (sums begin with +0). The lse alone would not mark
/// it, because an infinite score gives an lse of +inf too.
struct RowStatistic {
  float lse;    // the natural logarithm, or that to base 2: see launch_before_backward
  float delta;  // grad_o . o - grad_lse, which the papers call D
};

/// The rows of sequences in the workspace. The rows of a head are contiguous, each sequence starting at a multiple of
/// kPaddedRows. Packed, sequence b begins at multiple number cu_q[b] / kPaddedRows + b, so that lengths need not be
/// added up.
struct BackwardLayout {
  std::int64_t rows;  // of one head, with the padding; packed: of all sequences together

  static FALCHION_HD BackwardLayout of(const AttentionBackwardArgs& a) {
    return {(a.packed ? a.total_q / kPaddedRows + a.b : (a.s_q + kPaddedRows - 1) / kPaddedRows) * kPaddedRows};
  }
  FALCHION_HD std::int64_t heads(const AttentionBackwardArgs& a) const { return a.packed ? a.h_q : a.b * a.h_q; }
  /// The first row of head h of sequence b, whose rows begin at row `begin` of q where sequences are packed.
  FALCHION_HD std::int64_t first_row(const AttentionBackwardArgs& a, std::int64_t b, std::int64_t h,
                                     std::int64_t begin) const {
    return a.packed ? h * rows + (begin / kPaddedRows + b) * kPaddedRows : (b * a.h_q + h) * rows;
  }
  /// First the lse of all rows, then the delta of all rows.
  FALCHION_HD float* lse(const AttentionBackwardArgs& a) const { return reinterpret_cast<float*>(a.workspace); }
  FALCHION_HD float* delta(const AttentionBackwardArgs& a) const { return lse(a) + heads(a) * rows; }
  FALCHION_HD RowStatistic statistic(const AttentionBackwardArgs& a, std::int64_t row) const {
    return {lse(a)[row], delta(a)[row]};
  }
  FALCHION_HD std::size_t statistics_bytes(const AttentionBackwardArgs& a) const {
    return static_cast<std::size_t>(heads(a) * rows) * sizeof(RowStatistic);
  }
  /// After the statistics, if slopes have a gradient: a sum for each tile of rows of head h. Packed, the tiles of all
  /// sequences follow each other.
  FALCHION_HD float* slope_sums(const AttentionBackwardArgs& a, std::int64_t b, std::int64_t h) const {
    return reinterpret_cast<float*>(a.workspace + statistics_bytes(a)) + (a.packed ? h : b * a.h_q + h) * a.row_tiles;
  }
  FALCHION_HD std::size_t slope_sums_bytes(const AttentionBackwardArgs& a) const {
    return static_cast<std::size_t>(heads(a) * a.row_tiles) * sizeof(float);
  }
  /// After the statistics, if several CTAs add to grad_q: two counters for each 64 rows, of the CTAs that have added
  /// theirs. A tile has two parts: halves of its columns, or with 128 rows halves of its rows; then every second pair
  /// of counters is unused.
  FALCHION_HD unsigned* turns(const AttentionBackwardArgs& a) const {
    return reinterpret_cast<unsigned*>(a.workspace + statistics_bytes(a));
  }
  FALCHION_HD std::size_t turns_bytes(const AttentionBackwardArgs& a) const {
    return (static_cast<std::size_t>(heads(a) * rows / 64 * 2) * sizeof(unsigned) + 127) / 128 * 128;
  }
  /// After these, d f32 sums for each row. With any_order they are cleared before the CTAs add; otherwise they are
  /// undefined until the first CTA has stored its own.
  FALCHION_HD float* grad_q_sums(const AttentionBackwardArgs& a) const {
    return reinterpret_cast<float*>(a.workspace + statistics_bytes(a) + turns_bytes(a));
  }
  FALCHION_HD std::size_t grad_q_sums_bytes(const AttentionBackwardArgs& a, int d) const {
    return static_cast<std::size_t>(heads(a) * rows) * static_cast<std::size_t>(d) * sizeof(float);
  }
  /// After the sums, where CTAs go on to the next tile of keys: the counter from which they draw it.
  FALCHION_HD unsigned* tile_counter(const AttentionBackwardArgs& a, int d) const {
    return reinterpret_cast<unsigned*>(a.workspace + statistics_bytes(a) + turns_bytes(a) + grad_q_sums_bytes(a, d));
  }
};

/// Tiles of `rows` rows that a head is cut into; packed: an upper bound for `total` rows of b sequences.
constexpr std::int64_t backward_tiles(const AttentionCall& a, std::int64_t length, std::int64_t total, int rows) {
  return a.packed ? ceil_div(total, rows) + a.b : ceil_div(length, rows);
}

}  // namespace falchion::gpu
