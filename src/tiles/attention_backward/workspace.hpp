// src/tiles/attention_backward/workspace.hpp: what kernels of attention's backward pass keep in the workspace. It is
// plain C++, because the plan counts its bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/gpu_attention_backward_args.hpp"
#include "base/divide.hpp"
#include "base/host_device.hpp"

namespace falchion::gpu {

/// Rows of a sequence are padded to multiples of this in the workspace, so that whole tiles can be copied.
inline constexpr int kPaddedRows = 128;

/// What the pass needs of a query row beside its operands. A row that counts for nothing has an lse of +inf, so that
/// its probabilities are 0, and a delta of -0, which no sum gives (sums begin with +0). The lse alone would not do,
/// because an infinite score gives one of +inf too.
struct RowStatistic {
  float lse;    // the natural logarithm, or that to base 2: see launch_before_backward
  float delta;  // grad_o . o - grad_lse, which the papers call D
};

/// Where the rows of sequences lie in the workspace. The rows of a head lie one after another, each sequence from a
/// multiple of kPaddedRows on. Packed, sequence b begins at multiple number cu_q[b] / kPaddedRows + b, so that nobody
/// has to add up lengths.
struct BackwardLayout {
  std::int64_t rows;  // of one head, with the padding; all sequences together where they are packed

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
  /// Behind the statistics, where slopes have a gradient: a sum for each tile of rows of head h. Packed, the tiles of
  /// all sequences come one after another.
  FALCHION_HD float* slope_sums(const AttentionBackwardArgs& a, std::int64_t b, std::int64_t h) const {
    return reinterpret_cast<float*>(a.workspace + statistics_bytes(a)) + (a.packed ? h : b * a.h_q + h) * a.row_tiles;
  }
  FALCHION_HD std::size_t slope_sums_bytes(const AttentionBackwardArgs& a) const {
    return static_cast<std::size_t>(heads(a) * a.row_tiles) * sizeof(float);
  }
  /// Behind the statistics, where several CTAs add to grad_q: two counters for each 64 rows, which say how many of
  /// these CTAs have added theirs. A tile has two parts: halves of its columns, or with 128 rows halves of its rows;
  /// then every second pair of counters is not used.
  FALCHION_HD unsigned* turns(const AttentionBackwardArgs& a) const {
    return reinterpret_cast<unsigned*>(a.workspace + statistics_bytes(a));
  }
  FALCHION_HD std::size_t turns_bytes(const AttentionBackwardArgs& a) const {
    return (static_cast<std::size_t>(heads(a) * rows / 64 * 2) * sizeof(unsigned) + 127) / 128 * 128;
  }
  /// Behind these, d f32 sums for each row. With any_order they are cleared before the CTAs
  /// add; else they hold nothing until the first CTA has stored its own.
  FALCHION_HD float* grad_q_sums(const AttentionBackwardArgs& a) const {
    return reinterpret_cast<float*>(a.workspace + statistics_bytes(a) + turns_bytes(a));
  }
  FALCHION_HD std::size_t grad_q_sums_bytes(const AttentionBackwardArgs& a, int d) const {
    return static_cast<std::size_t>(heads(a) * rows) * static_cast<std::size_t>(d) * sizeof(float);
  }
};

/// Tiles of `rows` rows that a head is cut into; packed: an upper bound for `total` rows of b sequences.
constexpr std::int64_t backward_tiles(const AttentionCall& a, std::int64_t length, std::int64_t total, int rows) {
  return a.packed ? ceil_div(total, rows) + a.b : ceil_div(length, rows);
}

}  // namespace falchion::gpu
