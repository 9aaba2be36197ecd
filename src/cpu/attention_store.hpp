// src/cpu/attention_store.hpp: finish and store: O = O / l, lse = m + log l, partial results of split keys and their
// merge, probabilities.
#pragma once

#include <math.h>  // logf, expf: the C names, so that no inline overload is shared between levels

#include "blocks/elements.hpp"
#include "blocks/online_softmax.hpp"
#include "blocks/rows.hpp"
#include "blocks/transpose.hpp"
#include "cpu/attention_items.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// What one row's softmax came to. Row `query` of head `head` of sequence `s`.
struct RowResult {
  float lse, top, factor;  // O is to be multiplied by factor

  /// m, top in units of S; unit converts to the score. A row that saw no key has l = 0.
  static FALCHION_INLINE RowResult of(float m, float top, float l, float unit) {
    if (l == 0) return {-__builtin_inff(), -__builtin_inff(), 0};
    return {m * unit + ::logf(l), l == l ? top * unit : l, 1 / l};
  }
};

// ---- partial results: (rows, h_q, splits) records of O (d_v), lse, top, all f32 -------------------------------------
FALCHION_INLINE std::int64_t partial_rows(const AttentionArgs& a) { return a.packed ? a.total_q : a.b * a.s_q; }
FALCHION_INLINE std::size_t partial_bytes(const AttentionArgs& a) {
  if (a.splits <= 1) return 0;
  return static_cast<std::size_t>(partial_rows(a) * a.h_q * a.splits * (a.d_v + 2)) * sizeof(float);
}
FALCHION_INLINE float* partial(const AttentionArgs& a, const Sequence& s, std::int64_t query, std::int64_t head) {
  const std::int64_t row = (a.packed ? 0 : s.q_batch * a.s_q) + s.q_begin + query;
  return a.partials + (row * a.h_q + head) * a.splits * (a.d_v + 2);
}

/// Writes one finished row: to the outputs, or to its partial record when the keys are split.
template <class T>
FALCHION_INLINE void finish_row(const AttentionArgs& a, const TileRows& t, int lane, int part, const RowResult& r,
                                const float* o) {
  if (a.splits > 1) {
    float* record = partial(a, t.sequence, t.query(lane), t.head(lane)) + part * (a.d_v + 2);
    store_row<f32>(record, o, r.factor, a.d_v);
    record[a.d_v] = r.lse, record[a.d_v + 1] = r.top;
    return;
  }
  store_row<T>(t.row<typename T::Bits>(a.o, lane), o, r.factor, a.d_v);
  if (a.lse.data != nullptr) *t.statistic(a.lse, lane) = r.lse;
  if (a.row_max.data != nullptr) *t.statistic(a.row_max, lane) = r.top;
}

/// O^T (d_v, kM) of one tile -> rows. `rows` is room for 16 of them.
template <class T>
FALCHION_INLINE void store_tile(const AttentionArgs& a, const WorkItem& item, const TileRows& t,
                                const OnlineSoftmax& softmax, float unit, const float* O, float* rows) {
  const std::int64_t width = round_up(a.d_v, 16);
  for (int half = 0; half < t.count; half += 16) {
    for (std::int64_t c = 0; c < width; c += 16) transpose_16x16(O + c * kM + half, kM, rows + c, width);
    for (int i = half; i < half + 16 && i < t.count; ++i) {
      const RowResult r = RowResult::of(softmax.m[i], softmax.top[i], softmax.l[i], unit);
      finish_row<T>(a, t, i, item.part, r, rows + (i - half) * width);
    }
  }
}

/// Merges the parts of one row: weights exp(lse - max lse). A part that saw no key weighs nothing, whatever it holds.
template <class T>
void combine_row(const AttentionArgs& a, const Sequence& s, std::int64_t query, std::int64_t head, float* sum) {
  const std::int64_t size = a.d_v + 2;
  const float* record = partial(a, s, query, head);
  float high = -__builtin_inff(), top = high, total = 0;
  for (int p = 0; p < a.splits; ++p) {
    const float lse = record[p * size + a.d_v], t = record[p * size + a.d_v + 1];
    high = lse > high ? lse : high;
    top = t > top || t != t ? t : top;
  }
  for (std::int64_t c = 0; c < a.d_v; ++c) sum[c] = 0;
  for (int p = 0; p < a.splits; ++p) {
    const float lse = record[p * size + a.d_v];
    if (lse == -__builtin_inff()) continue;
    const float weight = ::expf(lse - high);
    total += weight;
    for (std::int64_t c = 0; c < a.d_v; ++c) sum[c] += weight * record[p * size + c];
  }
  const RowResult r = total == 0 ? RowResult{high, high, 0} : RowResult{high + ::logf(total), top, 1 / total};
  const std::int64_t row = s.q_begin + query;
  auto* o =
      static_cast<typename T::Bits*>(a.o.data) + s.q_batch * a.o.stride[0] + row * a.o.stride[1] + head * a.o.stride[2];
  store_row<T>(o, sum, r.factor, a.d_v);
  auto statistic = [&](const View& x, float value) {
    if (x.data == nullptr) return;
    static_cast<float*>(x.data)[s.q_batch * x.stride[0] + head * x.stride[1] + row * x.stride[2]] = value;
  };
  statistic(a.lse, r.lse), statistic(a.row_max, r.top);
}

template <class T>
void combine(const AttentionArgs& a) {
  const std::int64_t tasks = a.b * a.h_q;
  for_each_worker(a, tasks, [&](int worker, Counter& next) {
    auto* sum = reinterpret_cast<float*>(a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes);
    for (std::int64_t i; (i = next.take()) < tasks;) {
      const Sequence s = Sequence::of(a, i / a.h_q);
      for (std::int64_t query = 0; query < s.q_len; ++query) combine_row<T>(a, s, query, i % a.h_q, sum);
    }
  });
}

// ---- probabilities (b, h_q, s_q, s_k) f32 ---------------------------------------------------------------------------
FALCHION_INLINE void clear_probabilities(const AttentionArgs& a, const TileRows& t) {
  for (int i = 0; i < t.count; ++i) {
    float* row = t.scores<float>(a.probabilities, i);
    for (std::int64_t j = 0; j < a.s_k; ++j) row[j * a.probabilities.stride[3]] = 0;
  }
}
FALCHION_INLINE void write_probabilities(const AttentionArgs& a, const TileRows& t, const Chunk& chunk,
                                         const OnlineSoftmax& softmax, float unit, const float* S) {
  const std::int64_t key0 = chunk.block * a.keys;
  for (int i = 0; i < t.count; ++i) {
    const RowResult r = RowResult::of(softmax.m[i], softmax.top[i], softmax.l[i], unit);
    float* row = t.scores<float>(a.probabilities, i);
    const std::int64_t end = min(chunk.stop, t.sequence.k_len - key0);
    for (std::int64_t key = chunk.begin; key < end && r.factor != 0; ++key) {
      const float score = S[(key - chunk.begin) * kM + i];
      if (score != -__builtin_inff()) row[(key0 + key) * a.probabilities.stride[3]] = ::expf(score * unit - r.lse);
    }
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL
