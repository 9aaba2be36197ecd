// tests/support/cache.cpp: implements cache.hpp.
#include "support/cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include "base/divide.hpp"

namespace falchion::testing {
namespace {

constexpr std::int64_t kSparePages = 3;

float rotary_angle(std::int64_t position, std::int64_t pair) {
  return static_cast<float>(position) * std::pow(0.7F, static_cast<float>(pair % 16));
}
float rotary_cosine(std::int64_t position, std::int64_t pair) { return std::cos(rotary_angle(position, pair)); }
float rotary_sine(std::int64_t position, std::int64_t pair) { return std::sin(rotary_angle(position, pair)); }

/// Which page of the pool each page of a sequence is, for all sequences.
std::vector<std::int32_t> order_of(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count + kSparePages));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); seed != 0 && i > 1; --i) {
    const double draw = random_uniform(seed, i);
    std::swap(order[i - 1], order[static_cast<std::size_t>(draw * static_cast<double>(i)) % i]);
  }
  return order;
}

void copy_keys(const Instance& x, const HostTensor& from, const Instance& paged, HostTensor* to) {
  const std::int64_t size = paged.problem.page_size, columns = ceil_div(x.problem.s_k, size);
  from.for_each([&](auto b, auto j, auto h, auto d) {
    const bool cut = !paged.page_starts.empty();
    const std::int64_t column = j / size + (cut ? b * columns : 0);
    const std::int64_t at = paged.page_table.offset(cut ? 0 : b, column, 0, 0);
    to->set(static_cast<const std::int32_t*>(paged.page_table.view().data)[at], j % size, h, d, from.get(b, j, h, d));
  });
}

/// Where key j of sequence b lies, from slot 0 on; batch below 0: nowhere.
std::pair<std::int64_t, std::int64_t> slot_of(const Instance& x, std::int64_t b, std::int64_t j) {
  const std::int64_t size = x.problem.page_size;
  if (j < 0 || j >= x.problem.s_k) return {-1, 0};
  if (size == 0) return {b, j};
  const bool cut = !x.page_starts.empty();
  const std::int64_t first = cut ? x.page_starts[static_cast<std::size_t>(b)] : 0;
  const std::int64_t end = cut ? x.page_starts[static_cast<std::size_t>(b) + 1] : x.page_table.shape()[1];
  if (first + j / size >= end) return {-1, 0};
  const std::int32_t page = static_cast<const std::int32_t*>(
      x.page_table.view().data)[x.page_table.offset(cut ? 0 : b, first + j / size, 0, 0)];
  return {page >= 0 && page < x.k.shape()[0] ? page : -1, j % size};
}

HostTensor copy_of(const HostTensor& x) {
  HostTensor out = x.like();
  x.for_each([&](auto i, auto j, auto k, auto l) { out.set(i, j, k, l, x.get(i, j, k, l)); });
  return out;
}

/// f(b, i, key): each query row, and the key of its sequence that stands with it.
template <class F>
void for_each_row(const Instance& x, const F& f) {
  for (std::int64_t b = 0; b < x.problem.b; ++b) {
    const std::int64_t rows = x.q_rows(b).length;
    for (std::int64_t i = 0; i < rows; ++i) f(b, i, x.used_k[static_cast<std::size_t>(b)] - rows + i);
  }
}

void move_row(const HostTensor& from, std::int64_t batch, std::int64_t row, HostTensor* to, std::int64_t to_batch,
              std::int64_t to_row) {
  for (std::int64_t h = 0; h < from.shape()[2]; ++h)
    for (std::int64_t d = 0; d < from.shape()[3]; ++d) to->set(to_batch, to_row, h, d, from.get(batch, row, h, d));
}

void fill(HostTensor* x, std::int64_t batch, std::int64_t row, float value) {
  for (std::int64_t h = 0; h < x->shape()[2]; ++h)
    for (std::int64_t d = 0; d < x->shape()[3]; ++d) x->set(batch, row, h, d, value);
}

/// Turns a row in double, by angles that only this function and the table know.
void turn(HostTensor* x, std::int64_t batch, std::int64_t row, const Attention& a, std::int64_t position) {
  const std::int64_t half = a.rotary_dim / 2;
  for (std::int64_t h = 0; h < x->shape()[2]; ++h) {
    for (std::int64_t p = 0; p < half; ++p) {
      const std::int64_t one = a.rotary_pairs ? 2 * p : p, other = a.rotary_pairs ? 2 * p + 1 : p + half;
      const double u = x->get(batch, row, h, one), v = x->get(batch, row, h, other);
      const double c = rotary_cosine(position, p), s = rotary_sine(position, p);
      x->set(batch, row, h, one, static_cast<float>(u * c - v * s));
      x->set(batch, row, h, other, static_cast<float>(v * c + u * s));
    }
  }
}

}  // namespace

Instance with_new_keys(const Instance& x) {
  Instance out = x;
  out.problem.cache = out.problem.append = true;
  const Shape& q = x.q.shape();
  out.k_new = HostTensor(x.problem.dtype, {q[0], q[1], x.problem.h_k, x.problem.d_qk});
  out.v_new = HostTensor(x.problem.dtype, {q[0], q[1], x.problem.h_k, x.problem.d_v});
  out.k = copy_of(x.k);
  out.v = copy_of(x.v);
  out.o = x.o.like();
  if (x.problem.lse) out.lse = x.lse.like();
  for_each_row(x, [&](std::int64_t b, std::int64_t i, std::int64_t key) {
    const auto [batch, slot] = slot_of(x, b, key);
    const Instance::Rows rows = x.q_rows(b);
    if (batch < 0) return;
    move_row(x.k, batch, slot, &out.k_new, rows.batch, rows.begin + i);
    move_row(x.v, batch, slot, &out.v_new, rows.batch, rows.begin + i);
    fill(&out.k, batch, slot, std::numeric_limits<float>::quiet_NaN());
    fill(&out.v, batch, slot, std::numeric_limits<float>::quiet_NaN());
  });
  return out;
}

Rotary with_rotary(const Instance& x, std::int64_t dim, bool pairs, std::int64_t positions, Layout layout) {
  Rotary out{x, x};
  out.given.problem.cache = out.rotated.problem.cache = true;
  out.given.problem.rotary_dim = dim;
  out.given.problem.rotary_pairs = pairs;
  out.given.rotary = HostTensor(DType::f32, {1, positions, 2, dim / 2}, layout);
  out.given.rotary.for_each([&](auto, auto position, auto sine, auto p) {
    out.given.rotary.set(0, position, sine, p, sine == 0 ? rotary_cosine(position, p) : rotary_sine(position, p));
  });
  out.rotated.q = copy_of(x.q);
  out.rotated.k = copy_of(x.k);
  out.rotated.o = x.o.like();
  if (x.problem.lse) out.rotated.lse = x.lse.like();
  for_each_row(x, [&](std::int64_t b, std::int64_t i, std::int64_t key) {
    const Instance::Rows rows = x.q_rows(b);
    const std::int64_t padding = x.first_k.empty() ? 0 : x.first_k[static_cast<std::size_t>(b)];
    const std::int64_t position = std::clamp<std::int64_t>(key - padding, 0, positions - 1);
    turn(&out.rotated.q, rows.batch, rows.begin + i, out.given.problem, position);
    const auto [batch, slot] = slot_of(x, b, key);
    if (batch >= 0) turn(&out.rotated.k, batch, slot, out.given.problem, position);
  });
  return out;
}

Instance in_pages(const Instance& x, const Pages& pages) {
  Instance out = x;
  const Attention& a = x.problem;
  out.problem.cache = true;
  out.problem.page_size = pages.size;
  const std::int64_t columns = ceil_div(a.s_k, pages.size), count = a.b * columns;
  const std::vector<std::int32_t> order = order_of(count, pages.seed);
  out.page_table = HostTensor(DType::i32, pages.starts ? Shape{1, count, 1, 1} : Shape{a.b, columns, 1, 1});
  for (std::int64_t i = 0; i < count; ++i)
    *(pages.starts ? entry(&out, 0, i) : entry(&out, i / columns, i % columns)) = order[static_cast<std::size_t>(i)];
  for (std::int64_t b = 0; b <= a.b && pages.starts; ++b)
    out.page_starts.push_back(static_cast<std::int32_t>(b * columns));
  out.k = HostTensor(a.dtype, {count + kSparePages, pages.size, a.h_k, a.d_qk}, pages.layout);
  out.v = HostTensor(a.dtype, {count + kSparePages, pages.size, a.h_k, a.d_v}, pages.layout);
  copy_keys(x, x.k, out, &out.k);
  copy_keys(x, x.v, out, &out.v);
  out.o = x.o.like();
  if (a.lse) out.lse = x.lse.like();
  return out;
}

Instance with_packed_queries(const Instance& x) {
  Instance out = x;
  const Attention& a = x.problem;
  out.problem.cache = out.problem.packed = true;
  out.problem.used_q = false;
  out.used_q.clear();
  out.cu_q = {0};
  for (std::int64_t b = 0; b < a.b; ++b)
    out.cu_q.push_back(out.cu_q.back() + static_cast<std::int32_t>(x.q_rows(b).length));
  const std::int64_t total = out.cu_q.back();
  out.q = HostTensor(a.dtype, {1, total, a.h_q, a.d_qk});
  for (std::int64_t b = 0; b < a.b; ++b)
    for (std::int64_t i = 0; i < x.q_rows(b).length; ++i)
      for (std::int64_t h = 0; h < a.h_q; ++h)
        for (std::int64_t d = 0; d < a.d_qk; ++d)
          out.q.set(0, out.cu_q[static_cast<std::size_t>(b)] + i, h, d, x.q.get(b, i, h, d));
  out.o = HostTensor(a.dtype, {1, total, a.h_q, a.d_v});
  out.lse = HostTensor(DType::f32, {1, a.h_q, total, 1});
  return out;
}

void take_pages_away(Instance* paged, Instance* masked) {
  constexpr std::int32_t kNoPages[] = {-1, INT32_MAX, INT32_MIN, -7};
  const std::int64_t pages = paged->k.shape()[0], size = paged->problem.page_size;
  masked->mask.for_each([&](auto b, auto h, auto i, auto j) { masked->mask.set(b, h, i, j, 1); });
  for (std::int64_t b = 0; b < paged->problem.b; ++b) {
    for (std::int64_t n = 0; n < paged->page_table.shape()[1]; ++n) {
      if ((n + b) % 3 != 0) continue;
      const std::int64_t which = (n + b) / 3 % 5;
      *entry(paged, b, n) = which == 4 ? static_cast<std::int32_t>(pages) : kNoPages[which];
      for (std::int64_t i = 0; i < masked->problem.s_q; ++i)
        for (std::int64_t j = n * size; j < std::min((n + 1) * size, masked->problem.s_k); ++j)
          masked->mask.set(b, 0, i, j, 0);
    }
  }
}

}  // namespace falchion::testing
