// src/judge/attention.cpp: compares results of attention with the definition and with the naive computation.
#include "judge/attention.hpp"

#include <chrono>
#include <optional>
#include <vector>

#include "base/fields.hpp"
#include "base/size.hpp"
#include "judge/compare.hpp"
#include "ref/append.hpp"
#include "ref/attention_forward.hpp"
#include "ref/query.hpp"

namespace falchion::judge {
namespace {

using Index = std::array<std::int64_t, 4>;

/// The type whose unit lse, row_max and probabilities are judged by. They are f32 on every path, but with 16-bit inputs
/// the exponentials that they sum need not be better than f16.
DType sums_type(DType dtype) { return dtype == DType::f32 ? DType::f32 : DType::f16; }

/// A probability e^(s - m) below this may be flushed to 0. f16 ends at 2^-24, f32 and bf16 at 2^-126; if the keys are
/// split, the weight of a part uses some of that range.
double least_p(DType dtype) { return dtype == DType::f16 ? 0x1p-24 : 0x1p-100; }

double number_at(const Tensor& x, const Index& i) { return ref::load(x, ref::at(x, i[0], i[1], i[2], i[3])); }

/// A copy without gaps, in memory of its own.
Tensor dense_copy(const Tensor& from, std::vector<std::byte>* memory) {
  const Index& n = from.shape;
  memory->resize(static_cast<std::size_t>(n[0] * n[1] * n[2] * n[3] * size_of(from.dtype)) + 1);
  const Tensor to = Tensor::dense(memory->data(), from.dtype, n);
  for_each_index(n, [&](const Index& i) { ref::store(to, ref::at(to, i[0], i[1], i[2], i[3]), number_at(from, i)); });
  return to;
}

}  // namespace

AttentionReference::Outputs::Outputs(const Attention& a, const Operands& x) {
  const Index& o = x.o.shape;
  const Index rows{o[0], o[2], o[1], 1};
  const Index shapes[] = {o, rows, rows, {a.b, a.h_q, a.s_q, a.s_k}};
  const bool wanted[] = {true, a.lse, a.row_max, a.probabilities};
  for (std::size_t i = 0; i < 4; ++i) {
    if (!wanted[i]) continue;
    const Index& n = shapes[i];
    memory[i].assign(static_cast<std::size_t>(n[0] * n[1] * n[2] * n[3]) + 1, std::numeric_limits<float>::quiet_NaN());
    views[i] = Tensor::dense(memory[i].data(), DType::f32, n);
  }
}

void AttentionReference::Outputs::attach(Operands* x) const {
  x->o = views[0];
  x->lse = views[1];
  x->row_max = views[2];
  x->probabilities = views[3];
}

AttentionReference::AttentionReference(const Attention& problem, const Operands& x)
    : problem_(problem), inputs_(x), exact_(problem, x), naive_(problem, x) {
  if (problem.append) {
    inputs_.k = dense_copy(x.k, &cache_[0]);
    inputs_.v = dense_copy(x.v, &cache_[1]);
    ref::append(problem, inputs_);
    problem_.append = false;
  }
  const std::int64_t capacity = x.q.shape[1];
  rows_.resize(static_cast<std::size_t>(x.q.shape[0] * capacity));
  for (std::int64_t b = 0; b < problem.b; ++b) {
    const ref::Rows rows = ref::queries_of(x, b);
    std::fill_n(rows_.begin() + rows.batch * capacity + rows.begin, rows.length, std::uint8_t{1});
  }
  const auto start = std::chrono::steady_clock::now();
  exact_.attach(&inputs_);
  ref::attention_forward(problem_, inputs_, {.exact_p = true});
  exact_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  naive_.attach(&inputs_);
  ref::attention_forward(problem_, inputs_, {.p = dtype_of_p(), .o = dtype_of_o(problem), .single_precision = true});
}

/// To what a kernel rounds P: the type of V, which for all but q of 8 bits is that of q.
DType AttentionReference::dtype_of_p() const { return is_8bit(problem_.dtype) ? dtype_of_v(problem_) : problem_.dtype; }
DType AttentionReference::unit_type(AttentionOutput which) const {
  return which == AttentionOutput::o ? dtype_of_o(problem_) : sums_type(problem_.dtype);
}

const EightBounds& AttentionReference::bounds() const {
  if (!bounds_) bounds_.emplace(problem_, inputs_);
  return *bounds_;
}

/// o where v is e4m3. The worst element, and if that is within its bound the root mean square.
void AttentionReference::hold_to_bounds(const Tensor& got, ErrorReport* report) const {
  const Tensor &exact = exact_.of(AttentionOutput::o), &naive = naive_.of(AttentionOutput::o);
  double worst = -1, squared = 0, of_naive = 0, granted = 0;
  Index at_worst{};
  std::size_t element = 0;
  std::int64_t count = 0;
  for_each_index(got.shape, [&](const Index& at) {
    const std::size_t mine = element++;
    const double value = number_at(got, at), wanted = number_at(exact, at), by_naive = number_at(naive, at);
    if (!counts(AttentionOutput::o, at[0], at[1], at[2]) || !std::isfinite(value) || !std::isfinite(wanted)) return;
    const double error = std::abs(value - wanted), unit = unit_at(dtype_of_o(problem_), std::abs(wanted));
    const double bound = bounds().each[mine] + unit, slack = bounds().slack[mine] + unit / 2;
    ++count;
    squared += error * error;
    if (std::isfinite(by_naive)) of_naive += (by_naive - wanted) * (by_naive - wanted);
    granted += slack * slack;
    if (const double share = error / bound; !std::isnan(worst) && !(share <= worst)) {
      worst = share;
      at_worst = at;
      report->error = error;
      report->bound = bound;
    }
  });
  if (count == 0) return;
  const auto rms = [&](double sum) { return std::sqrt(sum / static_cast<double>(count)); };
  const double limit = kOverNaive * rms(of_naive) + rms(granted);
  if (!(worst <= 1)) {
    report->why =
        where("o", at_worst) + " is off by " + number(report->error) + ", the limit is " + number(report->bound);
  } else if (count >= kMany && bounds().has_many() && !(rms(squared) <= limit)) {
    report->why = "o is off by " + number(rms(squared)) + " in the root mean square, the limit is " + number(limit) +
                  " (naive " + number(rms(of_naive)) + ")";
  }
}

std::string AttentionReference::check_cache(const Tensor& k, const Tensor& v) const {
  std::string why;
  const auto check = [&](const char* name, const Tensor& got, const Tensor& wanted, bool turned) {
    for_each_index(wanted.shape, [&](const Index& i) {
      const double x = number_at(got, i), y = number_at(wanted, i);
      if (!why.empty() || x == y || (std::isnan(x) && std::isnan(y))) return;
      // A column that has turned may be rounded to the other side, and where its two products cancel, by f32.
      double largest = 0;
      for (Index j{i[0], i[1], i[2], 0}; turned && j[3] < wanted.shape[3]; ++j[3])
        largest = std::max(largest, std::abs(number_at(wanted, j)));
      if (turned && std::abs(x - y) <= unit_at(wanted.dtype, std::abs(y)) + 0x1p-21 * largest) return;
      why = mismatch(name, i, x, y);
    });
  };
  check("k", k, inputs_.k, problem_.rotary_dim > 0);
  check("v", v, inputs_.v, false);
  return why;
}

bool AttentionReference::has(AttentionOutput which) const { return exact_.of(which).data != nullptr; }

bool AttentionReference::counts(AttentionOutput which, std::int64_t i, std::int64_t j, std::int64_t k) const {
  return is_row(i, which == AttentionOutput::o ? j : k);
}

bool masked_v_may_reach(const Attention& a, const Operands& x, const std::array<std::int64_t, 4>& at) {
  const auto [batch, row, head, column] = at;
  if (a.band.left < 0 && a.band.right < 0 && !a.mask && !a.bias && a.dropout == 0) return false;
  for (std::int64_t b = 0; b < a.b; ++b) {
    const ref::Rows q = ref::queries_of(x, b);
    const ref::Rows k = ref::keys_of(a, x, b);
    if (q.batch != batch || row < q.begin || row >= q.begin + q.length) continue;
    const KeyRows keys = KeyRows::of(pages_of(a, x), b, k.batch, k.begin);
    for (std::int64_t j = 0; j < k.length; ++j) {
      const KeyPlace at_key = keys.at(j);
      if (!at_key.exists()) continue;
      const std::int64_t offset = ref::at(x.v, at_key.batch, at_key.row, head / (a.h_q / a.h_k), column);
      if (!std::isfinite(ref::load(x.v, offset))) return true;
      const std::int64_t h_k = head / (a.h_q / a.h_k);
      if (a.v_scale && !std::isfinite(ref::load(x.v_scale, ref::at(x.v_scale, at_key.batch, at_key.row, h_k, 0))))
        return true;
    }
  }
  return false;
}

/// Whether o may be NaN here because an Inf in V meets a probability that is too small for the types and counts as 0.
bool AttentionReference::inf_may_vanish(const Index& at) const {
  if (vanishing_.of(AttentionOutput::o).data == nullptr) {
    vanishing_ = Outputs(problem_, inputs_);
    Operands x = inputs_;
    vanishing_.attach(&x);
    ref::attention_forward(problem_, x, {.least_p = least_p(dtype_of_p())});
  }
  const Tensor& o = vanishing_.of(AttentionOutput::o);
  return std::isnan(ref::load(o, ref::at(o, at[0], at[1], at[2], at[3])));
}

/// Whether this value is allowed, although neither the definition nor the naive computation has it.
bool AttentionReference::excused(AttentionOutput which, double value, double wanted, const Index& at,
                                 bool shares_tiles) const {
  if (which != AttentionOutput::o || !std::isnan(value)) return false;
  if (shares_tiles && masked_v_may_reach(problem_, inputs_, at)) return true;
  return std::isinf(wanted) && inf_may_vanish(at);
}

/// The largest sum of the magnitudes of P V, which is the definition's O for |V|, whose scales may be negative.
double AttentionReference::largest_sum() const {
  Operands x = inputs_;
  const Magnitudes v(x.v), scales(x.v_scale);
  x.v = v.view();
  x.v_scale = scales.view();
  Outputs sums(problem_, inputs_);
  sums.attach(&x);
  ref::attention_forward(problem_, x, {.exact_p = true});
  double largest = 0;
  for (const float sum : sums.memory[0])
    if (std::isfinite(sum)) largest = std::max(largest, double{sum});
  return largest;
}

namespace {

/// In f32 a score with ALiBi or a bias is as large as slope times distance or as the bias, and each score is rounded at
/// that magnitude. This is the problem's bias, or one of zeros, plus such a rounding of each score. Next to a bias
/// beyond 2^16 (-1e9 that hides a key) nothing of the dot product is left, in the naive computation too. (On an H200
/// two right results of 200,000 exceeded the limit without this. With ALiBi it was by 14 %, because dropout of 0.9 made
/// a probability ten times as large. With a bias of -1e4 it was 27 times the limit: the dot product was half way
/// between two neighbouring numbers of that magnitude, and two equal ones were rounded apart, because one bias was
/// odd.)
class RoundedScores {
 public:
  RoundedScores(const Attention& a, const Operands& x, std::uint64_t draw)
      : bias_(Tensor::dense(nullptr, DType::f32, {a.b, a.h_q, a.s_q, a.s_k})) {
    std::uint64_t element = 0;
    for_each_index(bias_.shape, [&](const Index& at) {
      const auto [b, h, i, j] = at;
      const bool sloped = a.alibi && !a.packed;
      const double slope = sloped ? ref::load(x.alibi, ref::at(x.alibi, x.alibi.shape[0] == 1 ? 0 : b, 0, h, 0)) : 0;
      const double bias = a.bias ? ref::load(x.bias, in(x.bias, at)) : 0;
      const double size = std::abs(slope * distance(a, x, at));
      const double off = 0x1p-24 * (size + (std::abs(bias) < 0x1p16 ? std::abs(bias) : 0));
      memory_.push_back(static_cast<float>(bias + nudge_sign(draw, element++) * (std::isfinite(off) ? off : 0)));
    });
    memory_.push_back(0);  // an address even where there is nothing
    bias_.data = memory_.data();
  }
  const Tensor& view() const { return bias_; }

 private:
  /// How far the key in column at[3] is from the diagonal.
  static double distance(const Attention& a, const Operands& x, const Index& at) {
    const ref::Rows q = ref::queries_of(x, at[0]), k = ref::keys_of(a, x, at[0]);
    return static_cast<double>(at[2] + a.band.shift(q.length, k.length) - (at[3] - k.first));
  }
  static std::int64_t in(const Tensor& x, Index at) {
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (x.shape[axis] == 1) at[axis] = 0;
    }
    return ref::at(x, at[0], at[1], at[2], at[3]);
  }

  std::vector<float> memory_;
  Tensor bias_;
};

}  // namespace

/// Moves the inputs by what any computation in these types is granted: 2^-22 (f16: 2^-19) of each product of a score;
/// in f32 each score by the rounding of its sum (kAddition); 2^-22 of the scale (kernels multiply it by log2 e first),
/// of a slope and of the bias as a whole; and of each probability one unit of P's type (f32: kProbability), for which
/// the whole row of V of that key is moved. A probability e^(s - m) below 2^-126 may be flushed to 0, which matters if
/// all larger ones are dropped; those of f16 are rounded by the naive computation. (Without this one of 6,000 problems
/// of f32 exceeded the limit on a CPU: o was 3e-38.)
void AttentionReference::nudge() const {
  if (nudged_) return;
  nudged_ = true;
  const auto move = [this](const Attention& a, Operands x, const ref::Rounding& rounding) {
    Outputs moved(a, inputs_);
    moved.attach(&x);
    ref::attention_forward(a, x, rounding);
    for (std::size_t which = 0; which < 4; ++which) {
      for (std::size_t i = 0; i < moved.memory[which].size(); ++i) {
        const double by = std::abs(static_cast<double>(moved.memory[which][i]) - exact_.memory[which][i]);
        if (std::isfinite(by)) moved_[which] = std::max(moved_[which], by);
      }
    }
  };
  const double p_unit = problem_.dtype == DType::f32 ? kProbability : unit_at(dtype_of_p(), 1);
  for (std::uint64_t draw = 0; draw < kNudges; ++draw) {
    Attention a = problem_;
    if (a.score.scale == 0) a.score.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.d_qk)));
    a.score.scale *= static_cast<float>(1 + kSingle * nudge_sign(draw, 1000));
    Operands x = inputs_;
    const Nudged k(x.k, {product_step(problem_.dtype, problem_.d_qk)}, Together::none, 10 + draw),
        v(x.v, {p_unit}, Together::row, 20 + draw);
    const Nudged bias(x.bias, {kSingle}, Together::all, 30 + draw);
    const Nudged slopes(x.alibi, {kSingle}, Together::none, 40 + draw);
    const Nudged sinks(x.sinks, {kSingle}, Together::none, 45 + draw);
    x.k = k.view();
    x.v = v.view();
    x.bias = bias.view();
    x.alibi = slopes.view();
    x.sinks = sinks.view();
    std::optional<RoundedScores> scores;
    if (a.dtype == DType::f32 && (a.bias || (a.alibi && !a.packed))) {
      x.bias = scores.emplace(a, x, 50 + draw).view();
      a.bias = true;
    }
    move(a, x, {.sum_step = a.dtype == DType::f32 ? kAddition : 0, .draw = draw});
  }
  move(problem_, inputs_, {.least_p = lowest_unit(DType::f32)});
  moved_[0] = std::max(moved_[0], kSum * largest_sum());
}

ErrorReport AttentionReference::check(AttentionOutput which, const Tensor& got, bool shares_tiles) const {
  const Tensor &exact = exact_.of(which), &naive = naive_.of(which);
  // The error of a logarithm is a relative error of the sum, so the unit is never finer than that at 1.
  double largest = which == AttentionOutput::lse || which == AttentionOutput::row_max ? 1 : 0;
  Comparison comparison(kAttentionOutputs[static_cast<std::size_t>(which)]);
  comparison.run(
      exact, naive, got, [&](const Index& at) { return counts(which, at[0], at[1], at[2]); },
      [&](const Index& at, double value, double wanted) { return excused(which, value, wanted, at, shares_tiles); },
      [&](const Index&, double wanted) { largest = std::max(largest, std::abs(wanted)); });
  ErrorReport& report = comparison.report;
  report.unit = unit_at(unit_type(which), largest);
  if (report.same_specials && which == AttentionOutput::o && dtype_of_p() == DType::e4m3) {
    hold_to_bounds(got, &report);
    return report;
  }
  if (comparison.decided()) return report;
  nudge();
  report.granted = moved_[static_cast<std::size_t>(which)];
  if (is_8bit(problem_.dtype) && which == AttentionOutput::lse) report.granted += bounds().score / 2;
  if (which == AttentionOutput::probabilities) report.granted = std::max(report.granted, kSingle * largest);
  comparison.conclude();
  return report;
}

}  // namespace falchion::judge
