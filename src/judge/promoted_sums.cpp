// src/judge/promoted_sums.cpp: see promoted_sums.hpp.
#include "judge/promoted_sums.hpp"

#include <algorithm>
#include <cmath>

#include "ref/elements.hpp"
#include "ref/gemm.hpp"

namespace falchion::judge {
namespace {

constexpr int kStep = 32, kBlock = 128;

/// The last bit that is kept where this is the largest number.
double unit_of(double largest) { return largest > 0 ? std::ldexp(1.0, std::ilogb(largest) - 13) : 0; }

/// The products of a row and a column in their order, one instruction after the other.
class Steps {
 public:
  void add(double product) {
    products_[count_++ % kStep] = product;
    if (count_ % kStep == 0) end_step(kStep);
  }
  CutOff cut_off() {
    if (count_ % kStep != 0) end_step(static_cast<int>(count_ % kStep));
    return off_;
  }

 private:
  void lose(double x, double unit) {
    off_.mean += std::copysign(unit / 2, x);
    off_.variance += unit * unit / 12;
  }
  void end_step(int count) {
    double largest = std::abs(sum_);
    for (int i = 0; i < count; ++i) largest = std::max(largest, std::abs(products_[i]));
    const double unit = unit_of(largest);
    if (sum_ != 0) lose(sum_, unit);
    for (int i = 0; i < count; ++i) {
      const double product = products_[i];
      if (product != 0 && std::abs(product) < 256 * unit) lose(product, unit);
      sum_ += product;
    }
    if (sum_ != 0) lose(sum_, unit_of(std::abs(sum_)));
    if (count_ % kBlock == 0) sum_ = 0;
  }

  double products_[kStep] = {};
  std::int64_t count_ = 0;
  double sum_ = 0;  // without truncation
  CutOff off_;
};

}  // namespace

CutOff cut_off(const GemmOperands& x, const std::array<std::int64_t, 4>& at, std::int64_t column, std::int64_t first,
               std::int64_t end) {
  Steps steps;
  ref::each_of_k(x, first, end, [&](std::int64_t k, std::int64_t l) {
    steps.add(static_cast<double>(ref::load(x.a, ref::at(x.a, at[0], at[1], k, l))) *
              ref::load(x.b, ref::at(x.b, at[0], column, k, l)));
  });
  return steps.cut_off();
}

}  // namespace falchion::judge
