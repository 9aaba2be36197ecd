// src/api/run_attention_backward.cpp: operands of attention and gradients -> the kernel that the plan chose.
#include "api/runner.hpp"
#include "plan/plan_data.hpp"
#include "ref/attention_backward.hpp"

namespace falchion {
namespace {

/// Whatever is empty, there may be gradients of something else to write, which are 0: of k and v without queries, of a
/// bias or slopes that all of an empty batch share.
bool nothing_to_do(const PlanData&, const Operands&) { return false; }

Status check_lengths(const PlanData&, const Operands&) { return {}; }

void run_on_ref(const PlanData& plan, const Operands& x, void*) {
  ref::attention_backward(plan.attention().problem, x, {});
}

}  // namespace

/// Only the definition is built so far.
constinit const Runner<Operands> kRunAttentionBackward{.operation = "attention_backward",
                                                       .operands = attention_operands,
                                                       .validate = validate_attention,
                                                       .nothing_to_do = nothing_to_do,
                                                       .check_totals = nullptr,
                                                       .check_lengths = check_lengths,
                                                       .choose = nullptr,
                                                       .launch = nullptr,
                                                       .run_on_cpu = nullptr,
                                                       .run_on_ref = run_on_ref};

}  // namespace falchion
