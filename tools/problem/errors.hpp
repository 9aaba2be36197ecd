// tools/problem/errors.hpp: how exact a result of an instance is, by the tolerance rule (src/judge/rule.hpp).
#pragma once

#include <string>
#include <vector>

#include "judge/attention.hpp"
#include "plan/json.hpp"
#include "problem/instance.hpp"

namespace falchion::tools {

using judge::ErrorReport;

/// The results for comparison: the definition in double, and the naive computation in the problem's own types.
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

/// The result of one path. A refused plan is a failure whose `why` is the reason.
struct Verdict {
  struct Output {
    const char* name;
    ErrorReport report;
  };
  std::vector<Output> outputs;  // those that were checked
  bool ran = false;
  std::string why;  // of the refusal, or of the first output that is wrong

  void add(const char* name, const ErrorReport& report);
  bool passed() const { return ran && why.empty(); }
  /// The report of the output with the largest error relative to its limit.
  ErrorReport worst() const;
};

/// Runs one path on the instance and checks O, and LSE where the problem has it.
Verdict verify_path(const Instance& instance, const Reference& reference, const Target& target);

Json to_json(const ErrorReport& report);

}  // namespace falchion::tools
