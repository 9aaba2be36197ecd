// tools/errors.hpp: how exact a result is, by the house rule: the error against double is at most twice that of the
// naive computation in the same types, plus one unit of the output type; NaN and Inf must be in the same places.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "instance.hpp"

namespace falchion::tools {

/// One tensor's worst element.
struct ErrorReport {
  double error = 0;        // max |x - exact|
  double naive_error = 0;  // max |naive - exact|
  double unit = 0;         // spacing of the output type at the largest exact element
  bool same_specials = true;
  std::string why;  // where NaN, Inf or the bound first went wrong; empty when it passed

  double limit() const { return 2 * naive_error + unit; }
  bool passed() const { return why.empty(); }
  double share() const { return limit() > 0 ? error / limit() : error > 0 ? 1e300 : 0; }  // of the limit
};

/// What results are held against: the definition in double, and the naive computation in the problem's own types.
class Reference {
 public:
  explicit Reference(const Instance& instance);

  ErrorReport check_o(const Tensor& o, bool tensor_cores = false) const;
  ErrorReport check_lse(const Tensor& lse) const;  ///< where the problem has lse
  double exact_seconds() const { return exact_seconds_; }
  HostTensor rounded_o() const;  ///< the exact O in the problem's type: what the back end ref gives

 private:
  const Instance& instance_;
  Outputs exact_, naive_;
  double exact_seconds_ = 0;
};

/// Runs one path on the instance and checks O, and LSE where the problem has it: the worse of the two by its limit.
/// A plan that refuses is a failure whose `why` is the reason.
struct Verdict {
  ErrorReport o, lse;
  bool ran = false;
  std::string why;
  bool passed() const { return ran && o.passed() && lse.passed(); }
};
Verdict verify_path(const Instance& instance, const Reference& reference, const Target& target);

nlohmann::json to_json(const ErrorReport& report);

}  // namespace falchion::tools
