// tools/problem/errors.hpp: how exact a result of an instance is, by the tolerance rule (src/judge/rule.hpp).
#pragma once

#include <string>

#include "judge/attention.hpp"
#include "plan/json.hpp"
#include "problem/instance.hpp"

namespace falchion::tools {

using judge::ErrorReport;

/// What results are compared with: the definition in double, and the naive computation in the problem's own types.
class Reference {
 public:
  explicit Reference(const Instance& instance);

  ErrorReport check_o(const Tensor& o, bool tensor_cores = false) const;
  ErrorReport check_lse(const Tensor& lse) const;  ///< where the problem has lse
  double exact_seconds() const { return judge_.exact_seconds(); }
  HostTensor rounded_o() const;  ///< the exact O in the problem's type: what the back end ref gives

 private:
  DType dtype_;
  judge::AttentionReference judge_;
};

/// Runs one path on the instance and checks O, and LSE where the problem has it. The result is the one of the two that
/// is nearer to its limit. A plan that refuses is a failure whose `why` is the reason.
struct Verdict {
  ErrorReport o, lse;
  bool ran = false;
  std::string why;
  bool passed() const { return ran && o.passed() && lse.passed(); }
};
Verdict verify_path(const Instance& instance, const Reference& reference, const Target& target);

Json to_json(const ErrorReport& report);

}  // namespace falchion::tools
