// src/judge/norm_rows.cpp: see norm_rows.hpp.
#include "judge/norm_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/size.hpp"
#include "judge/compare.hpp"

namespace falchion::judge {
namespace {

/// The row of x whose first element is `first`.
Tensor row_of(const Tensor& x, const std::array<std::int64_t, 4>& first) {
  Tensor row = x;
  const std::int64_t offset = ref::at(x, first[0], first[1], first[2], 0);
  row.data = static_cast<char*>(x.data) + offset * static_cast<std::int64_t>(size_of(x.dtype));
  row.shape = {1, 1, 1, x.shape[3]};
  return row;
}

std::string check_row(const std::string& name, const Tensor& exact, const Tensor& naive, const Tensor& granted,
                      const Tensor& got) {
  Comparison comparison(name.c_str());
  double largest = 0;
  const auto all = [](const auto&) { return true; };
  const auto none = [](const auto&, double, double) { return false; };
  comparison.run(exact, naive, got, all, none,
                 [&](const auto&, double wanted) { largest = std::max(largest, std::abs(wanted)); });
  ErrorReport& report = comparison.report;
  report.unit = unit_at(got.dtype, largest);
  for (std::int64_t j = 0; j < granted.shape[3]; ++j) {
    const double grant = ref::load(granted, ref::at(granted, 3, j));
    if (std::isfinite(grant)) report.granted = std::max(report.granted, grant);
  }
  if (report.same_specials) comparison.conclude();
  return report.why;
}

}  // namespace

NormRowsReference::NormRowsReference(const Norm& problem, const NormOperands& x, std::vector<Output> outputs)
    : problem_(problem),
      inputs_(x),
      outputs_(std::move(outputs)),
      exact_(empty()),
      naive_(empty()),
      granted_(empty()) {}

NormRowsReference::Result NormRowsReference::empty() const {
  Result out;
  out.view = inputs_;
  for (const Output& output : outputs_) {
    if (!output.wanted) continue;
    Tensor& view = out.view.*output.tensor;
    const auto& shape = view.shape;
    out.memory.emplace_back(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    view = Tensor::dense(out.memory.back().data(), DType::f32, shape);
  }
  return out;
}

std::string NormRowsReference::check(const NormOperands& got) const {
  for (const Output& output : outputs_) {
    if (!output.wanted) continue;
    const auto& shape = (inputs_.*output.tensor).shape;
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t s = 0; s < shape[1]; ++s)
        for (std::int64_t h = 0; h < shape[2]; ++h) {
          const std::array<std::int64_t, 4> first{b, s, h, 0};
          const auto row = [&](const NormOperands& x) { return row_of(x.*output.tensor, first); };
          const std::string name = output.name + (" of " + where("row ", first)) + " at ";
          if (std::string why = check_row(name, row(exact_.view), row(naive_.view), row(granted_.view), row(got));
              !why.empty())
            return why;
        }
  }
  return "";
}

double norm_naive_scale(float eps, double largest) {
  const double most = std::max(std::sqrt(double{eps}), largest);
  int exponent = 0;
  if (std::isfinite(most)) std::frexp(most, &exponent);
  return std::ldexp(1.0, -exponent);
}

}  // namespace falchion::judge
