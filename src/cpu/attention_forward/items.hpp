// src/cpu/attention_forward/items.hpp: the work items of the forward pass. An item is a block of query rows of one K/V
// head against one part of the keys. Workers draw items from one counter, the longest of a head first.
#pragma once

#include "args/cpu_attention_args.hpp"
#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/rows.hpp"
#include "cpu/blocks/step.hpp"
#include "cpu/blocks/workers.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

struct WorkItem {
  std::int64_t b, hk;
  int heads;  // the item has K/V heads [hk, hk + heads); heads is 1 except for decode
  int part;   // which of the a.splits parts of the keys
  Range rows,
      keys;  // rows of the K/V head (cpu/blocks/rows.hpp); keys [begin, end), where begin is a multiple of a.keys
  Sequence sequence;
};

/// Cuts the whole problem into items. Lengths are read here, at run time, since the sizes in the problem are only hints
/// if sequences are packed.
class WorkList {
 public:
  explicit WorkList(const AttentionArgs& a) : a_(a), g_(a.h_q / a.h_k) {
    for (std::int64_t b = 0; b < a.b; ++b) {
      const Sequence s = Sequence::of(a, b);
      longest_q_ = max(longest_q_, s.q_len);
      longest_k_ = max(longest_k_, s.k_len);
    }
    row_blocks_ = ceil_div(longest_q_ * g_, a.rows);
    split_keys_ = a.split_keys > 0 ? a.split_keys : round_up(ceil_div(longest_k_, a.splits), a.keys);
  }
  std::int64_t items() const { return a_.b * ceil_div(a_.h_k, a_.heads) * row_blocks_ * a_.splits; }
  std::int64_t key_blocks() const { return ceil_div(longest_k_, a_.keys); }

  /// Makes item i; returns false if the sequence is too short to have it. All items of a head are adjacent, so that its
  /// K and V are still in the caches. Within a head the last row blocks come first: under a causal band they see the
  /// most keys, and a long item that starts late would keep the other workers waiting.
  bool item(std::int64_t i, WorkItem* out) const {
    out->part = static_cast<int>(i % a_.splits);
    i /= a_.splits;
    const std::int64_t block = row_blocks_ - 1 - i % row_blocks_;
    i /= row_blocks_;
    const std::int64_t groups = ceil_div(a_.h_k, a_.heads);
    out->hk = i % groups * a_.heads;
    out->b = i / groups;
    out->heads = static_cast<int>(min(a_.heads, a_.h_k - out->hk));
    out->sequence = Sequence::of(a_, out->b);
    const std::int64_t rows = out->sequence.q_len * g_;
    out->rows = {block * a_.rows, min(rows, (block + 1) * a_.rows)};
    out->keys = {out->part * split_keys_, min(out->sequence.k_len, (out->part + 1) * split_keys_)};
    return !out->rows.empty();
  }

 private:
  const AttentionArgs& a_;
  std::int64_t g_, longest_q_ = 0, longest_k_ = 0, row_blocks_ = 0, split_keys_ = 0;
};

/// Yields the chunks of one item in order: for each block of keys, and for each tile that sees some of it, chunk by
/// chunk.
class ChunkWalk {
 public:
  ChunkWalk(const AttentionArgs& a, const TileRows* tiles, int count, Range keys, int chunk_keys)
      : a_(a), tiles_(tiles), count_(count), chunk_keys_(chunk_keys), keys_(keys) {
    Range all{keys.end, keys.begin};
    for (int i = 0; i < count; ++i) {
      if (tiles[i].visible.empty()) continue;
      all = {min(all.begin, tiles[i].visible.begin), max(all.end, tiles[i].visible.end)};
    }
    block_ = max(all.begin, keys.begin) / a.keys;
    end_ = ceil_div(min(all.end, keys.end), a.keys);
  }
  bool next(Chunk* out) {
    if (now_.index + 1 < now_.count) {
      ++now_.index;
      now_.begin = now_.stop;
    } else if (!next_step()) {
      return false;
    }
    now_.stop = static_cast<int>(min(now_.end, now_.begin + chunk_keys_));
    now_.buffer ^= 1;
    *out = now_;
    return true;
  }

 private:
  bool next_step() {
    for (; block_ < end_; ++block_, tile_ = 0) {
      while (tile_ < count_) {
        if (open(tile_++)) return true;
      }
    }
    return false;
  }
  bool open(int tile) {
    const TileRows& t = tiles_[tile];
    const std::int64_t key0 = block_ * a_.keys;
    const std::int64_t first = max(0, max(t.visible.begin, keys_.begin) - key0) / 32 * 32;
    const std::int64_t end = min(a_.keys, round_up(min(t.visible.end, keys_.end) - key0, 32));
    if (first >= end) return false;
    now_.tile = tile;
    now_.block = block_;
    now_.parity ^= 1;
    now_.first = static_cast<int>(first);
    now_.end = static_cast<int>(end);
    now_.masked = t.count < kM || key0 + first < t.unmasked.begin || key0 + end > t.unmasked.end;
    now_.begin = now_.first;
    now_.index = 0;
    now_.count = static_cast<int>(ceil_div(end - first, chunk_keys_));
    return true;
  }

  const AttentionArgs& a_;
  const TileRows* tiles_;
  int count_, chunk_keys_, tile_ = 0;
  Range keys_;
  std::int64_t block_, end_;
  Chunk now_{};
};

/// Packs all of K and V. One task is one block of one K/V head.
template <class Engine>
void pack_all(const AttentionArgs& a) {
  const std::int64_t blocks = WorkList(a).key_blocks();
  const std::int64_t tasks = a.b * a.h_k * blocks;
  for_each_worker(a, tasks, [&](int, Counter& next) {
    for (std::int64_t i; (i = next.take()) < tasks;) {
      const std::int64_t block = i % blocks, hk = i / blocks % a.h_k, b = i / blocks / a.h_k;
      const Sequence s = Sequence::of(a, b);
      if (block * a.keys < s.k_len) Engine::pack(a, s, b, hk, block);
    }
  });
}

template <class Worker, class Scope>
void run_items(const AttentionArgs& a) {
  const WorkList list(a);
  const std::int64_t items = list.items();
  for_each_worker(a, items, [&](int worker, Counter& next) {
    [[maybe_unused]] const Scope scope{};
    Arena arena(a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes);
    Worker w(a, arena);
    WorkItem item;
    for (std::int64_t i; (i = next.take()) < items;) {
      if (list.item(i, &item)) w.run(item);
    }
  });
}

}  // namespace falchion::cpu::FALCHION_LEVEL
