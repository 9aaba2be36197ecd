// tests/support/linear.cpp: implements linear.hpp.
#include "support/linear.hpp"
#include "api/data_of.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/linear_attention.hpp"
#include "plan/plan_data.hpp"
#include "problem/device_copy.hpp"
#include "ref/linear_attention.hpp"
#include "support/compare.hpp"

namespace falchion::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

LinearAttention problem_of(const LinearCase& row, DType dtype) {
  LinearAttention a;
  a.dtype = dtype;
  a.b = row.b;
  a.s = row.s;
  a.h_qk = row.h_qk;
  a.h_v = row.h_v;
  a.d_qk = row.d_qk;
  a.d_v = row.d_v;
  a.scale = row.scale_;
  a.decay = row.decay_;
  a.normalise = row.normalise_;
  a.reverse = row.reverse_;
  a.feature_map = row.elu_ ? FeatureMap::elu_plus_one : FeatureMap::identity;
  a.packed = !row.lengths.empty();
  a.initial_state = row.initial_;
  a.final_state = row.final_;
  return a;
}

void fill_decay(bool strong, std::uint64_t seed, HostTensor* x) {
  std::uint64_t n = 0;
  const Decay kind = x->shape()[1] == 1 ? Decay::head : Decay::token;
  x->for_each([&](auto i, auto j, auto h, auto l) {
    const double uniform = random_uniform(seed, n++);
    double g = kind == Decay::head ? std::log1p(-std::exp2(-5.0 - static_cast<double>(h))) : -0.1 * uniform;
    if (strong) g = kind == Decay::head ? -3.0 * uniform : uniform < 0.02 ? -90 : -2 * uniform;
    x->set(i, j, h, l, static_cast<float>(g));
  });
}

Layout output_layout(Layout layout) { return layout == Layout::reversed ? Layout::dense : layout; }

void make_outputs(const HostTensor& like_state, DType dtype, Layout layout, LinearInstance* x) {
  const LinearAttention& a = x->problem;
  const Shape q = x->q.shape(), v = x->v.shape(), z{a.b, a.h_v, a.d_qk, 1};
  const auto state_like = [&](bool there) { return there ? like_state.like() : HostTensor(); };
  x->o = HostTensor(dtype, v, output_layout(layout));
  x->grad_q = HostTensor(dtype, q, output_layout(layout));
  x->grad_k = HostTensor(dtype, q, output_layout(layout));
  x->grad_v = HostTensor(dtype, v, output_layout(layout));
  x->final_state = state_like(a.final_state);
  x->grad_initial_state = state_like(a.initial_state);
  if (a.normalise && a.final_state) x->final_z = HostTensor(DType::f32, z, Layout::gaps);
  if (a.normalise && a.initial_state) x->grad_initial_z = HostTensor(DType::f32, z);
  if (a.decay != Decay::none) x->grad_decay = HostTensor(DType::f32, x->decay.shape(), output_layout(layout));
}

/// Puts NaN into every row that belongs to no sequence.
void spoil_padding(const LinearInstance& x, HostTensor* tensor) {
  tensor->for_each([&](auto b, auto s, auto h, auto d) {
    if (!x.is_row(b, s)) tensor->set(b, s, h, d, std::numeric_limits<float>::quiet_NaN());
  });
}

}  // namespace

const std::vector<LinearCase>& linear_cases() {
  using enum Decay;
  using enum Layout;
  static const std::vector<LinearCase> all = {
#define CASE(name, b, s, h_qk, h_v, d_qk, d_v, ...) LinearCase{#name, b, s, h_qk, h_v, d_qk, d_v} __VA_ARGS__,
#include "linear_cases.def"
#undef CASE
  };
  return all;
}

bool LinearInstance::is_row(std::int64_t, std::int64_t row) const { return !problem.packed || row < cu.back(); }

LinearOperands LinearInstance::operands(Pass pass) const {
  LinearOperands x;
  x.q = q.view();
  x.k = k.view();
  x.v = v.view();
  x.decay = decay.view();
  x.initial_state = initial_state.view();
  x.initial_z = initial_z.view();
  if (problem.packed) x.cu_seqlens = cu.data();
  if (pass == Pass::forward) {
    x.o = o.view();
    x.final_state = final_state.view();
    x.final_z = final_z.view();
    if (in_place) {
      x.initial_state = x.final_state;
      x.initial_z = x.final_z;
    }
    return x;
  }
  x.grad_o = grad_o.view();
  x.grad_final_state = grad_final_state.view();
  x.grad_final_z = grad_final_z.view();
  x.grad_q = grad_q.view();
  x.grad_k = grad_k.view();
  x.grad_v = grad_v.view();
  x.grad_decay = grad_decay.view();
  x.grad_initial_state = grad_initial_state.view();
  x.grad_initial_z = grad_initial_z.view();
  return x;
}

std::vector<const HostTensor*> LinearInstance::tensors() const {
  return {&q,
          &k,
          &v,
          &o,
          &decay,
          &initial_state,
          &initial_z,
          &final_state,
          &final_z,
          &grad_o,
          &grad_q,
          &grad_final_state,
          &grad_final_z,
          &grad_k,
          &grad_v,
          &grad_decay,
          &grad_initial_state,
          &grad_initial_z};
}

void LinearInstance::poison_outputs() {
  for (HostTensor* x :
       {&o, &final_state, &final_z, &grad_q, &grad_k, &grad_v, &grad_decay, &grad_initial_state, &grad_initial_z})
    x->fill_poison();
  if (!in_place) return;  // Otherwise the memory of the final state must hold the initial state.
  const auto copy = [](const HostTensor& from, HostTensor* to) {
    to->for_each([&](auto i, auto j, auto e, auto m) { to->set(i, j, e, m, from.get(i, j, e, m)); });
  };
  copy(initial_state, &final_state);
  copy(initial_z, &final_z);
}

LinearInstance make_linear_instance(const LinearCase& row, DType dtype, std::uint64_t seed) {
  LinearInstance x;
  const LinearAttention& a = x.problem = problem_of(row, dtype);
  x.segments = row.segments_;
  x.in_place = row.in_place_;
  if (a.packed) x.cu.push_back(0);
  for (const std::int32_t n : row.lengths) x.cu.push_back(x.cu.back() + n);
  const std::int64_t batch = a.packed ? 1 : a.b, tokens = a.packed ? x.cu.back() + row.spare_ : a.s;
  const Shape state_shape{a.b, a.h_v, a.d_qk, a.d_v}, z{a.b, a.h_v, a.d_qk, 1};
  const auto rows = [&](std::int64_t h, std::int64_t d, std::uint64_t stream, HostTensor* tensor) {
    *tensor = HostTensor(dtype, {batch, tokens, h, d}, row.layout_);
    tensor->fill_normal(seed + stream);
  };
  rows(a.h_qk, a.d_qk, 1, &x.q);
  rows(a.h_qk, a.d_qk, 2, &x.k);
  rows(a.h_v, a.d_v, 3, &x.v);
  rows(a.h_v, a.d_v, 4, &x.grad_o);
  for (HostTensor* tensor : {&x.q, &x.k}) {
    if (row.positive_)
      tensor->for_each(
          [&](auto i, auto j, auto h, auto d) { tensor->set(i, j, h, d, std::abs(tensor->get(i, j, h, d))); });
  }
  const auto times = [](float factor, HostTensor* tensor) {
    tensor->for_each(
        [&](auto i, auto j, auto h, auto d) { tensor->set(i, j, h, d, factor * tensor->get(i, j, h, d)); });
  };
  if (row.large_) {
    times(24, &x.q);
    times(24, &x.k);
    times(0.1F, &x.v);
    times(0.1F, &x.grad_o);
  }
  const auto grow = [](float per_token, HostTensor* tensor) {  // Multiplies by 2^per_token for each token.
    tensor->for_each([&](auto i, auto j, auto h, auto d) {
      tensor->set(i, j, h, d, std::exp2(static_cast<float>(j) * per_token) * tensor->get(i, j, h, d));
    });
  };
  if (row.growing_) {
    grow(1 / 12.F, &x.k);
    grow(1 / 12.F, &x.v);
    grow(-1 / 6.F, &x.q);
  }
  const bool head = a.decay == Decay::head;
  if (a.decay != Decay::none) {
    x.decay = HostTensor(DType::f32, {head ? 1 : batch, head ? 1 : tokens, a.h_v, 1}, output_layout(row.layout_));
    fill_decay(row.strong_, seed + 5, &x.decay);
  }
  const auto states = [&](std::uint64_t stream, HostTensor* s, HostTensor* with_z) {
    *s = HostTensor(DType::f32, state_shape, row.state_layout_);
    s->fill_normal(seed + stream);
    if (!a.normalise) return;
    *with_z = HostTensor(DType::f32, z);
    with_z->fill_normal(seed + stream + 1);
  };
  if (a.initial_state) states(6, &x.initial_state, &x.initial_z);
  // z is a sum of numbers above 0.
  if (a.initial_state && a.normalise)
    x.initial_z.for_each([&](auto i, auto j, auto e, auto m) {
      x.initial_z.set(i, j, e, m, 1 + std::abs(x.initial_z.get(i, j, e, m)));
    });
  if (a.final_state) states(8, &x.grad_final_state, &x.grad_final_z);
  for (HostTensor* tensor : {&x.q, &x.k, &x.v, &x.grad_o}) spoil_padding(x, tensor);
  if (a.decay == Decay::token) spoil_padding(x, &x.decay);
  make_outputs(HostTensor(DType::f32, state_shape, row.state_layout_), dtype, row.layout_, &x);
  return x;
}

LinearInstance with_wide_outputs(const LinearInstance& from) {
  LinearInstance x = from;
  x.in_place = false;
  make_outputs(HostTensor(DType::f32, {x.problem.b, x.problem.h_v, x.problem.d_qk, x.problem.d_v}), DType::f32,
               Layout::dense, &x);
  return x;
}

LinearInstance linear_reference(const LinearInstance& from, Pass pass) {
  LinearInstance x = with_wide_outputs(from);
  if (x.problem.packed) x.problem.s = std::max<std::int64_t>(x.problem.s, x.cu.back());
  std::vector<double> memory(ref::linear_attention_workspace(x.problem, pass) / sizeof(double) + 1);
  if (pass == Pass::forward) {
    ref::linear_attention_forward(x.problem, x.operands(pass), memory.data());
  } else {
    ref::linear_attention_backward(x.problem, x.operands(pass), memory.data());
  }
  return x;
}

Status run(const Target& target, Pass pass, LinearInstance* x) {
  Plan plan;
  Target with_segments = target;
  with_segments.segments = x->segments;
  if (Status status = Plan::make(x->problem, pass, with_segments, &plan); !status) return status;
  x->poison_outputs();
  if (Path{data_of(plan)->backend, ""}.on_gpu()) {
    std::vector<cuda::Bytes> whole;
    for (const HostTensor* tensor : x->tensors()) whole.push_back({tensor->memory(), tensor->memory_bytes()});
    return cuda::run_on_device(plan, x->problem, x->operands(pass), whole);
  }
  const Workspace workspace(plan.workspace_bytes());
  return plan.run(x->operands(pass), workspace.data(), workspace.size());
}

AssertionResult matches(const LinearInstance& x, const LinearInstance& exact, Pass pass) {
  using judge::LinearOutput;
  using L = LinearInstance;
  static constexpr HostTensor L::*kOutputs[judge::kLinearOutputs] = {
      // These are in the order of LinearOutput.
      &L::o,          &L::final_state,        &L::final_z,       &L::grad_q, &L::grad_k, &L::grad_v,
      &L::grad_decay, &L::grad_initial_state, &L::grad_initial_z};
  const judge::LinearReference reference(exact.problem, pass, exact.operands(pass), judge::Exact::given);
  for (std::size_t n = 0; n < judge::kLinearOutputs; ++n) {
    const auto which = static_cast<LinearOutput>(n);
    if (!reference.has(which)) continue;
    const bool tokens = reference.by_token(which);
    const HostTensor& value = x.*kOutputs[n];
    const auto is_written = [&](auto, std::int64_t j, auto, auto) {
      return x.problem.b > 0 && (!tokens || reference.is_row(j));
    };
    const bool was_there = x.in_place && !tokens;  // The initial state was in this memory.
    const AssertionResult whole = was_there ? AssertionSuccess() : written_whole(judge::name(which), value, is_written);
    if (!whole) return whole;
    const judge::LinearReport report = reference.check(which, value.view(), false);
    if (!report.passed()) return AssertionFailure() << report.why;
  }
  return AssertionSuccess();
}

double rms_ratio(const LinearInstance& x, const HostTensor& a, const HostTensor& b, bool rows) {
  double error = 0, sum = 0;
  a.for_each([&](auto i, auto j, auto k, auto l) {
    if (rows && !x.is_row(i, j)) return;
    const double difference = static_cast<double>(a.get(i, j, k, l)) - b.get(i, j, k, l), want = b.get(i, j, k, l);
    error += difference * difference;
    sum += want * want;
  });
  return sum > 0 ? std::sqrt(error / sum) : std::sqrt(error);
}

}  // namespace falchion::testing
