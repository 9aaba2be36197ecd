// tools/errors.cpp
#include "errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure.hpp"
#include "plan/text.hpp"
#include "ref/attention_forward.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// The distance between neighbouring numbers of the type at this magnitude.
double unit_at(DType dtype, double magnitude) {
  const int digits = dtype == DType::f32 ? 23 : dtype == DType::f16 ? 10 : 7;
  const int lowest = dtype == DType::f16 ? -14 : -126;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent - 1), 2^exponent)
  return std::ldexp(1.0, std::max(magnitude > 0 ? exponent - 1 : lowest, lowest) - digits);
}

bool same_special(double x, double exact) {
  if (std::isnan(exact)) return std::isnan(x);
  return std::isinf(exact) ? x == exact : std::isfinite(x);
}

/// docs/contract.md, "NaN or Inf in V of a masked key inside the valid length": on tensor cores 0 x NaN may reach that
/// column of the rows that share a tile with the key.
bool masked_v_may_reach(const Instance& x, std::int64_t head, std::int64_t column) {
  const Attention& a = x.problem;
  if (a.band == Band::full() && !a.mask && !a.bias && a.dropout.p == 0) return false;
  for (std::int64_t b = 0; b < x.v.view.shape[0]; ++b)
    for (std::int64_t s = 0; s < x.v.view.shape[1]; ++s)
      if (!std::isfinite(load_element(x.v.view, b, s, head / (a.h_q / a.h_k), column))) return true;
  return false;
}

/// unit_type: the type whose unit is granted on top of the naive error. tiles: O of this instance on tensor cores, else
/// null.
ErrorReport compare(const Tensor& x, const Tensor& exact, const Tensor& naive, DType unit_type, const char* what,
                    const Instance* tiles = nullptr) {
  ErrorReport report;
  double largest = 0;
  Shape worst{};
  for_each_index(exact.shape, [&](auto a, auto b, auto c, auto d) {
    const double value = load_element(x, a, b, c, d), wanted = load_element(exact, a, b, c, d);
    if (!same_special(value, wanted)) {
      if (tiles != nullptr && std::isnan(value) && masked_v_may_reach(*tiles, c, d)) return;
      if (report.same_specials)
        report.why = fmt::format("{}[{}, {}, {}, {}] is {}, must be {}", what, a, b, c, d, value, wanted);
      report.same_specials = false;
      return;
    }
    if (!std::isfinite(wanted)) return;
    largest = std::max(largest, std::abs(wanted));
    if (std::abs(value - wanted) > report.error) {
      report.error = std::abs(value - wanted);
      worst = {a, b, c, d};
    }
    const double difference = std::abs(load_element(naive, a, b, c, d) - wanted);
    if (std::isfinite(difference)) report.naive_error = std::max(report.naive_error, difference);
  });
  report.unit = unit_at(unit_type, largest);
  if (report.same_specials && !(report.error <= report.limit()))
    report.why = fmt::format("{}[{}, {}, {}, {}] is off by {:.2e}, the limit is {:.2e}", what, worst[0], worst[1],
                             worst[2], worst[3], report.error, report.limit());
  return report;
}

}  // namespace

Reference::Reference(const Instance& instance)
    : instance_(instance), exact_(instance, DType::f32), naive_(instance, instance.problem.dtype) {
  const DType dtype = instance.problem.dtype;
  Operands x = instance.operands();
  exact_.attach(&x);
  const auto start = Clock::now();
  ref::attention_forward(instance.problem, x, {});
  exact_seconds_ = seconds_since(start);
  naive_.attach(&x);
  ref::attention_forward(instance.problem, x, {.p = dtype, .o = dtype, .single_precision = true});
}

ErrorReport Reference::check_o(const Tensor& o, bool tensor_cores) const {
  return compare(o, exact_.o.view, naive_.o.view, instance_.problem.dtype, "O", tensor_cores ? &instance_ : nullptr);
}

ErrorReport Reference::check_lse(const Tensor& lse) const {
  if (!instance_.problem.lse) return {};
  return compare(lse, exact_.lse.view, naive_.lse.view, instance_.problem.dtype, "LSE");
}

HostTensor Reference::rounded_o() const { return convert(exact_.o.view, instance_.problem.dtype); }

Verdict verify_path(const Instance& instance, const Reference& reference, const Target& target) {
  Verdict verdict;
  try {
    const Prepared prepared(instance.problem, target);
    const Outputs outputs(instance, instance.problem.dtype);
    Operands x = instance.operands();
    outputs.attach(&x);
    const Status status = prepared.run(x);
    verdict.ran = static_cast<bool>(status);
    verdict.why = status.why;
    if (!verdict.ran) return verdict;
    verdict.o = reference.check_o(outputs.o.view, prepared.on_gpu());
    verdict.lse = reference.check_lse(outputs.lse.view);
    verdict.why = verdict.o.why.empty() ? verdict.lse.why : verdict.o.why;
  } catch (const UsageError& refusal) { verdict.why = refusal.what; }
  return verdict;
}

nlohmann::json to_json(const ErrorReport& report) {
  return {{"max_abs_error", report.error},
          {"naive_error", report.naive_error},
          {"limit", report.limit()},
          {"share_of_limit", report.share()},
          {"same_nan_and_inf", report.same_specials},
          {"passed", report.passed()},
          {"why", report.why}};
}

}  // namespace falchion::tools
