// src/sm80/attention_backward/once/load.cuh: the loads of a CTA of kind once into shared memory: its record of the
// problem, and the tiles of rows.
#pragma once

#include "base/host_device.hpp"
#include "sm80/attention_backward/load.cuh"
#include "sm80/attention_backward/once/config.hpp"
#include "sm80/attention_backward/once/order.hpp"

namespace falchion::sm80 {

using namespace gpu;

/// Loads the tiles of rows. All threads of the CTA call it.
template <class Config>
struct RowLoader {
  using Element = typename Config::Element;
  static constexpr int kD = Config::kD, kRows = Config::kRows;
  const AttentionBackwardArgs& a;
  const BackwardTile& t;
  typename Config::Shared& shared;

  /// The rows that see all keys of the strip from k0 on, and so need no mask.
  FALCHION_DEVICE RowsThatSeeAll rows_that_see_all(int k0) const {
    const std::int64_t k1 = std::int64_t{k0} + 32;
    const std::int64_t first = k1 - 1 - t.mask.shift - t.mask.right, past = k0 - t.mask.shift + t.mask.left + 1;
    const auto clamped = [](std::int64_t row) {
      return static_cast<int>(min(max(row, std::int64_t{0}), std::int64_t{1} << 30));
    };
    return {clamped(first), k1 <= t.k.length ? clamped(past) : 0};
  }

  FALCHION_DEVICE HeadOfRows<Element> head_of_rows() const {
    const BackwardLayout layout = BackwardLayout::of(a);
    const std::int64_t row = layout.first_row(a, t.b, t.h, t.q.begin);
    const auto side = Side<Element>::of_rows(a, t.q, t.h);
    return {side.score,
            side.value,
            layout.lse(a) + row,
            layout.delta(a) + row,
            layout.grad_q_sums(a) + row * kD,
            layout.turns(a) + row / 64 * 2,
            static_cast<int>(layout.rows / 64),
            keys_with_owner(t.own0, t.k.length, a.key_tiles - t.tile, Config::kKeys),
            t.mask.shift + t.mask.right};
  }
  /// For each query head of the K/V head a CTA visits the tiles that see its keys, upwards.
  FALCHION_DEVICE int steps() const { return (t.end - t.begin) * t.heads; }
  FALCHION_DEVICE RowTile first_rows() const { return with_place({0, t.begin}); }
  FALCHION_DEVICE RowTile rows_after(RowTile rows) const {
    if (++rows.tile >= t.end) {
      rows.tile = t.begin;
      ++rows.head;
    }
    return with_place(rows);
  }

  /// Starts to load q of a tile of rows, or grad_o, or the statistics. The calls are spread among the products.
  FALCHION_DEVICE void load_q(const RowTile& rows, int stage) const {
    load_lines(shared.head.q, a.q, rows, static_cast<int>(a.d_qk), shared.q[stage]);
  }
  FALCHION_DEVICE void load_grad_o(const RowTile& rows, int stage) const {
    load_lines(shared.head.grad_o, a.grad_o, rows, static_cast<int>(a.d_v), shared.grad_o[stage]);
  }
  /// The padding of the workspace has statistics too.
  FALCHION_DEVICE void load_statistics(const RowTile& rows, int stage) const {
    constexpr unsigned kChunks = kRows / 4;  // of 16 bytes
    const unsigned thread = hidden(threadIdx.x);
    if (thread >= 2 * kChunks) return;
    const float* from = thread < kChunks ? shared.head.lse : shared.head.delta;
    float* to = thread < kChunks ? shared.lse[stage] : shared.delta[stage];
    const unsigned row = thread % kChunks * 4;
    copy_async(from + std::int64_t{rows.block} * 64 + row, to + row, true);
  }
  /// Rows past the end and columns past d become 0.
  FALCHION_DEVICE void load_lines(const Element* head, const View& x, const RowTile& rows, int d, Element* to) const {
    constexpr unsigned kChunks = kD / Config::kChunk, kLines = Config::kThreads / kChunks;  // that all load at once
    const unsigned thread = hidden(threadIdx.x), line = thread / kChunks;
    const unsigned column = thread % kChunks * Config::kChunk;
    const unsigned row = static_cast<unsigned>(rows.tile) * kRows + line;
    const int left = column < static_cast<unsigned>(d) ? t.q.length - static_cast<int>(row) : 0;
    const Element* from = head + rows.head * x.stride[2] + row * x.stride[1] + column;
    to += column / 64 * (kRows * 64) + line * 64 + (column / 8 % 8 ^ line % 8) * 8;
    CUTE_UNROLL
    for (int n = 0; n < kRows / static_cast<int>(kLines); ++n) {
      copy_async(from, to + n * kLines * 64, n * static_cast<int>(kLines) < left);
      from += kLines * x.stride[1];
    }
  }
  /// Sets masked-out rows to 0: they may hold NaN, which times 0 is NaN. Returns whether there are any.
  FALCHION_DEVICE bool clear_what_counts_for_nothing(int stage) const {
    const auto dead = [&](int row) { return counts_for_nothing({0, shared.delta[stage][row]}); };
    bool any = false;
    CUTE_UNROLL
    for (int row = 0; row < kRows; row += 32) any |= dead(row + static_cast<int>(hidden(threadIdx.x) % 32));
    any = __any_sync(~0u, any);  // all warps see the same
    if (any) {
      __syncthreads();
      clear_rows<Config, kRows>(dead, shared.q[stage], shared.grad_o[stage]);
      __syncthreads();
    }
    return any;
  }

 private:
  /// Where sums have a fixed order, CTAs with later keys have smaller numbers and add first. So under a causal band no
  /// CTA waits: it reaches a tile when its predecessors have left it.
  FALCHION_DEVICE RowTile with_place(RowTile rows) const {
    rows.block = rows.head * shared.head.blocks + rows.tile * (kRows / 64);
    rows.wanted = 1;
    if (a.any_order) return rows;
    const std::int64_t past = min(rows.tile * kRows + kRows, t.q.length) + shared.head.reach;  // the keys that it sees
    rows.wanted = adders_before(t.own0, past, shared.head.keys, Config::kKeys);
    return rows;
  }
};

}  // namespace falchion::sm80
