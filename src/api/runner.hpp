// src/api/runner.hpp: what is an operation's own when it runs, as one entry. Whoever adds an operation adds its entry
// to the table in run.cpp, which does the rest: what is checked, and in which order, is the same for all.
#pragma once

#include "api/operand_list.hpp"
#include "falchion/falchion.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// Operands_: the struct of operands that Plan::run takes for the operation.
template <class Operands_>
struct Runner {
  const char* operation;  // "attention_forward", as in variants.def

  OperandList (*operands)(const PlanData& plan, const Operands_& x);
  Status (*validate)(const PlanData& plan, const Operands_& x, const OperandList& list);
  bool (*nothing_to_do)(const PlanData& plan, const Operands_& x);  // no output has an element

  // The lengths of packed sequences, once it is known that there are some. On a GPU nobody reads them before the kernel
  // does, so only the totals can be asked. On the host the lengths themselves are asked.
  Status (*check_totals)(const PlanData& plan, const Operands_& x);
  Status (*check_lengths)(const PlanData& plan, const Operands_& x);

  /// Which variant of the GPU moves these operands.
  GpuChoice (*choose)(const PlanData& plan, const Operands_& x);
  /// Returns what the launch returned.
  int (*launch)(const PlanData& plan, const GpuChoice& choice, const Operands_& x, void* workspace, Stream stream);
  void (*run_on_cpu)(const PlanData& plan, const Operands_& x, void* workspace);
  void (*run_on_ref)(const PlanData& plan, const Operands_& x, void* workspace);
};

/// Stands for check_totals and check_lengths in the entry of an operation that has no packed sequences.
template <class Operands_>
Status has_no_lengths(const PlanData&, const Operands_&) {
  return {};
}

/// The operands of attention in the plan's pass, and whether they fit. Both runners of attention use these functions.
OperandList attention_operands(const PlanData& plan, const Operands& x);
Status validate_attention(const PlanData& plan, const Operands& x, const OperandList& list);

extern const Runner<Operands> kRunAttentionForward;
extern const Runner<Operands> kRunAttentionBackward;
extern const Runner<LinearOperands> kRunLinearAttentionForward;
extern const Runner<LinearOperands> kRunLinearAttentionBackward;
extern const Runner<GemmOperands> kRunGemm;
extern const Runner<NormOperands> kRunNorm;

/// The entry of an operation, or null where it takes other operands or is not built.
template <class Operands_>
const Runner<Operands_>* runner_of(const Operation& operation);
template <>
const Runner<Operands>* runner_of(const Operation& operation);
template <>
const Runner<LinearOperands>* runner_of(const Operation& operation);
template <>
const Runner<GemmOperands>* runner_of(const Operation& operation);
template <>
const Runner<NormOperands>* runner_of(const Operation& operation);

}  // namespace falchion
