// src/api/run_attention_backward.cpp: operands of attention and gradients -> the kernel that the plan chose.
#include "api/runner.hpp"
#include "api/validate.hpp"
#include "plan/plan_data.hpp"
#include "ref/attention_backward.hpp"

namespace falchion {
namespace {

OperandList operands(const PlanData& plan, const Operands& x) {
  return operands_of(plan.attention().problem, plan.pass, x);
}

Status validate(const PlanData& plan, const Operands& x, const OperandList& list) {
  return validate_operands(plan.attention().problem, x, list);
}

/// A problem without queries still has gradients of k and v to write, which are 0.
bool nothing_to_do(const PlanData& plan, const Operands&) {
  const Attention& a = plan.attention().problem;
  return a.b == 0 || (a.h_q == 0 && a.h_k == 0);
}

Status check_lengths(const PlanData&, const Operands&) { return {}; }

void run_on_ref(const PlanData& plan, const Operands& x, void*) {
  ref::attention_backward(plan.attention().problem, x, {});
}

}  // namespace

/// Only the definition is built so far.
constinit const Runner<Operands> kRunAttentionBackward{.operation = "attention_backward",
                                                       .operands = operands,
                                                       .validate = validate,
                                                       .nothing_to_do = nothing_to_do,
                                                       .check_totals = nullptr,
                                                       .check_lengths = check_lengths,
                                                       .choose = nullptr,
                                                       .launch = nullptr,
                                                       .run_on_cpu = nullptr,
                                                       .run_on_ref = run_on_ref};

}  // namespace falchion
