// src/cpu/attention_backward/items.hpp: the work items of the backward pass, and the memory that the workers share. An
// item is one K/V head of one sequence with one part of its keys, and all query rows that see them. So it alone writes
// its grad_k and grad_v, and its grad_q is a sum over its part of the keys.
#pragma once

#include "args/cpu_attention_backward_args.hpp"
#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/gradient_operands.hpp"
#include "cpu/blocks/rows.hpp"
#include "cpu/blocks/workers.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

FALCHION_INLINE std::int64_t group_of(const AttentionCall& a) { return a.h_k == 0 ? 0 : a.h_q / a.h_k; }

/// The most query rows that a K/V head of any sequence has.
FALCHION_INLINE std::int64_t longest_rows(const AttentionCall& a) {
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < a.b; ++b) longest = max(longest, Sequence::of(a, b).q_len);
  return longest * group_of(a);
}

/// The memory that all workers read and write, cut out of AttentionBackwardArgs::shared. Each row of a K/V head has a
/// lane of a tile there, at the same place in each of these arrays.
struct SharedRows {
  float *lse = nullptr, *d = nullptr;  // (tiles, kM)
  float* slopes = nullptr;             // (parts, tiles, kM): the sums of grad_alibi, if it is requested
  float* grad_q = nullptr;             // (parts, tiles, query_rows, kM), or null where each worker has its own
  std::int64_t tiles = 0, tiles_of_head = 0, grad_q_floats = 0;

  static bool keeps_grad_q(const AttentionBackwardArgs& a) { return a.wants_q && (a.parts > 1 || a.packed); }

  SharedRows(const AttentionBackwardArgs& a, Arena& arena, std::int64_t query_rows) {
    const std::int64_t g = group_of(a);
    tiles_of_head = a.packed ? a.total_q * g / kM + a.b : a.b * ceil_div(a.s_q * g, kM);  // of all sequences
    tiles = tiles_of_head * a.h_k;
    grad_q_floats = query_rows * kM;
    lse = arena.take<float>(tiles * kM);
    d = arena.take<float>(tiles * kM);
    if (a.wants_alibi) slopes = arena.take<float>(a.parts * tiles * kM);
    if (keeps_grad_q(a)) grad_q = arena.take<float>(a.parts * tiles * grad_q_floats);
  }
  /// The index of the first tile of one K/V head of one sequence.
  std::int64_t first_tile(const AttentionBackwardArgs& a, const Sequence& s, std::int64_t b, std::int64_t hk) const {
    const std::int64_t g = group_of(a);
    return hk * tiles_of_head + (a.packed ? s.q_begin * g / kM + b : b * ceil_div(a.s_q * g, kM));
  }
};

struct BackwardItem {
  std::int64_t b, hk;
  int part;
  Sequence sequence;
  Range keys;
  std::int64_t rows, tiles, first_tile;  // query rows of the K/V head, their tiles, and the first of these

  static BackwardItem of(const AttentionBackwardArgs& a, const SharedRows& shared, std::int64_t b, std::int64_t hk) {
    BackwardItem item{};
    item.b = b;
    item.hk = hk;
    item.sequence = Sequence::of(a, b);
    item.keys = {0, item.sequence.k_len};
    item.rows = item.sequence.q_len * group_of(a);
    item.tiles = ceil_div(item.rows, kM);
    item.first_tile = shared.first_tile(a, item.sequence, b, hk);
    return item;
  }
  /// Tile i of the item, with its statistics.
  GradientTile tile(const AttentionBackwardArgs& a, const SharedRows& shared, std::int64_t i) const {
    GradientTile t;
    static_cast<TileRows&>(t) = TileRows::of(a, sequence, b, hk, i * kM, rows);
    t.lse = shared.lse + (first_tile + i) * kM;
    t.d = shared.d + (first_tile + i) * kM;
    for (int lane = 0; lane < kM; ++lane) {
      if (t.has_row(lane)) continue;
      t.partial = true;
      t.begin[lane] = t.end[lane] = 0;
    }
    return t;
  }
};

/// The items of a problem. All parts of a head are adjacent.
class BackwardList {
 public:
  BackwardList(const AttentionBackwardArgs& a, const SharedRows& shared) : a_(a), shared_(shared) {
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < a.b; ++b) longest = max(longest, Sequence::of(a, b).k_len);
    part_keys_ = round_up(ceil_div(longest, a.parts), a.keys);
  }
  std::int64_t items() const { return a_.b * a_.h_k * a_.parts; }
  BackwardItem item(std::int64_t i) const {
    const std::int64_t head = i / a_.parts;
    BackwardItem item = BackwardItem::of(a_, shared_, head / a_.h_k, head % a_.h_k);
    item.part = static_cast<int>(i % a_.parts);
    item.keys = {item.part * part_keys_, min(item.sequence.k_len, (item.part + 1) * part_keys_)};
    return item;
  }

 private:
  const AttentionBackwardArgs& a_;
  const SharedRows& shared_;
  std::int64_t part_keys_ = 0;
};

/// Calls body(worker's scratch, i) for each i in [0, tasks), on all workers.
template <class Body>
void for_each_task(const AttentionBackwardArgs& a, std::int64_t tasks, const Body& body) {
  for_each_worker(a, tasks, [&](int worker, Counter& next) {
    std::byte* scratch = a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes;
    for (std::int64_t i; (i = next.take()) < tasks;) body(scratch, i);
  });
}

}  // namespace falchion::cpu::FALCHION_LEVEL
