// src/cpu/attention_backward/store.hpp: the steps before and after the items of the backward pass: the statistics of
// the rows, the sums over many queries, and the stores of gradients, also of those that are 0.
#pragma once

#include <math.h>  // exp: the C name, so that no inline overload is shared between levels

#include "cpu/attention_backward/items.hpp"
#include "cpu/blocks/elements.hpp"
#include "cpu/blocks/transpose.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Stores n sums times factor as a row of a gradient, rounded, in f32, or added to what is there.
template <class T>
FALCHION_INLINE void store_gradient(const AttentionBackwardCall& a, void* to, const float* sums, float factor,
                                    std::int64_t n) {
  if (a.accumulate) {
    auto* out = static_cast<float*>(to);
    for (std::int64_t c = 0; c < n; ++c) out[c] += sums[c] * factor;
  } else if (a.grads_f32) {
    store_row<f32>(static_cast<float*>(to), sums, factor, n);
  } else {
    store_row<T>(static_cast<typename T::Bits*>(to), sums, factor, n);
  }
}

/// The address of an element of a gradient of q, k or v, whose axes are (b, s, h, d).
template <class T>
FALCHION_INLINE void* gradient_at(const AttentionBackwardCall& a, const View& x, std::int64_t b, std::int64_t s,
                                  std::int64_t h) {
  const auto size = static_cast<std::int64_t>(a.grads_f32 ? sizeof(float) : sizeof(typename T::Bits));
  return static_cast<std::byte*>(x.data) + (b * x.stride[0] + s * x.stride[1] + h * x.stride[2]) * size;
}

/// Space for one tile of grad_q while dQ^T is transposed into rows, and for two rows of the statistics.
FALCHION_INLINE std::int64_t row_floats(const AttentionBackwardArgs& a) {
  return max(16 * round_up(a.d_qk, 16), 2 * round_up(a.d_v, 16));
}

/// Turns the sum of dQ^T (query_rows, kM) of one tile into rows of grad_q.
template <class T>
void store_grad_q(const AttentionBackwardArgs& a, const TileRows& t, const float* dQ, float* rows) {
  const std::int64_t width = round_up(a.d_qk, 16);
  const Sequence& s = t.sequence;
  for (int half = 0; half < t.count; half += 16) {
    for (std::int64_t c = 0; c < width; c += 16) transpose_16x16(dQ + c * kM + half, kM, rows + c, width);
    for (int i = half; i < half + 16 && i < t.count; ++i) {
      void* to = gradient_at<T>(a, a.grad_q, s.q_batch, s.q_begin + t.query(i), t.head(i));
      store_gradient<T>(a, to, rows + (i - half) * width, a.scale, a.d_qk);
    }
  }
}

/// The sums of grad_k and grad_v of a block of keys in f32, over the segments of kQueries query rows that are done.
/// Each addition to a running sum rounds at the magnitude of the sum, so over 30,000 rows grad_k drifted by 9e-7 of its
/// largest element, four times as far as torch's. The forward pass (attention_forward/segments.hpp) adds its sums with
/// a correction. Here there are fewer segments, and without a correction each one already costs two passes over sums
/// that have left the L2 cache.
class QuerySegments {
 public:
  static constexpr std::int64_t kQueries = 8192;  // 256 tiles, each of which is added as a whole

  QuerySegments() = default;
  /// Allocates no memory if no item has more rows than a segment.
  QuerySegments(const AttentionBackwardArgs& a, Arena& arena, Matrix grad_k, Matrix grad_v) {
    if (!a.packed && a.s_q * group_of(a) <= kQueries) return;
    of_[0] = {grad_k.data, arena.take<float>(a.keys * grad_k.ld), a.keys * grad_k.ld};
    of_[1] = {grad_v.data, arena.take<float>(a.keys * grad_v.ld), a.keys * grad_v.ld};
    any_ = true;
  }
  void reset() {
    queries_ = 0;
    begun_ = false;
  }
  /// Counts the rows that have been added. The sums of a whole segment are set aside and restart at 0.
  FALCHION_INLINE void count(std::int64_t rows) {
    if (!any_ || (queries_ += rows) < kQueries) return;
    queries_ = 0;
    for (const Sums& x : of_) x.put_aside(begun_);
    begun_ = true;
  }
  /// Turns the sums into those over all rows.
  void finish() {
    for (const Sums& x : of_) x.take_back(begun_);
  }

 private:
  struct Sums {
    float *part = nullptr, *before = nullptr;
    std::int64_t n = 0;

    void put_aside(bool begun) const {
      const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
      if (begun) {
        add(part, before);
      } else {
        std::memcpy(before, part, bytes);
      }
      std::memset(part, 0, bytes);
    }
    void take_back(bool begun) const {
      if (begun) add(before, part);
    }
    void add(const float* from, float* to) const {
      for (std::int64_t i = 0; i < n; i += kLanes) store(hn::Add(load(to + i), load(from + i)), to + i);
    }
  };

  Sums of_[2];
  std::int64_t queries_ = 0;  // of the current segment
  bool any_ = false, begun_ = false;
};

/// lse and D = grad_o . o - grad_lse of all rows. Lanes without a row get the lse of a row that sees no key.
template <class T>
void find_statistics(const AttentionBackwardArgs& a, const SharedRows& shared) {
  const std::int64_t heads = a.b * a.h_k, most = a.h_k == 0 ? 0 : ceil_div(longest_rows(a), kM);
  for_each_task(a, heads * most, [&](std::byte* scratch, std::int64_t task) {
    const BackwardItem item = BackwardItem::of(a, shared, task / most / a.h_k, task / most % a.h_k);
    const std::int64_t tile = task % most;
    if (tile >= item.tiles) return;
    const TileRows t = TileRows::of(a, item.sequence, item.b, item.hk, tile * kM, item.rows);
    float *lse = shared.lse + (item.first_tile + tile) * kM, *d = shared.d + (item.first_tile + tile) * kM;
    auto *grad = reinterpret_cast<float*>(scratch), *o = grad + round_up(a.d_v, 16);
    for (int i = 0; i < kM; ++i) {
      lse[i] = i < t.count ? *t.statistic(a.lse, i) : -__builtin_inff();
      d[i] = 0;
      if (lse[i] == -__builtin_inff()) continue;
      convert_row<T>(t.template row<const typename T::Bits>(a.grad_o, i), a.grad_o.stride[3], a.d_v, grad);
      convert<T>(t.template row<const typename T::Bits>(a.o, i), a.d_v, o);
      Floats sum = splat(0.F);
      std::int64_t c = 0;
      for (; c + kLanes <= a.d_v; c += kLanes) sum = hn::MulAdd(load(grad + c), load(o + c), sum);
      d[i] = sum_of_lanes(sum);
      for (; c < a.d_v; ++c) d[i] += grad[c] * o[c];
      if (a.grad_lse.data != nullptr) d[i] -= *t.statistic(a.grad_lse, i);
    }
  });
}

/// Sums the parts of grad_q in their order and stores it.
template <class T>
void sum_parts(const AttentionBackwardArgs& a, const SharedRows& shared) {
  const std::int64_t heads = a.b * a.h_k, most = a.h_k == 0 ? 0 : ceil_div(longest_rows(a), kM);
  for_each_task(a, heads * most, [&](std::byte* scratch, std::int64_t task) {
    const BackwardItem item = BackwardItem::of(a, shared, task / most / a.h_k, task / most % a.h_k);
    const std::int64_t tile = task % most;
    if (tile >= item.tiles) return;
    float* sum = shared.grad_q + (item.first_tile + tile) * shared.grad_q_floats;
    for (int part = 1; part < a.parts; ++part) {
      const float* x = sum + part * shared.tiles * shared.grad_q_floats;
      for (std::int64_t i = 0; i < shared.grad_q_floats; i += kLanes)
        store(hn::Add(load(sum + i), load(x + i)), sum + i);
    }
    const TileRows t = TileRows::of(a, item.sequence, item.b, item.hk, tile * kM, item.rows);
    store_grad_q<T>(a, t, sum, reinterpret_cast<float*>(scratch));
  });
}

/// grad_alibi: the sums of each row of a head, of all parts, and of all sequences where they share their slopes.
FALCHION_INLINE void sum_slopes(const AttentionBackwardArgs& a, const SharedRows& shared) {
  const std::int64_t entries = a.alibi_summed ? 1 : a.b;
  for (std::int64_t entry = 0; entry < entries; ++entry) {
    for (std::int64_t h = 0; h < a.h_q; ++h) {
      double sum = 0;
      const std::int64_t g = group_of(a), hk = h / g;
      for (std::int64_t b = entry; b < (a.alibi_summed ? a.b : entry + 1); ++b) {
        const BackwardItem item = BackwardItem::of(a, shared, b, hk);
        for (int part = 0; part < a.parts; ++part) {
          const float* rows = shared.slopes + (part * shared.tiles + item.first_tile) * kM;
          for (std::int64_t row = h % g; row < item.rows; row += g) sum += rows[row];
        }
      }
      float& to = static_cast<float*>(a.grad_alibi.data)[entry * a.grad_alibi.stride[0] + h * a.grad_alibi.stride[2]];
      to = static_cast<float>((a.accumulate ? to : 0.) + sum);
    }
  }
}

/// grad_sinks: -sum exp(sink - lse) D over the rows of a head, of all sequences where they share their sinks.
FALCHION_INLINE void sum_sinks(const AttentionBackwardArgs& a, const SharedRows& shared) {
  const std::int64_t entries = a.sinks_summed ? 1 : a.b;
  for_each_task(a, entries * a.h_q, [&](std::byte*, std::int64_t task) {
    const std::int64_t entry = task / a.h_q, h = task % a.h_q, g = group_of(a);
    double sum = 0;
    for (std::int64_t b = entry; b < (a.sinks_summed ? a.b : entry + 1); ++b) {
      const BackwardItem item = BackwardItem::of(a, shared, b, h / g);
      const float *lse = shared.lse + item.first_tile * kM, *d = shared.d + item.first_tile * kM;
      const float sink = sink_of(a, b, h);
      for (std::int64_t row = h % g; row < item.rows; row += g)
        if (lse[row] != -__builtin_inff()) sum -= ::exp(static_cast<double>(sink) - lse[row]) * d[row];
    }
    float& to = static_cast<float*>(a.grad_sinks.data)[entry * a.grad_sinks.stride[0] + h * a.grad_sinks.stride[2]];
    to = static_cast<float>((a.accumulate ? to : 0.) + sum);
  });
}

/// zero_unused: makes all of a gradient 0, before the rows that belong to a sequence are written.
template <class T>
void clear_gradient(const AttentionBackwardArgs& a, const View& x, std::int64_t capacity, std::int64_t heads,
                    std::int64_t d) {
  const std::int64_t batch = a.packed ? 1 : a.b;
  for_each_task(a, batch * capacity, [&](std::byte*, std::int64_t task) {
    for (std::int64_t h = 0; h < heads; ++h) {
      void* to = gradient_at<T>(a, x, task / capacity, task % capacity, h);
      std::memset(to, 0, static_cast<std::size_t>(d) * (a.grads_f32 ? sizeof(float) : sizeof(typename T::Bits)));
    }
  });
}

}  // namespace falchion::cpu::FALCHION_LEVEL
