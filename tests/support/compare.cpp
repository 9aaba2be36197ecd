// tests/support/compare.cpp
#include "support/compare.hpp"

#include <algorithm>
#include <cmath>

#include "plan/text.hpp"
#include "ref/attention_forward.hpp"

namespace falchion::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// Rows that belong to a sequence: (batch, row) of q.
bool is_row(const Instance& x, std::int64_t batch, std::int64_t row) {
  for (std::int64_t b = 0; b < x.problem.b; ++b) {
    const Instance::Rows rows = x.q_rows(b);
    if (rows.batch == batch && row >= rows.begin && row < rows.begin + rows.length) return true;
  }
  return false;
}

/// The largest finite number of a type.
double largest_of(DType dtype) {
  const double ulps = std::ldexp(1.0, dtype == DType::f32 ? -24 : dtype == DType::f16 ? -11 : -8);
  return std::ldexp(1 - ulps, dtype == DType::f16 ? 16 : 128);
}

/// NaN and Inf where the definition has them; Inf also where one unit more than the definition is past the type.
bool same_special(double x, double exact, DType dtype) {
  if (std::isnan(exact)) return std::isnan(x);
  if (std::isinf(exact)) return x == exact;
  const double largest = largest_of(dtype);
  const bool past = std::abs(exact) + unit_at(dtype, largest) > largest;
  return std::isfinite(x) || (past && std::isinf(x) && (x > 0) == (exact > 0));
}

/// row_axis: which axis counts query rows: 1 in o, 2 in the others. least: the unit is taken at this magnitude or
/// above.
AssertionResult compare(const char* what, const Instance& x, const HostTensor& value, const HostTensor& exact,
                        const HostTensor& naive, int row_axis, DType unit_type, double least) {
  double error = 0, naive_error = 0, largest = least;
  std::int64_t expected = 0;
  Shape worst{};
  std::string bad;
  value.for_each([&](auto i, auto j, auto k, auto l) {
    if (!bad.empty()) return;
    const Shape index{i, j, k, l};
    if (!is_row(x, i, index[static_cast<std::size_t>(row_axis)])) return;
    ++expected;
    const double got = value.get(i, j, k, l), want = exact.get(i, j, k, l);
    if (value.is_poison(i, j, k, l))
      bad = text(what, "[", i, ", ", j, ", ", k, ", ", l, "] was not written");
    else if (std::isnan(got) && row_axis == 1 && masked_v_may_reach(x, index))
      return;
    else if (!same_special(got, want, value.view().dtype))
      bad = text(what, "[", i, ", ", j, ", ", k, ", ", l, "] is ", got, ", must be ", want);
    if (!bad.empty() || !std::isfinite(want) || std::isinf(got)) return;
    largest = std::max(largest, std::abs(want));
    naive_error = std::max(naive_error, std::abs(static_cast<double>(naive.get(i, j, k, l)) - want));
    if (std::abs(got - want) > error) error = std::abs(got - want), worst = index;
  });
  if (!bad.empty()) return AssertionFailure() << bad;
  if (value.written() != expected) {
    return AssertionFailure() << what << ": " << value.written() << " elements were written, there are " << expected;
  }
  const double limit = 2 * naive_error + unit_at(unit_type, largest);
  if (error <= limit) return AssertionSuccess();
  return AssertionFailure() << what << "[" << worst[0] << ", " << worst[1] << ", " << worst[2] << ", " << worst[3]
                            << "] is off by " << error << ", the limit is " << limit << " (naive " << naive_error
                            << ")";
}

}  // namespace

bool masked_v_may_reach(const Instance& x, const Shape& index) {
  const Attention& a = x.problem;
  if (!x.shares_tiles || (a.band == Band::full() && !a.mask && !a.bias && a.dropout == 0)) return false;
  for (std::int64_t b = 0; b < a.b; ++b) {
    const Instance::Rows q = x.q_rows(b), k = x.k_rows(b);
    if (q.batch != index[0] || index[1] < q.begin || index[1] >= q.begin + q.length) continue;
    for (std::int64_t j = k.begin; j < k.begin + k.length; ++j) {
      if (!std::isfinite(x.v.get(k.batch, j, index[2] / (a.h_q / a.h_k), index[3]))) return true;
    }
  }
  return false;
}

double unit_at(DType dtype, double magnitude) {
  const int digits = dtype == DType::f32 ? 23 : dtype == DType::f16 ? 10 : 7, lowest = dtype == DType::f16 ? -14 : -126;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  return std::ldexp(1.0, std::max(magnitude > 0 ? exponent - 1 : lowest, lowest) - digits);
}

Reference::Reference(const Instance& x) : exact(with_wide_output(x)), naive(with_wide_output(x)) {
  exact.poison_outputs(), naive.poison_outputs();
  ref::attention_forward(x.problem, exact.operands(), {});
  ref::attention_forward(x.problem, naive.operands(),
                         {.p = x.problem.dtype, .o = x.problem.dtype, .single_precision = true});
}

AssertionResult matches(const Instance& x, const Reference& r) {
  const DType dtype = x.problem.dtype;
  if (auto o = compare("o", x, x.o, r.exact.o, r.naive.o, 1, dtype, 0); !o) return o;
  // The sums behind lse are f32 on every path. Of 16-bit inputs their exponential need not be better than those are.
  // An error of a logarithm is a relative one of the sum: never asked to be finer than the unit at 1.
  const DType sums = dtype == DType::f32 ? DType::f32 : DType::f16;
  if (x.problem.lse) {
    if (auto lse = compare("lse", x, x.lse, r.exact.lse, r.naive.lse, 2, sums, 1); !lse) return lse;
  }
  if (x.problem.row_max) {
    if (auto row_max = compare("row_max", x, x.row_max, r.exact.row_max, r.naive.row_max, 2, sums, 1); !row_max)
      return row_max;
  }
  if (!x.problem.probabilities) return AssertionSuccess();
  return compare("probabilities", x, x.probabilities, r.exact.probabilities, r.naive.probabilities, 2, sums, 0);
}

}  // namespace falchion::testing
