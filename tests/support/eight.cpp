// tests/support/eight.cpp: implements eight.hpp.
#include "support/eight.hpp"

#include <limits>

namespace falchion::testing {
namespace {

constexpr std::int64_t kBlock = 128;
constexpr float kNoScale = std::numeric_limits<float>::quiet_NaN();

/// Powers of two and others, so that a scale that is taken for another one is seen.
HostTensor make_scales(DType dtype, const Shape& shape, std::uint64_t seed) {
  HostTensor out(DType::f32, shape);
  std::uint64_t n = 0;
  out.for_each([&](auto b, auto s, auto h, auto) {
    const float share = 0.5F + static_cast<float>(random_uniform(seed, n++));
    out.set(b, s, h, 0, share * (dtype == DType::i8 ? 1.F / 40 : 1.F));
  });
  return out;
}

HostTensor codes_of(const HostTensor& x, DType dtype, Layout layout) {
  HostTensor out(dtype, x.shape(), layout);
  const float factor = dtype == DType::i8 ? 40.F : 1.F;
  x.for_each([&](auto b, auto s, auto h, auto d) {
    const float number = x.get(b, s, h, d);
    out.set(b, s, h, d, number == number || dtype != DType::i8 ? factor * number : -128.F);
  });
  return out;
}

void spoil_rows_outside(HostTensor* x, const std::vector<Instance::Rows>& rows) {
  x->for_each([&](auto b, auto s, auto h, auto) {
    bool inside = x->shape()[1] == 1;
    for (const Instance::Rows& r : rows) inside = inside || (r.batch == b && s >= r.begin && s < r.begin + r.length);
    if (!inside) x->set(b, s, h, 0, kNoScale);
  });
}

void spoil_unused_blocks(Instance* x) {
  HostTensor& scales = x->k_scale;
  HostTensor all = scales.like();
  all.for_each([&](auto b, auto s, auto h, auto) { all.set(b, s, h, 0, kNoScale); });
  for (std::int64_t b = 0; b < x->problem.b; ++b) {
    const Instance::Rows rows = x->k_rows(b);
    for (std::int64_t j = 0; j < rows.length; ++j)
      for (std::int64_t h = 0; h < x->problem.h_k; ++h) {
        const std::int64_t block = block_of_key(*x, b, j);
        all.set(rows.batch, block, h, 0, scales.get(rows.batch, block, h, 0));
      }
  }
  scales = all;
}

void add_scales(Shares shares, std::uint64_t seed, Instance* x) {
  Attention& a = x->problem;
  const bool v_of_bytes = is_8bit(dtype_of_v(a)), by_head = shares >= Shares::head, by_token = shares == Shares::token;
  const std::int64_t b = a.packed ? 1 : a.b, rows_q = x->q.shape()[1], rows_k = x->k.shape()[1];
  a.q_scale = a.k_scale = true;
  a.v_scale = v_of_bytes;
  if (by_token) a.k_scale_rows = kBlock;
  const std::int64_t blocks = a.packed ? rows_k / kBlock + a.b : (rows_k + kBlock - 1) / kBlock;
  const std::int64_t heads_q = by_head ? a.h_q : 1, heads_k = by_head ? a.h_k : 1;
  x->q_scale = make_scales(a.dtype, {by_token ? b : 1, by_token ? rows_q : 1, heads_q, 1}, seed + 11);
  x->k_scale = make_scales(a.dtype, {by_token ? b : 1, by_token ? blocks : 1, heads_k, 1}, seed + 12);
  if (v_of_bytes) x->v_scale = make_scales(dtype_of_v(a), {by_head ? b : 1, 1, heads_k, 1}, seed + 13);
  if (!by_token) return;
  std::vector<Instance::Rows> rows;
  for (std::int64_t i = 0; i < a.b; ++i) rows.push_back(x->q_rows(i));
  spoil_rows_outside(&x->q_scale, rows);
  spoil_unused_blocks(x);
}

}  // namespace

std::string name(const EightTypes& x) {
  return text(falchion::name(x.q), " ", falchion::name(x.v), " ", falchion::name(x.o));
}

std::int64_t block_of_key(const Instance& x, std::int64_t b, std::int64_t j) {
  const std::int64_t n = x.problem.k_scale_rows;
  if (n <= 1) return 0;
  return (x.problem.packed ? x.cu_k[static_cast<std::size_t>(b)] / n + b : 0) + j / n;
}

Instance make_eight(const Case& row, const EightTypes& types, Shares shares, std::uint64_t seed) {
  Instance x = make_instance(row, DType::f32, seed);
  Attention& a = x.problem;
  a.dtype = types.q;
  if (types.v != types.q) a.dtype_v = types.v;
  if (types.o != dtype_of_o(a)) a.dtype_o = types.o;
  x.q = codes_of(x.q, types.q, row.layout_);
  x.k = codes_of(x.k, types.q, row.layout_);
  x.v = codes_of(x.v, types.v, row.layout_);
  x.o = HostTensor(types.o, x.o.shape(), row.layout_ == Layout::reversed ? Layout::dense : row.layout_);
  if (shares != Shares::no) add_scales(shares, seed, &x);
  if (shares == Shares::no && types.q == DType::i8) a.score.scale = 1.F / (1600 * 8);
  return x;
}

}  // namespace falchion::testing
