// tools/ladder/sample.cpp
#include "ladder/sample.hpp"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "base/size.hpp"

namespace falchion::tools {
namespace {

/// Number i of n that are evenly spread over `of`.
std::int64_t spread(std::int64_t i, std::int64_t n, std::int64_t of) { return n > 1 ? i * (of - 1) / (n - 1) : 0; }

std::int64_t all_heads(const ladder::Problem& p) { return std::int64_t{p.b} * p.h; }

}  // namespace

Attention Sample::attention(DType dtype) const {
  Attention a;
  a.dtype = dtype;
  a.b = heads;
  a.s_q = rows;
  a.s_k = keys;
  a.d_qk = a.d_v = of.d;
  a.score.scale = of.scale;
  a.mask = true;
  return a;
}

HostTensor Sample::mask() const {
  HostTensor out = make_tensor(DType::boolean, {1, 1, rows, keys});
  const BandMask band = of.mask();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < keys; ++j)
      store_element(out.view, 0, 0, r, j, band.keep(spread(r, rows, of.s_q), spread(j, keys, of.s_k)));
  return out;
}

HostTensor Sample::rows_of(const HostTensor& x) const { return lines_of(x, rows); }
HostTensor Sample::keys_of(const HostTensor& x) const { return lines_of(x, keys); }

HostTensor Sample::lines_of(const HostTensor& x, std::int64_t lines) const {
  const auto [b, s, h, d] = x.view.shape;
  HostTensor out = make_tensor(x.view.dtype, {heads, lines, 1, d});
  const std::int64_t bytes = d * size_of(x.view.dtype);
  for (std::int64_t n = 0; n < heads; ++n) {
    const std::int64_t head = spread(n, heads, all_heads(of));
    for (std::int64_t i = 0; i < lines; ++i) {
      const std::int64_t from = (head / h * s + spread(i, lines, s)) * h + head % h;
      std::memcpy(out.memory.data() + (n * lines + i) * bytes, x.memory.data() + from * bytes,
                  static_cast<std::size_t>(bytes));
    }
  }
  return out;
}

HostTensor Sample::statistics_of(const HostTensor& x) const {
  HostTensor out = make_tensor(DType::f32, {heads, 1, rows, 1});
  for (std::int64_t n = 0; n < heads; ++n) {
    const std::int64_t head = spread(n, heads, all_heads(of));
    for (std::int64_t r = 0; r < rows; ++r)
      store_element(out.view, n, 0, r, 0, load_element(x.view, head / of.h, head % of.h, spread(r, rows, of.s_q), 0));
  }
  return out;
}

std::string Sample::text_of_rows() const {
  return fmt::format("{} of the {} rows in {} of the {} heads", rows, of.s_q, heads, all_heads(of));
}
std::string Sample::text_of_keys() const {
  return fmt::format("{} of the {} keys in {} of the {} heads", keys, of.s_k, heads, all_heads(of));
}

Attention attention_of(const ladder::Problem& p, DType dtype) {
  Attention a;
  a.dtype = dtype;
  a.b = p.b;
  a.s_q = p.s_q;
  a.s_k = p.s_k;
  a.h_q = a.h_k = p.h;
  a.d_qk = a.d_v = p.d;
  a.band = p.causal ? Band::causal(Align::bottom_right) : Band::full();
  return a;
}

std::int64_t count_not_finite(const HostTensor& x) {
  const Tensor flat = Tensor::dense(x.memory.data(), x.view.dtype, {1, 1, 1, element_count(x.view.shape)});
  std::int64_t bad = 0;
  for (std::int64_t i = 0; i < flat.shape[3]; ++i) bad += !std::isfinite(load_element(flat, 0, 0, 0, i));
  return bad;
}

}  // namespace falchion::tools
