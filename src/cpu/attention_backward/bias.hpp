// src/cpu/attention_backward/bias.hpp: grad_bias, which is G, summed over the axes of length 1. If no axis is summed,
// each pair of a query and a key belongs to one item, which stores its G. Otherwise a separate pass follows: a task
// owns some elements and computes G again for all pairs that are summed into them, always in the same order. So no
// element is added by two workers, and no workspace grows with s_q * s_k. The sums are in double: in f32 one of 114,000
// terms had an error of 2.3 times the limit.
#pragma once

#include "cpu/attention_backward/scores.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The axes (b, h, s_q, s_k) of grad_bias. An axis is summed if grad_bias has length 1 there and the problem has more.
struct BiasAxes {
  std::int64_t extent[4];
  bool summed[4], any;
  explicit BiasAxes(const AttentionBackwardArgs& a) : extent{a.b, a.h_q, a.s_q, a.s_k}, any(false) {
    for (int axis = 0; axis < 4; ++axis) {
      summed[axis] = a.summed[axis] && extent[axis] != 1;
      any |= summed[axis];
      if (summed[axis]) extent[axis] = 1;
    }
  }
};
FALCHION_INLINE float* bias_gradient(const AttentionBackwardArgs& a, std::int64_t b, std::int64_t h, std::int64_t i,
                                     std::int64_t column) {
  const std::int64_t* stride = a.grad_bias.stride;
  return static_cast<float*>(a.grad_bias.data) + b * stride[0] + h * stride[1] + i * stride[2] + column * stride[3];
}

/// If no axis is summed: clears all of grad_bias, because items write only the pairs that they visit.
FALCHION_INLINE void clear_bias_gradient(const AttentionBackwardArgs& a) {
  for_each_task(a, a.b * a.h_q, [&](std::byte*, std::int64_t task) {
    for (std::int64_t i = 0; i < a.s_q; ++i) {
      for (std::int64_t j = 0; j < a.s_k; ++j) *bias_gradient(a, task / a.h_q, task % a.h_q, i, j) = 0;
    }
  });
}
/// If no axis is summed: adds G (keys, kM) of a chunk.
FALCHION_INLINE void add_bias_gradient(const AttentionBackwardArgs& a, const GradientTile& t, const KeySpan& keys,
                                       const float* G) {
  for (int i = 0; i < t.count; ++i) {
    const std::int64_t first = max(keys.key0 + keys.begin, t.begin[i]), end = min(keys.key0 + keys.stop, t.end[i]);
    const std::int64_t from = keys.key0 + keys.begin;
    for (std::int64_t j = first; j < end; ++j)
      *bias_gradient(a, t.b, t.head(i), t.query(i), t.sequence.k_first + j) += G[(j - from) * kM + i];
  }
}

/// One worker of the pass for summed axes.
template <class T, class Engine>
class BiasWorker : public BackwardScores<T, Engine> {
  using Base = BackwardScores<T, Engine>;
  using Base::a_, Base::shared_, Base::engine_, Base::block_, Base::x_;

 public:
  BiasWorker(const AttentionBackwardArgs& a, const SharedRows& shared, Arena& arena)
      : Base(a, shared, arena), g_(group_of(a)), queries_(owned_queries(g_)) {
    s_ = arena.take<float>(Engine::kChunkKeys * kM);
    dp_ = arena.take<float>(Engine::kChunkKeys * kM);
    if (a.wants_bias) sums_ = arena.take<double>(max(g_, 1) * queries_ * a.keys);
  }
  static std::int64_t tasks(const AttentionBackwardArgs& a) {
    const BiasAxes axes(a);
    return count_b(axes) * count_h(a, axes) * count_q(a, axes) * count_k(a, axes);
  }

  void run(std::int64_t task) {
    const BiasAxes axes(a_);
    const std::int64_t k = task % count_k(a_, axes), q = task / count_k(a_, axes) % count_q(a_, axes);
    const std::int64_t rest = task / count_k(a_, axes) / count_q(a_, axes);
    const std::int64_t h = rest % count_h(a_, axes), b = rest / count_h(a_, axes);
    heads_ = axes.summed[1] ? 1 : g_;
    rows_ = axes.summed[2] ? 1 : queries_;
    columns_ = axes.summed[3] ? 1 : a_.keys;
    first_row_ = axes.summed[2] ? 0 : q * queries_;
    first_column_ = axes.summed[3] ? 0 : k * a_.keys;
    std::memset(sums_, 0, static_cast<std::size_t>(heads_ * rows_ * columns_) * sizeof(double));
    for (std::int64_t each = axes.summed[0] ? 0 : b; each < (axes.summed[0] ? a_.b : b + 1); ++each) {
      for (std::int64_t hk = axes.summed[1] ? 0 : h; hk < (axes.summed[1] ? a_.h_k : h + 1); ++hk)
        add_head(axes, each, hk);
    }
    store(b, h * g_);
  }

 private:
  /// The queries that a task owns: as few as fill whole tiles, since the query heads of a group lie in one tile.
  static std::int64_t owned_queries(std::int64_t g) {
    std::int64_t queries = kM;
    while (queries % 2 == 0 && g % 2 == 0 && g > 0) {
      queries /= 2;
      g /= 2;
    }
    return queries;
  }
  static std::int64_t count_b(const BiasAxes& axes) { return axes.extent[0]; }
  static std::int64_t count_h(const AttentionBackwardArgs& a, const BiasAxes& axes) {
    return axes.summed[1] ? 1 : a.h_k;
  }
  static std::int64_t count_q(const AttentionBackwardArgs& a, const BiasAxes& axes) {
    return axes.summed[2] ? 1 : ceil_div(axes.extent[2], owned_queries(group_of(a)));
  }
  static std::int64_t count_k(const AttentionBackwardArgs& a, const BiasAxes& axes) {
    return axes.summed[3] ? 1 : ceil_div(axes.extent[3], a.keys);
  }

  /// Adds the G of one K/V head of one sequence to the task's elements.
  void add_head(const BiasAxes& axes, std::int64_t b, std::int64_t hk) {
    const BackwardItem item = BackwardItem::of(a_, shared_, b, hk);
    const Range tiles = axes.summed[2]
                            ? Range{0, item.tiles}
                            : Range{first_row_ * g_ / kM, min(item.tiles, (first_row_ + queries_) * g_ / kM)};
    const std::int64_t from = first_column_ - item.sequence.k_first;
    const Range keys = axes.summed[3] ? item.keys : Range{max(0, from), min(item.keys.end, from + a_.keys)};
    if (tiles.empty()) return;
    for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += a_.keys) {
      this->load_keys(item, {key0, static_cast<int>(min(a_.keys, keys.end - key0))});
      for (std::int64_t i = tiles.begin; i < tiles.end; ++i) add_tile(item.tile(a_, shared_, i));
    }
  }
  void add_tile(const GradientTile& t) {
    const Range seen = this->visible(t);
    if (seen.empty()) return;
    engine_.load_queries(0, t);
    for (std::int64_t begin = seen.begin; begin < seen.end; begin += Engine::kChunkKeys) {
      const KeySpan keys{block_.key0, static_cast<int>(begin),
                         static_cast<int>(min(seen.end, begin + Engine::kChunkKeys))};
      engine_.start_step(keys.begin);
      this->weigh(0, t, keys, false, s_, dp_);
      add_chunk(t, keys);
    }
  }
  void add_chunk(const GradientTile& t, const KeySpan& keys) {
    // With left padding a block may end before the keys do, and its last 32 may be incomplete.
    const std::int64_t from = keys.key0 + keys.begin, past = keys.key0 + min(keys.stop, block_.count);
    for (int i = 0; i < t.count; ++i) {
      const std::int64_t head = heads_ == 1 ? 0 : t.head(i) % g_, row = rows_ == 1 ? 0 : t.query(i) - first_row_;
      double* sums = sums_ + (head * rows_ + row) * columns_;
      for (std::int64_t j = max(from, t.begin[i]); j < min(past, t.end[i]); ++j)
        sums[columns_ == 1 ? 0 : t.sequence.k_first + j - first_column_] += x_.g[(j - from) * kM + i];
    }
  }
  void store(std::int64_t b, std::int64_t first_head) {
    const BiasAxes axes(a_);
    for (std::int64_t head = 0; head < heads_; ++head) {
      for (std::int64_t row = 0; row < min(rows_, axes.extent[2] - first_row_); ++row) {
        for (std::int64_t column = 0; column < min(columns_, axes.extent[3] - first_column_); ++column) {
          float& to =
              *bias_gradient(a_, b, axes.summed[1] ? 0 : first_head + head, first_row_ + row, first_column_ + column);
          to = static_cast<float>((a_.accumulate ? to : 0) + sums_[(head * rows_ + row) * columns_ + column]);
        }
      }
    }
  }

  const std::int64_t g_, queries_;
  float *s_, *dp_;
  double* sums_ = nullptr;                                                              // (heads_, rows_, columns_)
  std::int64_t heads_ = 0, rows_ = 0, columns_ = 0, first_row_ = 0, first_column_ = 0;  // the elements of the task
};

}  // namespace falchion::cpu::FALCHION_LEVEL
