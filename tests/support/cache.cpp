// tests/support/cache.cpp: implements cache.hpp.
#include "support/cache.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/divide.hpp"

namespace falchion::testing {
namespace {

constexpr std::int64_t kSparePages = 3;

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

}  // namespace

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

}  // namespace falchion::testing
