// src/cpu/attention_forward/store.hpp: the steps "finish" and "store": O = O / l and lse = m + log l, the partial
// results of split keys and their merge, and the probabilities.
#pragma once

#include <math.h>  // logf, expf: the C names, so that no inline overload is shared between levels

#include "cpu/attention_forward/items.hpp"
#include "cpu/blocks/elements.hpp"
#include "cpu/blocks/online_softmax.hpp"
#include "cpu/blocks/rows.hpp"
#include "cpu/blocks/scales_of_q.hpp"
#include "cpu/blocks/score_mask.hpp"
#include "cpu/blocks/transpose.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The end of a row, whose sink has been added once.
struct RowEnd {
  float factor, lse;  // factor: of O
};

/// The result of the softmax of one row: O and l are sums over e^((s - m) unit), and top is the true maximum. m and top
/// are in units of S. A row that saw no key has l = 0.
struct RowResult {
  float m, l, top;

  FALCHION_INLINE float factor() const { return l == 0 ? 0 : 1 / l; }  // of O, before the sink
  /// sink: its score, -inf without one.
  FALCHION_INLINE RowEnd end(float unit, float sink) const {
    if (sink == -__builtin_inff()) return {factor(), l == 0 ? sink : m * unit + ::logf(l)};
    const float keys = l == 0 ? -__builtin_inff() : m * unit, high = keys > sink ? keys : sink;
    const float shrink = ::expf(keys - high), all = l * shrink + ::expf(sink - high);
    return {l == 0 ? 0 : shrink / all, high + ::logf(all)};
  }
  /// NaN where the LSE is NaN: a row with a score of +inf has no softmax.
  FALCHION_INLINE float row_max(float unit) const { return l == 0 ? -__builtin_inff() : l == l ? top * unit : l; }
};

// ---- partial results: (rows, h_q, splits) records of O / l (d_v), then m, l and top, all f32 ------------------------
/// A record keeps m and l, because the LSE alone is not exact enough: in f32 an LSE of 1e4 has an error of a
/// thousandth, and near 1e9 the LSEs of two different parts may be the same number.
FALCHION_INLINE std::int64_t partial_floats(const AttentionArgs& a) { return a.d_v + 3; }
FALCHION_INLINE std::int64_t partial_rows(const AttentionArgs& a) { return a.packed ? a.total_q : a.b * a.s_q; }
FALCHION_INLINE std::size_t partial_bytes(const AttentionArgs& a) {
  if (a.splits <= 1) return 0;
  return static_cast<std::size_t>(partial_rows(a) * a.h_q * a.splits * partial_floats(a)) * sizeof(float);
}
FALCHION_INLINE float* partial(const AttentionArgs& a, const Sequence& s, std::int64_t query, std::int64_t head,
                               int part) {
  const std::int64_t row = (a.packed ? 0 : s.q_batch * a.s_q) + s.q_begin + query;
  return a.partials + ((row * a.h_q + head) * a.splits + part) * partial_floats(a);
}
FALCHION_INLINE RowResult partial_result(const AttentionArgs& a, const float* record) {
  return {record[a.d_v], record[a.d_v + 1], record[a.d_v + 2]};
}

/// Stores a row of O. The instruction that converts to bf16 flushes denormals, which the tolerance beside V of e4m3
/// does not grant.
template <class T>
FALCHION_INLINE void store_output(const AttentionArgs& a, typename T::Bits* out, const float* in, float factor) {
#if FALCHION_TILES
  if (std::is_same_v<T, bf16> && has_bytes_of_q(a)) {
    for (std::int64_t c = 0; c < a.d_v; ++c) out[c] = T::from_float(in[c] * factor);
    return;
  }
#endif
  store_row<T>(out, in, factor, a.d_v);
}

/// Writes one finished row to the outputs, or to its partial record when the keys are split.
template <class T>
FALCHION_INLINE void finish_row(const AttentionArgs& a, const TileRows& t, int lane, int part, const RowResult& r,
                                const float* o) {
  if (a.splits > 1) {
    float* record = partial(a, t.sequence, t.query(lane), t.head(lane), part);
    store_row<f32>(record, o, r.factor(), a.d_v);
    record[a.d_v] = r.m;
    record[a.d_v + 1] = r.l;
    record[a.d_v + 2] = r.top;
    return;
  }
  const float unit = score_unit(a);
  const RowEnd end = r.end(unit, sink_of(a, t.b, t.head(lane)));
  auto* out = t.row<typename T::Bits>(a.o, lane);
  if (r.l == 0)  // o itself may be NaN, since a probability of 0 times an Inf of V is NaN
    clear_row<T>(out, a.d_v);
  else
    store_output<T>(a, out, o, end.factor * scale_of_o(a, t.sequence, t.hk));
  if (a.lse.data != nullptr) *t.statistic(a.lse, lane) = end.lse;
  if (a.row_max.data != nullptr) *t.statistic(a.row_max, lane) = r.row_max(unit);
}

/// Transposes O^T (d_v, kM) of one tile into rows and stores them. `rows` has space for 16 rows.
template <class T>
FALCHION_INLINE void store_tile(const AttentionArgs& a, const WorkItem& item, const TileRows& t,
                                const OnlineSoftmax& softmax, const float* O, float* rows) {
  const std::int64_t width = round_up(a.d_v, 16);
  for (int half = 0; half < t.count; half += 16) {
    for (std::int64_t c = 0; c < width; c += 16) transpose_16x16(O + c * kM + half, kM, rows + c, width);
    for (int i = half; i < half + 16 && i < t.count; ++i) {
      const RowResult r{softmax.m[i], softmax.l[i], softmax.top[i]};
      finish_row<T>(a, t, i, item.part, r, rows + (i - half) * width);
    }
  }
}

/// Merges the parts of one row with the weights l e^((m - max m) unit). A part that saw no key is skipped, since it may
/// hold NaN. A part whose weight rounds to 0 is added nevertheless, so that its NaN is not lost.
template <class T>
void combine_row(const AttentionArgs& a, std::int64_t b, const Sequence& s, std::int64_t query, std::int64_t head,
                 float* sum) {
  const float unit = score_unit(a);
  RowResult all{-__builtin_inff(), 0, -__builtin_inff()};
  for (int p = 0; p < a.splits; ++p) {
    const RowResult of_part = partial_result(a, partial(a, s, query, head, p));
    all.m = of_part.m > all.m ? of_part.m : all.m;
    all.top = of_part.top > all.top ? of_part.top : all.top;
  }
  for (std::int64_t c = 0; c < a.d_v; ++c) sum[c] = 0;
  for (int p = 0; p < a.splits; ++p) {
    const float* record = partial(a, s, query, head, p);
    const RowResult of_part = partial_result(a, record);
    if (of_part.l == 0) continue;
    const float weight = of_part.l * ::expf((of_part.m - all.m) * unit);
    all.l += weight;
    for (std::int64_t c = 0; c < a.d_v; ++c) sum[c] += weight * record[c];
  }
  const RowEnd end = all.end(unit, sink_of(a, b, head));
  const std::int64_t row = s.q_begin + query;
  auto* o =
      static_cast<typename T::Bits*>(a.o.data) + s.q_batch * a.o.stride[0] + row * a.o.stride[1] + head * a.o.stride[2];
  store_output<T>(a, o, sum, end.factor * scale_of_o(a, s, head / (a.h_q / a.h_k)));
  auto statistic = [&](const View& x, float value) {
    if (x.data == nullptr) return;
    static_cast<float*>(x.data)[s.q_batch * x.stride[0] + head * x.stride[1] + row * x.stride[2]] = value;
  };
  statistic(a.lse, end.lse);
  statistic(a.row_max, all.row_max(unit));
}

template <class T>
void combine(const AttentionArgs& a) {
  const std::int64_t tasks = a.b * a.h_q;
  for_each_worker(a, tasks, [&](int worker, Counter& next) {
    auto* sum = reinterpret_cast<float*>(a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes);
    for (std::int64_t i; (i = next.take()) < tasks;) {
      const std::int64_t b = i / a.h_q;
      const Sequence s = Sequence::of(a, b);
      for (std::int64_t query = 0; query < s.q_len; ++query) combine_row<T>(a, b, s, query, i % a.h_q, sum);
    }
  });
}

// ---- probabilities (b, h_q, s_q, s_k) f32: cleared, then e^(s - m) key by key, then divided by their own sum --------
FALCHION_INLINE void clear_probabilities(const AttentionArgs& a, const TileRows& t) {
  for (int i = 0; i < t.count; ++i) {
    const std::int64_t step = a.probabilities.stride[3];
    float* row = t.scores<float>(a.probabilities, i) - t.sequence.k_first * step;
    for (std::int64_t j = 0; j < a.s_k; ++j) row[j * step] = 0;
  }
}
/// Writes e^(s - m) of keys [begin, end) of lane i. Their scores begin at `scores` and lie `step` apart. In a row whose
/// result is NaN every visible key gets NaN, also one with a score of -inf.
template <class T>
FALCHION_INLINE void weigh_keys(const AttentionArgs& a, const TileRows& t, int i, std::int64_t begin, std::int64_t end,
                                const RowResult& r, const float* scores, std::int64_t step) {
  if (r.l == 0) return;
  float* row = t.scores<float>(a.probabilities, i);
  const float unit = score_unit(a);
  const bool is_nan = r.l != r.l;
  for (std::int64_t key = begin; key < end; ++key) {
    float& weight = row[key * a.probabilities.stride[3]];
    const float score = scores[(key - begin) * step];
    if (is_nan) {
      weight = sees<T>(a, t, i, key) ? r.l : 0;
    } else if (score != -__builtin_inff()) {
      weight = ::expf((score - r.m) * unit);
    }
  }
}
/// Divides by the sum of the numbers that weigh_keys() wrote, relative to m (one a row), and of the sink. Neither l nor
/// the LSE is a good divisor: l is the sum of the kernel's own e^(s - m), where 16-bit types may round m by a few
/// thousandths, and an f32 LSE near 1e9 is the same number for one key and for three.
FALCHION_INLINE void divide_by_sums(const AttentionArgs& a, const TileRows& t, const float* m) {
  const double unit = score_unit(a);
  const std::int64_t step = a.probabilities.stride[3];
  for (int i = 0; i < t.count; ++i) {
    float* row = t.scores<float>(a.probabilities, i);
    double sum = 0;
    for (std::int64_t j = t.begin[i]; j < t.end[i]; ++j) sum += row[j * step];
    if (!(sum > 0)) continue;  // the row sees no key, or its visible scores are all NaN
    if (a.sinks.data != nullptr) sum += ::exp(sink_of(a, t.b, t.head(i)) - m[i] * unit);
    for (std::int64_t j = t.begin[i]; j < t.end[i]; ++j) row[j * step] = static_cast<float>(row[j * step] / sum);
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL
