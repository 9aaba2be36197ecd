// src/cpu/linear_attention/items.hpp: the work items of linear attention, and the loads of their rows. An item is a
// part of one sequence and one head. A walk is the order in which a sweep visits its tokens.
#pragma once

#include <math.h>  // exp: the C name, so that no inline overload is shared between levels

#include "args/cpu_linear_attention_args.hpp"
#include "cpu/blocks/elements.hpp"
#include "cpu/blocks/workers.hpp"
#include "cpu/linear_attention/chunk.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Tokens in the order of a sweep. Token i lies in row origin + i * step of the tensors.
struct Walk {
  std::int64_t batch, origin, step, count;
  bool follows;  // whether there is a token before the first one; it lies in row origin - step

  FALCHION_INLINE std::int64_t row(std::int64_t i) const { return origin + i * step; }
  template <class T>
  FALCHION_INLINE T* at(const View& x, std::int64_t i, std::int64_t head) const {
    return static_cast<T*>(x.data) + batch * x.stride[0] + row(i) * x.stride[1] + head * x.stride[2];
  }
};

/// One part of one sequence. Lengths are read from the caller's memory and clamped into the tensors, even if they are
/// invalid.
struct LinearItem {
  std::int64_t b, head, segment;
  std::int64_t batch, row, length;  // where the sequence lies, and how many tokens it has
  std::int64_t begin, end;          // tokens of the item, counted in the order of the recurrence
  bool first, last;

  static LinearItem of(const LinearAttentionArgs& a, std::int64_t b, std::int64_t head, std::int64_t segment) {
    LinearItem item{b, head, segment, b, 0, a.s, 0, 0, segment == 0, false};
    if (a.packed) {
      item.batch = 0;
      const std::int64_t total = min(a.total, a.b * a.s);  // TokenGradients have room for b * s tokens
      item.row = min(max(a.cu_seqlens[b], 0), total);
      item.length = min(max(a.cu_seqlens[b + 1], item.row), total) - item.row;
    }
    item.begin = min(item.length, segment * a.segment);
    item.end = segment + 1 < a.segments ? min(item.length, item.begin + a.segment) : item.length;
    item.last = item.end == item.length && (item.first || item.begin < item.end);
    return item;
  }
  /// Whether the segment is past the end of a short sequence, so that there is nothing to do.
  bool absent() const { return !first && begin == end; }

  Walk forwards(const LinearAttentionArgs& a) const {
    const std::int64_t origin = a.reverse ? row + length - 1 - begin : row + begin;
    return {batch, origin, a.reverse ? -1 : 1, end - begin, !first};
  }
  Walk backwards(const LinearAttentionArgs& a) const {
    const Walk w = forwards(a);
    return {batch, w.row(w.count - 1), -w.step, w.count, !last};
  }
};

/// Calls Worker(a, arena).run(item) for each segment of each sequence and each of `heads` heads.
template <class Worker, class Scope>
void run_linear_items(const LinearAttentionArgs& a, std::int64_t heads) {
  const std::int64_t items = a.b * heads * a.segments;
  for_each_worker(a, items, [&](int worker, Counter& next) {
    [[maybe_unused]] const Scope scope{};
    Arena arena(a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes);
    Worker w(a, arena);
    for (std::int64_t i; (i = next.take()) < items;) {
      const LinearItem item = LinearItem::of(a, i / a.segments / heads, i / a.segments % heads, i % a.segments);
      if (!item.absent()) w.run(item);
    }
  });
}

/// phi(x) = x > 0 ? x + 1 : e^x, rounded like the operands of the products. So sums that are made beside the products,
/// such as z, use the same numbers, and differences of the two cancel where they should.
template <class Products>
FALCHION_INLINE void elu_plus_one(float* row, std::int64_t n) {
  for (std::int64_t c = 0; c < n; c += kLanes) {
    const Floats x = load(row + c);
    const Floats e = exp2<6>(hn::Mul(hn::IfThenElse(hn::Gt(x, splat(0.f)), splat(0.f), x), splat(kLog2e)));
    store(Products::rounded(hn::IfThenElse(hn::Gt(x, splat(0.f)), hn::Add(x, splat(1.f)), e)), row + c);
  }
}

/// Prefetches the existing rows of tokens [first, first + n) of a head into L2, because the hardware prefetcher does
/// not follow rows that are kilobytes apart. It prefetches all at once, for products that do not prefetch in their
/// loops.
template <class T>
FALCHION_INLINE void prefetch_rows(const View& x, const Walk& walk, std::int64_t first, std::int64_t n,
                                   std::int64_t head, std::int64_t width) {
  constexpr auto kLine = 64 / static_cast<std::int64_t>(sizeof(typename T::Bits));
  for (std::int64_t i = first; i < min(first + n, walk.count); ++i) {
    const auto* row = walk.at<const typename T::Bits>(x, i, head);
    for (std::int64_t c = 0; c < width; c += kLine) __builtin_prefetch(row + c, 0, 2);
  }
}

/// The same, but the rows are prefetched a few at a time during the next products.
template <class T>
void fetch_rows(const View& x, const Walk& walk, std::int64_t first, std::int64_t n, std::int64_t head,
                std::int64_t width, bool to_write, Upcoming* upcoming) {
  using Bits = typename T::Bits;
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Bits));
  n = min(n, walk.count - first);
  if (n <= 0) return;
  upcoming->add(walk.at<const Bits>(x, first, head), walk.step * x.stride[1] * kBytes, n, width * kBytes, to_write);
}

/// Loads tokens [first, first + n) of a head, out->width elements each, as f32 rows. With `elu` they go through phi.
template <class T, class Products>
void load_rows(const View& x, const Walk& walk, std::int64_t first, std::int64_t n, std::int64_t head, bool elu,
               Rows* out) {
  if constexpr (!Products::kFetches) prefetch_rows<T>(x, walk, first + n, n, head, out->width);
  Floats spoiled = splat(0.f);
  for (std::int64_t i = 0; i < n; ++i) {
    float* row = out->m.row(i);
    convert<T>(walk.at<const typename T::Bits>(x, first + i, head), out->width, row, &spoiled);
    if (elu) elu_plus_one<Products>(row, out->width);
    for (std::int64_t c = out->width; c < out->m.padded(); ++c) row[c] = 0;
  }
  for (std::int64_t i = n; i < round_up(n, 16); ++i)
    std::memset(out->m.row(i), 0, static_cast<std::size_t>(out->m.padded()) * sizeof(float));
  out->spoiled = sum_of_lanes(spoiled) != 0;
  out->in_place = nullptr;
}
/// The same for rows that only the products of a chunk read. For products of bf16 they stay in the caller's memory.
template <class T, class Products>
void load_operand(const View& x, const Walk& walk, std::int64_t first, std::int64_t n, std::int64_t head, Rows* out) {
  if constexpr (Products::kBf16) {
    out->in_place = walk.at<const typename T::Bits>(x, first, head);
    out->in_place_row = walk.step * x.stride[1];
  } else {
    load_rows<T, Products>(x, walk, first, n, head, false, out);
  }
}

/// g of a token, but at least -1e4, where e^g is far below any f32. This keeps sums exact and avoids NaN from -inf.
FALCHION_INLINE double decay_at(const LinearAttentionArgs& a, const Walk& walk, std::int64_t i, std::int64_t head) {
  const float g = *walk.at<const float>(a.decay, i, head);
  return g < -1e4F ? -1e4 : g;
}
/// Loads the decays of n tokens of a sweep and returns their sum. With late = 0 each token has its own decay. With late
/// = 1 it has that of the token before it on the walk, as needed for a gradient that walks backwards.
inline double load_decay(const LinearAttentionArgs& a, const Walk& walk, std::int64_t first, std::int64_t n,
                         std::int64_t head, int late, double* f) {
  double sum = 0;
  for (std::int64_t i = 0; i < n && a.decay.data != nullptr; ++i) {
    const std::int64_t token = first + i - late;
    f[i] = token >= 0 || walk.follows ? decay_at(a, walk, token, head) : 0;
    sum += f[i];
  }
  return sum;
}

}  // namespace falchion::cpu::FALCHION_LEVEL
