// tools/problem/instance.cpp
#include "problem/instance.hpp"
#include "api/data_of.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "api/operand_checks.hpp"
#include "api/validate.hpp"
#include "plan/plan_data.hpp"
#include "problem/device_copy.hpp"
#include "problem/levels.hpp"
#include "problem/random_bits.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// What makes scores: the usual slopes, one mask for all heads, one bias for all sequences.
HostTensor random_operand(const Attention& a, const OperandField& of, std::uint64_t seed) {
  if (of.shape == OperandField::head_numbers) return make_head_numbers(usual_slopes(a.h_q));
  if (of.type != OperandField::boolean) return make_random(DType::f32, {1, a.h_q, a.s_q, a.s_k}, seed);
  const HostTensor numbers = make_random(DType::f32, {a.b, 1, a.s_q, a.s_k}, seed);
  HostTensor out = make_tensor(DType::boolean, numbers.view.shape);
  const auto n = static_cast<std::size_t>(element_count(numbers.view.shape));
  for (std::size_t i = 0; i < n; ++i)
    out.memory.as<std::uint8_t>()[i] = numbers.memory.as<float>()[i] > -0.6745F;  // the lowest quarter is dropped
  return out;
}

/// Of numbers of 8 bits: by head, or by block of keys, such that numbers are about 1.
HostTensor make_scales(const Attention& a, const OperandField& of, const Operands& extents) {
  std::array<std::int64_t, 4> shape = shape_of(a, extents, of);
  if (a.k_scale_rows <= 1 || &of != operand_named("k_scale")) shape[0] = shape[1] = 1;
  HostTensor out = make_tensor(DType::f32, shape);
  const DType dtype = &of == operand_named("q_scale")   ? a.dtype
                      : &of == operand_named("k_scale") ? dtype_of_k(a)
                                                        : dtype_of_v(a);
  std::fill_n(out.memory.as<float>(), element_count(shape), dtype == DType::i8 ? 1.F / 40 : 1.F);
  return out;
}

bool is_scale(const OperandField& of) {
  return of.shape == OperandField::key_numbers || of.shape == OperandField::query_numbers;
}

/// Makes what random and packed instances have in common once q, k and v are made.
void add_features(Instance* x, std::uint64_t seed) {
  const Attention& a = x->problem;
  if (a.dropout > 0) x->rng = {seed, std::uint64_t{1} << 40};
  each_operand(a, Pass::forward, *x, [&](const OperandField& of, HostTensor& tensor, bool wanted) {
    if (of.forward != OperandField::reads) return;
    const std::uint64_t stream = seed++;  // q, k and v have had the first three
    if (!wanted || of.has_rows() || is_given(tensor.view)) return;
    tensor = is_scale(of) ? make_scales(a, of, x->operands()) : random_operand(a, of, stream);
  });
  const auto spread = [&](std::int64_t s) {  // 0, ..., s: an empty sequence among others
    std::vector<std::int32_t> used;
    for (std::int64_t b = 0; b < a.b; ++b)
      used.push_back(static_cast<std::int32_t>(s * b / std::max<std::int64_t>(a.b - 1, 1)));
    return used;
  };
#define FALCHION_LENGTHS(key, side, usual, has, option, text) \
  if (a.key) x->key = spread((usual) > 0 ? (usual) : a.s_##side / 2);
#include "base/fields.def"
}

std::vector<std::int32_t> cumulative(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> out{0};
  for (const std::int64_t n : lengths) out.push_back(out.back() + static_cast<std::int32_t>(n));
  return out;
}

}  // namespace

void OperandTensors::attach(Operands* x) const {
#define FALCHION_OPERAND(name, ...) \
  if (is_given(name.view)) x->name = name.view;
#include "base/fields.def"
}

Operands Instance::operands() const {
  Operands x;
  attach(&x);
  each_operand(problem, Pass::forward, x, [](const OperandField& of, Tensor& tensor, bool wanted) {
    if (of.forward != OperandField::reads || !wanted) tensor = {};
  });
  if (problem.packed) x.cu_seqlens_q = cu_q.data();
  if (problem.packed && !problem.cache) x.cu_seqlens_k = cu_k.data();
  if (!page_starts.empty()) x.page_starts = page_starts.data();
#define FALCHION_LENGTHS(key, ...) \
  if (problem.key) x.key = key.data();
#include "base/fields.def"
  x.rng = rng;
  return x;
}

void Instance::require_valid() const {
  require(validate_problem(problem, Pass::forward));
  Operands x = operands();
  const Outputs outputs(*this, dtype_of_o(problem));
  outputs.attach(&x);
  require(validate_operands(problem, Pass::forward, x));
  require(validate_lengths(problem, x));
}

Instance make_instance(const Attention& a, std::uint64_t seed, Layout layout) {
  if (a.cache) return make_cache_instance(a, Lengths(static_cast<std::size_t>(a.b), a.s_k), seed, layout);
  Instance x;
  x.problem = a;
  x.q = make_random(a.dtype, {a.b, a.s_q, a.h_q, a.d_qk}, seed, layout);
  x.k = make_random(dtype_of_k(a), {a.b, a.s_k, a.h_k, a.d_qk}, seed + 1, layout);
  x.v = make_random(dtype_of_v(a), {a.b, a.s_k, a.h_k, a.d_v}, seed + 2, layout);
  add_features(&x, seed);
  return x;
}

Instance make_cache_instance(const Attention& a, const Lengths& used, std::uint64_t seed, Layout layout) {
  Instance x;
  x.problem = a;
  Operands extents;  // what the problem alone does not say
  extents.q.shape = {a.b, a.s_q, a.h_q, a.d_qk};
  if (a.page_size > 0) {
    const PageTable table = make_page_table(a, used, {}, {.shuffled = true}, seed);
    x.page_table = make_tensor(DType::i32, {table.rows, table.columns, 1, 1});
    std::copy(table.entries.begin(), table.entries.end(), x.page_table.memory.as<std::int32_t>());
    extents.k.shape[0] = table.count;
    extents.page_table = x.page_table.view;
  }
  extents.rotary.shape[1] = a.s_k;
  std::uint64_t stream = seed;
  each_operand(a, Pass::forward, x, [&](const OperandField& of, HostTensor& tensor, bool wanted) {
    if (!wanted || of.forward != OperandField::reads) return;
    const DType dtype = of.type == OperandField::as_k   ? dtype_of_k(a)
                        : of.type == OperandField::as_v ? dtype_of_v(a)
                                                        : a.dtype;
    if (of.has_rows()) tensor = make_random(dtype, shape_of(a, extents, of), stream++, layout);
    if (is_scale(of)) tensor = make_scales(a, of, extents);
    if (of.shape == OperandField::rotary) tensor = make_random(DType::f32, shape_of(a, extents, of), stream++);
  });
  add_features(&x, seed);
  x.used_k.assign(used.begin(), used.end());
  return x;
}

Instance make_packed_instance(Attention a, const std::vector<std::int64_t>& lengths_q,
                              const std::vector<std::int64_t>& lengths_k, std::uint64_t seed) {
  Instance x;
  a.packed = true;
  a.b = static_cast<std::int64_t>(lengths_q.size());
  a.s_q = *std::max_element(lengths_q.begin(), lengths_q.end());
  a.s_k = *std::max_element(lengths_k.begin(), lengths_k.end());
  x.problem = a;
  x.cu_q = cumulative(lengths_q);
  x.cu_k = cumulative(lengths_k);
  x.q = make_random(a.dtype, {1, x.cu_q.back(), a.h_q, a.d_qk}, seed);
  x.k = make_random(dtype_of_k(a), {1, x.cu_k.back(), a.h_k, a.d_qk}, seed + 1);
  x.v = make_random(dtype_of_v(a), {1, x.cu_k.back(), a.h_k, a.d_v}, seed + 2);
  add_features(&x, seed);
  return x;
}

Lengths ragged_lengths(std::int64_t b, std::int64_t mean, std::int64_t most) {
  constexpr double unit = 2.6428e-5;  // over the deviation of a sum of four numbers from 0 to 65535
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < b; ++i) {
    const std::uint64_t z = random_bits(1, static_cast<std::uint64_t>(i));
    const double sum = static_cast<double>((z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48));
    numbers.push_back(std::exp(0.7 * unit * (sum - 131070)));
  }
  const double all = std::accumulate(numbers.begin(), numbers.end(), 0.0);
  Lengths out;
  for (const double x : numbers)
    out.push_back(std::clamp<std::int64_t>(std::llround(x / all * static_cast<double>(b * mean)), 1, most));
  return out;
}

std::vector<float> usual_slopes(std::int64_t heads) {
  std::vector<float> out;
  for (std::int64_t h = 0; h < heads; ++h)
    out.push_back(static_cast<float>(std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads))));
  return out;
}

HostTensor make_head_numbers(const std::vector<float>& values) {
  HostTensor out = make_tensor(DType::f32, {1, 1, static_cast<std::int64_t>(values.size()), 1});
  std::copy(values.begin(), values.end(), out.memory.as<float>());
  return out;
}

Outputs::Outputs(const Instance& x, DType o_dtype, Layout layout) {
  const Operands inputs = x.operands();
  each_operand(x.problem, Pass::forward, *this, [&](const OperandField& of, HostTensor& tensor, bool wanted) {
    if (of.forward != OperandField::writes || !wanted) return;
    const Shape shape = shape_of(x.problem, inputs, of);
    tensor = of.has_rows() ? make_poisoned(o_dtype, shape, layout) : make_poisoned(DType::f32, shape);
  });
}

void Outputs::clear() const {
  each_operand({}, Pass::forward, *this, [](const OperandField&, const HostTensor& t, bool) {
    if (t.memory.size() > 0) std::memset(t.memory.data(), 0, t.memory.size());
  });
}

Prepared::Prepared(const Attention& problem, Pass pass, const Target& target) {
  require(Plan::make(problem, pass, target, &plan_), "plan");
  take_workspace();
}

Prepared::Prepared(const LinearAttention& problem, Pass pass, const Target& target) {
  require(Plan::make(problem, pass, target, &plan_), "plan");
  take_workspace();
}

Prepared::Prepared(const Gemm& problem, const Target& target) {
  require(Plan::make(problem, target, &plan_), "plan");
  take_workspace();
}

Prepared::Prepared(const Norm& problem, const Target& target) : Prepared(problem, Pass::forward, target) {}

Prepared::Prepared(const Norm& problem, Pass pass, const Target& target) {
  require(Plan::make(problem, pass, target, &plan_), "plan");
  take_workspace();
}

Prepared::Prepared(const Quantise& problem, const Target& target) {
  require(Plan::make(problem, target, &plan_), "plan");
  take_workspace();
}

void Prepared::take_workspace() {
  if (!on_gpu()) workspace_ = Buffer(plan_.workspace_bytes());
}

bool Prepared::on_gpu() const { return tools::on_gpu(plan_); }

Status Prepared::run(const Operands& operands) const {
  if (on_gpu()) return cuda::run_on_device(plan_, data_of(plan_)->attention().problem, operands);
  return plan_.run(operands, workspace_.data(), workspace_.size());
}

Status Prepared::run(const LinearOperands& operands) const {
  if (on_gpu()) return cuda::run_on_device(plan_, data_of(plan_)->linear().problem, operands);
  return plan_.run(operands, workspace_.data(), workspace_.size());
}

Status Prepared::run(const GemmOperands& operands) const {
  if (on_gpu()) return cuda::run_on_device(plan_, data_of(plan_)->gemm().problem, operands);
  return plan_.run(operands, workspace_.data(), workspace_.size());
}

Status Prepared::run(const NormOperands& operands) const {
  if (on_gpu()) return cuda::run_on_device(plan_, data_of(plan_)->norm().problem, operands);
  return plan_.run(operands, workspace_.data(), workspace_.size());
}

Status Prepared::run(const QuantiseOperands& operands) const {
  if (on_gpu()) return cuda::run_on_device(plan_, data_of(plan_)->quantise().problem, operands);
  return plan_.run(operands, workspace_.data(), workspace_.size());
}

}  // namespace falchion::tools
