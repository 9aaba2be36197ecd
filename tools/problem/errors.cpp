// tools/problem/errors.cpp
#include "problem/errors.hpp"

#include "base/fields.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

Operands with_shape_of_o(const Instance& instance) {
  Operands x = instance.operands();
  const auto& q = x.q.shape;
  x.o = Tensor::dense(nullptr, instance.problem.dtype, {q[0], q[1], q[2], instance.problem.d_v});
  return x;
}

}  // namespace

Reference::Reference(const Instance& instance)
    : dtype_(instance.problem.dtype), judge_(instance.problem, with_shape_of_o(instance)) {}

ErrorReport Reference::check_o(const Tensor& o, bool tensor_cores) const {
  return judge_.check(judge::AttentionOutput::o, o, tensor_cores);
}

ErrorReport Reference::check_lse(const Tensor& lse) const {
  return judge_.has(judge::AttentionOutput::lse) ? judge_.check(judge::AttentionOutput::lse, lse, false)
                                                 : ErrorReport{};
}

HostTensor Reference::rounded_o() const { return convert(judge_.exact(judge::AttentionOutput::o), dtype_); }

void Verdict::add(const char* name, const ErrorReport& report) {
  outputs.push_back({name, report});
  if (why.empty()) why = report.why;
}

ErrorReport Verdict::worst() const {
  ErrorReport out;
  for (const Output& output : outputs)
    if (output.report.share() > out.share()) out = output.report;
  return out;
}

Verdict verify_path(const Instance& instance, const Reference& reference, const Target& target) {
  Verdict verdict;
  try {
    const Prepared prepared(instance.problem, target);
    const Outputs outputs(instance, dtype_of_o(instance.problem));
    Operands x = instance.operands();
    outputs.attach(&x);
    const Status status = prepared.run(x);
    verdict.ran = static_cast<bool>(status);
    verdict.why = status.why;
    if (!verdict.ran) return verdict;
    verdict.add("o", reference.check_o(outputs.o.view, prepared.on_gpu()));
    verdict.add("lse", reference.check_lse(outputs.lse.view));
  } catch (const UsageError& refusal) { verdict.why = refusal.what; }
  return verdict;
}

Json to_json(const ErrorReport& report) {
  return Json::object({{"max_abs_error", report.error},
                       {"naive_error", report.naive_error},
                       {"granted", report.granted},
                       {"limit", report.limit()},
                       {"share_of_limit", report.share()},
                       {"relative_rms", report.relative_rms()},
                       {"one_minus_cosine", report.one_minus_cosine()},
                       {"same_nan_and_inf", report.same_specials},
                       {"passed", report.passed()},
                       {"why", report.why}});
}

}  // namespace falchion::tools
