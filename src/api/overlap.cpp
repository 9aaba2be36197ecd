// src/api/overlap.cpp: two views share a byte if there is an index of each whose addresses differ by less than an
// element, that is, if a sum of at most eight bounded terms falls into an interval. The search takes the largest stride
// first: the reach of the smaller ones bounds its index to two or three values in a layout whose axes nest.
#include "api/overlap.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "base/divide.hpp"
#include "base/size.hpp"
#include "plan/text.hpp"

namespace falchion {
namespace {

/// index * stride for index in [0, last]; bytes; stride > 0.
struct Term {
  std::int64_t stride, last;
  std::int64_t reach() const { return stride * last; }
};

/// Whether some sum of the terms is in [low, high]. The terms are sorted by falling stride; rest is the reach of all.
struct Search {
  std::array<Term, 8> terms{};
  int count = 0;
  int budget = 20000;  // steps; a nested layout takes tens

  void add(std::int64_t stride, std::int64_t last) {
    if (stride == 0 || last <= 0) return;
    for (Term& term : terms) {
      if (term.stride == stride) return static_cast<void>(term.last += last);  // the same steps: only their sum counts
    }
    terms[static_cast<std::size_t>(count++)] = {stride, last};
  }
  bool run(std::int64_t low, std::int64_t high) {
    std::sort(terms.begin(), terms.begin() + count, [](const Term& a, const Term& b) { return a.stride > b.stride; });
    std::int64_t rest = 0;
    for (int i = 0; i < count; ++i) rest += terms[static_cast<std::size_t>(i)].reach();
    return found(0, rest, low, high);
  }

 private:
  bool found(int first, std::int64_t rest, std::int64_t low, std::int64_t high) {
    if (high < 0 || low > rest) return false;
    if (low <= 0 || high >= rest) return true;  // all indices 0, or all last, will do
    if (--budget < 0) return true;
    const Term& term = terms[static_cast<std::size_t>(first)];
    const std::int64_t after = rest - term.reach();
    const std::int64_t from = low <= after ? 0 : ceil_div(low - after, term.stride);
    const std::int64_t to = std::min(term.last, high / term.stride);
    for (std::int64_t i = from; i <= to; ++i) {
      if (found(first + 1, after, low - i * term.stride, high - i * term.stride)) return true;
    }
    return false;
  }
};

/// The stride in bytes; an axis of one element has none, whatever it says.
std::int64_t stride_of(const Tensor& x, std::size_t axis) {
  return x.shape[axis] > 1 ? x.stride[axis] * size_of(x.dtype) : 0;
}
/// The lowest address of the view, and its bytes up to the end of the highest element.
std::uint64_t begin_of(const Tensor& x) {
  std::uint64_t begin = reinterpret_cast<std::uintptr_t>(x.data);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    begin += static_cast<std::uint64_t>(std::min<std::int64_t>(0, stride_of(x, axis)) * (x.shape[axis] - 1));
  }
  return begin;
}
std::int64_t bytes_of(const Tensor& x) {
  std::int64_t bytes = size_of(x.dtype);
  for (std::size_t axis = 0; axis < 4; ++axis) bytes += std::abs(stride_of(x, axis)) * (x.shape[axis] - 1);
  return bytes;
}

/// Elements from the first index of the axis to the last. Rounding does not matter so far below 2^63.
double reach_of(const Tensor& x, std::size_t axis) {
  if (x.shape[axis] <= 1) return 0;
  return std::abs(static_cast<double>(x.stride[axis])) * static_cast<double>(x.shape[axis] - 1);
}

}  // namespace

bool fits_address_space(const Tensor& x) {
  double reach = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) reach += reach_of(x, axis);
  return reach * static_cast<double>(size_of(x.dtype)) < 0x1p60;
}

std::size_t longest_axis(const Tensor& x) {
  std::size_t longest = 0;
  for (std::size_t axis = 1; axis < 4; ++axis)
    if (reach_of(x, axis) > reach_of(x, longest)) longest = axis;
  return longest;
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (is_empty(a) || is_empty(b)) return false;
  const std::int64_t size_a = size_of(a.dtype), size_b = size_of(b.dtype);
  const std::int64_t distance = static_cast<std::int64_t>(begin_of(b) - begin_of(a));
  if (distance >= bytes_of(a) || distance <= -bytes_of(b)) return false;
  // Element of a at begin_a + x, of b at begin_b + y; turn y around (reach_b - y) so that both count upwards.
  Search search;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    search.add(std::abs(stride_of(a, axis)), a.shape[axis] - 1);
    search.add(std::abs(stride_of(b, axis)), b.shape[axis] - 1);
  }
  const std::int64_t shift = distance + bytes_of(b) - size_b;  // x + (reach_b - y) when the two begin together
  return search.run(shift - size_a + 1, shift + size_b - 1);
}

bool same_view(const Tensor& a, const Tensor& b) {
  if (is_empty(a) || is_empty(b)) return false;  // its strides may be anything, and nobody has checked them
  bool same = a.data == b.data && a.dtype == b.dtype && a.shape == b.shape;
  for (std::size_t axis = 0; axis < 4; ++axis) same = same && stride_of(a, axis) == stride_of(b, axis);
  return same;
}

bool aliases_itself(const Tensor& x) {
  if (is_empty(x)) return false;
  // Two elements at one address differ by +-steps along the axes. Let `axis` be the first that differs, by at least +1.
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (x.shape[axis] < 2) continue;
    Search search;
    search.add(x.stride[axis], x.shape[axis] - 2);
    std::int64_t target = -x.stride[axis];
    for (std::size_t later = axis + 1; later < 4; ++later) {  // steps in [-(n-1), n-1], counted from the lowest
      if (x.shape[later] < 2) continue;
      search.add(x.stride[later], 2 * (x.shape[later] - 1));
      target += x.stride[later] * (x.shape[later] - 1);
    }
    if (search.run(target, target)) return true;
  }
  return false;
}

}  // namespace falchion
