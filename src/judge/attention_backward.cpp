// src/judge/attention_backward.cpp: compares gradients of attention with the definition and with the naive computation.
#include "judge/attention_backward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/compare.hpp"
#include "ref/elements.hpp"
#include "ref/query.hpp"

namespace falchion::judge {
namespace {

using Index = std::array<std::int64_t, 4>;

/// The error granted to each P and to each gradient of a score, which have the operands' type on tensor cores. In f32 a
/// GPU's exp2 has an error of 2^-22, and its argument adds half as much.
double rounding_step(DType dtype) { return dtype == DType::f32 ? kProbability : unit_at(dtype, 1) / 2; }

/// The same for numbers of that type that are too small for all their digits: half of f16's smallest number, and
/// 2^-126, below which GPUs and AMX flush f32 and bf16 to 0.
double least_step(DType dtype) { return dtype == DType::f16 ? lowest_unit(dtype) / 2 : lowest_unit(dtype); }

/// The error granted to the derivative of the softcap, 1 - t^2 with t = tanh(s / softcap), for an error of t of two
/// units of f32 below 1. (Without this a kernel missed the limit in one of 21,000 problems on an H100.)
constexpr double kSoftcapSlope = 0x1p-22;

/// From here on a kernel that rounds dS to f16 may exceed f16's largest number, 65504: its dS has errors too.
constexpr double kMostOfDs = 65504 * (1 - 0x1p-8);

/// The error granted to a score as a whole. Tensor cores add 16 products at a time and truncate to the precision of the
/// sum in f32. Each such step loses up to a unit of f32, half of one on average, and always towards 0, so the losses
/// add up. In the forward pass they nearly cancel between the keys of a row, but here P is e^(s - lse) with a given
/// lse. (At d 214 an H100 missed the limit without this by 32 %, with scores in the thousands.)
double score_step(DType dtype, std::int64_t d) {
  return dtype == DType::f32 ? kSingle : kSingle + std::ceil(static_cast<double>(d) / 16) * 0x1p-24;
}

Tensor* gradient_of(Operands* x, std::size_t which) {
  Tensor* const all[kGradients] = {&x->grad_q, &x->grad_k, &x->grad_v, &x->grad_bias, &x->grad_alibi, &x->grad_sinks};
  return all[which];
}

/// rows_of: the rows of sequence b.
template <class RowsOf>
std::vector<std::uint8_t> rows_of_sequences(const Attention& a, const Tensor& of, const RowsOf& rows_of) {
  std::vector<std::uint8_t> out(static_cast<std::size_t>(of.shape[0] * of.shape[1]));
  for (std::int64_t b = 0; b < a.b; ++b) {
    const ref::Rows rows = rows_of(b);
    std::fill_n(out.begin() + rows.batch * of.shape[1] + rows.begin, rows.length, std::uint8_t{1});
  }
  return out;
}

bool is_special(const Tensor& x, std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) {
  return !std::isfinite(ref::load(x, ref::at(x, b, s, h, d)));
}

/// Whether key j does not contribute to the row in this gradient.
bool is_unseen(const ref::Query<float>& row, std::int64_t j, Gradient which) {
  const Tensor& lse = row.x.lse;
  const float of_row = ref::load(lse, ref::at(lse, row.q_rows.batch, row.h, row.q_rows.begin + row.i, 0));
  const bool dropped = which == Gradient::v && row.kept(j) == 0;
  return dropped || of_row == -std::numeric_limits<float>::infinity() || !row.sees(j);
}

/// unseen_may_reach() for a sequence and a query head, of the element of this row of its q, or of its k and v.
bool unseen_may_reach_row(ref::Query<float> row, Gradient which, std::int64_t element, std::int64_t column) {
  const Operands& x = row.x;
  if (which == Gradient::q) {
    row.i = element;
    for (std::int64_t j = 0; j < row.k_rows.length; ++j)
      if (is_special(x.k, row.k_rows.batch, row.k_rows.begin + j, row.h_kv(), column) && is_unseen(row, j, which))
        return true;
    return false;
  }
  const Tensor& from = which == Gradient::k ? x.q : x.grad_o;
  for (row.i = 0; row.i < row.q_rows.length; ++row.i)
    if (is_special(from, row.q_rows.batch, row.q_rows.begin + row.i, row.h, column) && is_unseen(row, element, which))
      return true;
  return false;
}

}  // namespace

bool unseen_may_reach(const Attention& a, const Operands& x, Gradient which, const std::array<std::int64_t, 4>& at) {
  if (which >= Gradient::bias) return false;
  const auto [batch, place, head, column] = at;
  const std::int64_t heads = which == Gradient::q ? 1 : a.h_q / a.h_k;  // those that share the element
  for (std::int64_t b = 0; b < a.b; ++b) {
    for (std::int64_t h = head * heads; h < (head + 1) * heads; ++h) {
      const auto row = ref::Query<float>::of(a, x, b, h, {});
      const ref::Rows& rows = which == Gradient::q ? row.q_rows : row.k_rows;
      const std::int64_t element = place - rows.begin;
      if (rows.batch != batch || element < 0 || element >= rows.length) continue;
      if (unseen_may_reach_row(row, which, element, column)) return true;
    }
  }
  return false;
}

GradientReference::Outputs::Outputs(const Attention& a, const Operands& x) {
  const bool no_q = (a.frozen & 1) != 0, no_kv = (a.frozen & 2) != 0;
  const Index shapes[kGradients] = {x.q.shape,         x.k.shape,          x.v.shape,
                                    x.grad_bias.shape, x.grad_alibi.shape, x.grad_sinks.shape};
  const bool wanted[kGradients] = {!no_q, !no_kv, !no_kv, a.grad_bias, a.grad_alibi, a.grad_sinks};
  for (std::size_t i = 0; i < kGradients; ++i) {
    if (!wanted[i]) continue;
    const Index& n = shapes[i];
    memory[i].assign(static_cast<std::size_t>(n[0] * n[1] * n[2] * n[3]) + 1, std::numeric_limits<float>::quiet_NaN());
    views[i] = Tensor::dense(memory[i].data(), DType::f32, n);
  }
}

void GradientReference::Outputs::attach(Operands* x) const {
  for (std::size_t i = 0; i < kGradients; ++i) *gradient_of(x, i) = views[i];
}

GradientReference::GradientReference(const Attention& problem, const Operands& x)
    : problem_(problem),
      inputs_(x),
      rows_(rows_of_sequences(problem, x.q, [&](auto b) { return ref::queries_of(x, b); })),
      keys_(rows_of_sequences(problem, x.k, [&](auto b) { return ref::keys_of(problem, x, b); })) {
  if (problem.grads == Grads::accumulate) {
    before_ = Outputs(problem, x);
    for (std::size_t i = 0; i < kGradients; ++i) {
      const Tensor& from = *gradient_of(&inputs_, i);
      if (before_.views[i].data == nullptr || from.data == nullptr) continue;
      std::size_t n = 0;
      for_each_index(from.shape, [&](const Index& at) {
        before_.memory[i][n++] = ref::load(from, ref::at(from, at[0], at[1], at[2], at[3]));
      });
    }
  }
  exact_ = compute(problem_, inputs_, {});
  const DType out = problem.grads == Grads::rounded ? problem.dtype : DType::f32;
  // Where all P of a row are equal, so are their roundings, and these do not average out in grad_q.
  naive_ = compute(problem_, inputs_,
                   {.p = problem.dtype, .o = out, .single_precision = true, .ds = problem.dtype, .p_in_ds = true});
}

GradientReference::Outputs GradientReference::compute(const Attention& problem, Operands x,
                                                      const ref::Rounding& rounding) const {
  Outputs out(problem, inputs_);
  for (std::size_t i = 0; i < kGradients; ++i) {
    if (problem.grads == Grads::accumulate && !before_.memory[i].empty())
      std::copy(before_.memory[i].begin(), before_.memory[i].end(), out.memory[i].begin());
  }
  out.attach(&x);
  ref::attention_backward(problem, x, rounding);
  return out;
}

bool GradientReference::has(Gradient which) const { return exact_.of(which).data != nullptr; }

bool GradientReference::is_row(Gradient which, std::int64_t batch, std::int64_t row) const {
  if (which >= Gradient::bias) return true;
  if (problem_.zero_unused) return true;
  const bool of_q = which == Gradient::q;
  const std::int64_t capacity = (of_q ? inputs_.q : inputs_.k).shape[1];
  return (of_q ? rows_ : keys_)[static_cast<std::size_t>(batch * capacity + row)] != 0;
}

/// The type whose unit a gradient, or its addend, is judged by. Gradients in f32 of a 16-bit problem are sums of terms
/// with 16 bits, so they need not be better than f16.
DType GradientReference::type_of(Gradient which) const {
  if (problem_.dtype == DType::f32) return DType::f32;
  const bool rounded = problem_.grads == Grads::rounded && which < Gradient::bias;
  return rounded ? problem_.dtype : DType::f16;
}

/// Moves the inputs by what any computation in these types is granted: the products of a score (k) and of the gradient
/// of a probability (v), and in f32 their sums, o and lse by a few roundings of f32, each slope and the bias as a
/// whole; the scale by what a score may lose; and each P and each dS by half a unit of the operands' type (f32: 1.5 *
/// 2^-22). A gradient in f32 or bf16 may besides be flushed to 0 below 2^-126.
void GradientReference::nudge() const {
  if (nudged_) return;
  nudged_ = true;
  for (std::uint64_t draw = 0; draw < kNudges; ++draw) {
    Attention a = problem_;
    if (a.score.scale == 0) a.score.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.d_qk)));
    a.score.scale *= static_cast<float>(1 + score_step(a.dtype, a.d_qk) * nudge_sign(draw, 1000));
    Operands x = inputs_;
    const Nudged k(x.k, {product_step(a.dtype, a.d_qk)}, Together::none, 10 + draw);
    const Nudged v(x.v, {product_step(a.dtype, a.d_v)}, Together::none, 20 + draw);
    const Nudged o(x.o, {kSingle}, Together::none, 30 + draw),
        lse(x.lse, {kSingle, kSingle}, Together::none, 40 + draw);
    const Nudged bias(x.bias, {kSingle}, Together::all, 50 + draw),
        slopes(x.alibi, {kSingle}, Together::none, 60 + draw), sinks(x.sinks, {kSingle}, Together::none, 70 + draw);
    x.k = k.view();
    x.v = v.view();
    x.o = o.view();
    x.lse = lse.view();
    x.bias = bias.view();
    x.alibi = slopes.view();
    x.sinks = sinks.view();
    const Outputs moved = compute(a, x,
                                  {.sum_step = a.dtype == DType::f32 ? kAddition : 0,
                                   .draw = draw,
                                   .step = rounding_step(a.dtype),
                                   .least_step = least_step(a.dtype),
                                   .slope_step = kSoftcapSlope});
    for (std::size_t i = 0; i < kGradients; ++i) {
      for (std::size_t n = 0; n < moved.memory[i].size(); ++n) {
        const double by = std::abs(static_cast<double>(moved.memory[i][n]) - exact_.memory[i][n]);
        if (std::isfinite(by)) moved_[i] = std::max(moved_[i], by);
      }
    }
  }
  Attention added = problem_;
  if (added.grads == Grads::accumulate) added.grads = Grads::f32;
  const Outputs sums = compute(added, inputs_, {.magnitudes = true});
  for (std::size_t i = 0; i < kGradients; ++i) {
    moved_[i] = std::max(moved_[i], lowest_unit(DType::f32));
    for (const float sum : sums.memory[i])
      if (std::isfinite(sum)) moved_[i] = std::max(moved_[i], kSum * std::abs(double{sum}));
  }
}

bool GradientReference::is_nan_in(const Outputs& outputs, Gradient which, const Index& at) {
  const Tensor& x = outputs.of(which);
  return std::isnan(ref::load(x, ref::at(x, at[0], at[1], at[2], at[3])));
}

/// Whether a gradient may be NaN here because an Inf meets a probability, or a derivative of the softcap, that is
/// flushed to 0. f16 ends at 2^-24, f32 and bf16 at 2^-126; if parts are merged, their weights use some of that range.
bool GradientReference::inf_may_vanish(Gradient which, const Index& at) const {
  if (vanishing_.of(which).data == nullptr)
    vanishing_ = compute(problem_, inputs_,
                         {.least_p = problem_.dtype == DType::f16 ? 0x1p-24 : 0x1p-100, .least_slope = kSoftcapSlope});
  return is_nan_in(vanishing_, which, at);
}

/// Whether a dS beyond the range of f16 reaches this element on tensor cores.
bool GradientReference::ds_may_overflow(Gradient which, const Index& at) const {
  if (problem_.dtype != DType::f16) return false;
  if (overflowing_.of(which).data == nullptr) overflowing_ = compute(problem_, inputs_, {.most_ds = kMostOfDs});
  return is_nan_in(overflowing_, which, at);
}

ErrorReport GradientReference::check(Gradient which, const Tensor& got, bool shares_tiles) const {
  const Tensor &exact = exact_.of(which), &before = before_.of(which);
  double largest = 0, largest_change = 0;  // they differ if the gradient is accumulated
  Comparison comparison(kGradientNames[static_cast<std::size_t>(which)]);
  comparison.run(
      exact, naive_.of(which), got, [&](const Index& at) { return is_row(which, at[0], at[1]); },
      [&](const Index& at, double value, double wanted) {
        if (shares_tiles && !std::isfinite(value) && ds_may_overflow(which, at)) return true;
        if (!std::isnan(value)) return false;
        if (shares_tiles && unseen_may_reach(problem_, inputs_, which, at)) return true;
        return std::isinf(wanted) && inf_may_vanish(which, at);
      },
      [&](const Index& at, double wanted) {
        const double was = before.data != nullptr ? ref::load(before, ref::at(before, at[0], at[1], at[2], at[3])) : 0;
        largest = std::max(largest, std::abs(wanted));
        if (std::isfinite(was)) largest_change = std::max(largest_change, std::abs(wanted - was));
      });
  ErrorReport& report = comparison.report;
  report.unit = unit_at(type_of(which), largest_change);
  if (problem_.grads == Grads::accumulate) report.unit += unit_at(DType::f32, largest);  // the sum is rounded too
  if (comparison.decided()) return report;
  nudge();
  report.granted = moved_[static_cast<std::size_t>(which)];
  comparison.conclude();
  return report;
}

}  // namespace falchion::judge
