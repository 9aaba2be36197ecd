// tests/support/instance.cpp: implements instance.hpp.
#include "support/instance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace falchion::testing {
namespace {

std::vector<std::int32_t> cumulative(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> out{0};
  for (const std::int32_t n : lengths) out.push_back(out.back() + n);
  return out;
}

constexpr float kSinks[] = {2.5F, -1, 0.25F, 5};

Attention problem_of(const Case& row, DType dtype) {
  Attention a = row.options;
  a.dtype = dtype;
  a.b = row.b;
  a.s_q = row.s_q;
  a.s_k = row.s_k;
  a.h_q = row.h_q;
  a.h_k = row.h_k;
  a.d_qk = row.d_qk;
  a.d_v = row.d_v;
  a.packed = !row.lengths_q.empty();
#define FALCHION_LENGTHS(key, ...) a.key = !row.key##_.empty();
#include "base/fields.def"
  return a;
}

void make_inputs(const Case& row, std::uint64_t seed, Instance* x) {
  const Attention& a = x->problem;
  const std::int64_t spare = a.packed ? 3 : 0;  // These rows lie past the last sequence and belong to none.
  const Shape q = a.packed ? Shape{1, x->cu_q.back() + spare, a.h_q, a.d_qk} : Shape{a.b, a.s_q, a.h_q, a.d_qk};
  const Shape k = a.packed ? Shape{1, x->cu_k.back() + spare, a.h_k, a.d_qk} : Shape{a.b, a.s_k, a.h_k, a.d_qk};
  x->q = HostTensor(a.dtype, q, row.layout_);
  x->k = HostTensor(a.dtype, k, row.layout_);
  x->v = HostTensor(a.dtype, {k[0], k[1], k[2], a.d_v}, row.layout_);
  x->q.fill_normal(seed);
  x->k.fill_normal(seed + 1);
  x->v.fill_normal(seed + 2);
  each_operand(a, Pass::forward, *x, [&](const OperandField& of, HostTensor& numbers, bool wanted) {
    if (of.shape != OperandField::head_numbers || !wanted) return;
    numbers = HostTensor(DType::f32, {row.slopes_by_batch_ ? a.b : 1, 1, a.h_q, 1});
    if (&of == operand_named("sinks")) {  // below, among and above the scores
      numbers.for_each([&](auto b, auto, auto h, auto) { numbers.set(b, 0, h, 0, kSinks[(h + 3 * b) % 4]); });
      return;
    }
    numbers.for_each([&](auto b, auto, auto h, auto) {
      numbers.set(b, 0, h, 0,
                  std::exp2(-8.f * static_cast<float>(h + 1) / static_cast<float>(a.h_q) - static_cast<float>(b)));
    });
  });
  if (a.bias) {
    const DType dtype = row.bias_ == Case::Bias::same ? a.dtype : DType::f32;
    const bool wide = row.bias_ != Case::Bias::broadcast;
    x->bias = HostTensor(dtype, {wide ? a.b : 1, wide ? a.h_q : 1, wide ? a.s_q : 1, a.s_k});
    x->bias.fill_normal(seed + 3);
    std::uint64_t n = 0;
    x->bias.for_each([&](auto i, auto j, auto k_, auto l) {
      if (random_uniform(seed + 4, n++) < 0.05) x->bias.set(i, j, k_, l, -std::numeric_limits<float>::infinity());
    });
  }
  if (a.mask) {
    x->mask = HostTensor(DType::boolean, {a.b, 1, a.s_q, a.s_k});
    std::uint64_t n = 0;
    x->mask.for_each([&](auto i, auto j, auto k_, auto l) {
      x->mask.set(i, j, k_, l, random_uniform(seed + 5, n++) < 0.7 ? 1 : 0);
    });
  }
}

/// Puts NaN into every row of x that belongs to no sequence.
void spoil_padding(HostTensor* x, const std::vector<Instance::Rows>& rows) {
  x->for_each([&](auto b, auto s, auto h, auto d) {
    const bool inside = std::any_of(rows.begin(), rows.end(), [&](const Instance::Rows& r) {
      return r.batch == b && s >= r.begin && s < r.begin + r.length;
    });
    if (!inside) x->set(b, s, h, d, std::numeric_limits<float>::quiet_NaN());
  });
}

Instance::Rows rows_of(std::int64_t b, const std::vector<std::int32_t>& cu, const std::vector<std::int32_t>& used,
                       std::int64_t s, const std::vector<std::int32_t>& first) {
  const auto i = static_cast<std::size_t>(b);
  Instance::Rows rows{b, 0, s};
  if (!cu.empty()) rows = {0, cu[i], cu[i + 1] - cu[i]};
  if (!used.empty()) rows.length = std::clamp<std::int64_t>(used[i], 0, rows.length);
  const std::int64_t skipped = first.empty() ? 0 : std::clamp<std::int64_t>(first[i], 0, rows.length);
  rows.begin += skipped;
  rows.length -= skipped;
  return rows;
}

void make_outputs(DType o_dtype, Layout layout, Instance* x) {
  const Attention& a = x->problem;
  const Shape& q = x->q.shape();
  x->o = HostTensor(o_dtype, {q[0], q[1], q[2], a.d_v}, layout == Layout::reversed ? Layout::dense : layout);
  if (a.lse) x->lse = HostTensor(DType::f32, {q[0], q[2], q[1], 1});
  if (a.row_max) x->row_max = HostTensor(DType::f32, {q[0], q[2], q[1], 1}, Layout::gaps);
  if (a.probabilities) x->probabilities = HostTensor(DType::f32, {a.b, a.h_q, a.s_q, a.s_k});
}

}  // namespace

const std::vector<Case>& cases() {
  using enum Align;
  using enum Layout;
  using Bias = Case::Bias;
  static const std::vector<Case> all = {
#define CASE(name, b, s_q, s_k, h_q, h_k, d_qk, d_v, ...) Case{#name, b, s_q, s_k, h_q, h_k, d_qk, d_v} __VA_ARGS__,
#include "cases.def"
#undef CASE
  };
  return all;
}

Instance::Rows Instance::q_rows(std::int64_t b) const { return rows_of(b, cu_q, used_q, problem.s_q, {}); }
Instance::Rows Instance::k_rows(std::int64_t b) const { return rows_of(b, cu_k, used_k, problem.s_k, first_k); }

Operands Instance::operands() const {
  Operands x;
#define FALCHION_OPERAND(name, ...) x.name = name.view();
#define FALCHION_LENGTHS(key, ...) \
  if (problem.key) x.key = key.data();
#include "base/fields.def"
  if (!problem.alibi) x.alibi = {};
  if (problem.packed) {
    x.cu_seqlens_q = cu_q.data();
    if (!problem.cache) x.cu_seqlens_k = cu_k.data();
  }
  if (!page_starts.empty()) x.page_starts = page_starts.data();
  x.rng = rng;
  return x;
}

std::vector<const HostTensor*> Instance::tensors() const {
  std::vector<const HostTensor*> out;
  each_operand({}, Pass::forward, *this, [&](const OperandField& of, const HostTensor& tensor, bool) {
    if (of.forward != OperandField::neither) out.push_back(&tensor);
  });
  return out;
}

void Instance::poison_outputs() {
  for (HostTensor* x : {&o, &lse, &row_max, &probabilities}) x->fill_poison();
}

Instance make_instance(const Case& row, DType dtype, std::uint64_t seed) {
  Instance x;
  x.problem = problem_of(row, dtype);
  if (x.problem.packed) {
    x.cu_q = cumulative(row.lengths_q);
    x.cu_k = cumulative(row.lengths_k);
  }
#define FALCHION_LENGTHS(key, ...) x.key = row.key##_;
#include "base/fields.def"
  make_inputs(row, seed, &x);
  std::vector<Instance::Rows> q, k;
  for (std::int64_t b = 0; b < x.problem.b; ++b) {
    q.push_back(x.q_rows(b));
    k.push_back(x.k_rows(b));
  }
  spoil_padding(&x.q, q);
  spoil_padding(&x.k, k);
  spoil_padding(&x.v, k);
  make_outputs(dtype, row.layout_, &x);
  return x;
}

Instance with_wide_output(const Instance& from) {
  Instance x = from;
  make_outputs(DType::f32, Layout::dense, &x);
  return x;
}

}  // namespace falchion::testing
