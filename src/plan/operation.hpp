// src/plan/operation.hpp: an operation is one entry: how it is planned, what explain() says of it, and how it runs on
// its operands. Planning, explain() and the API walk over these entries. To add an operation, add its types here, its
// entry in src/api/run_X.cpp, and that entry to the table in src/api/operations.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <variant>

#include "falchion/falchion.hpp"
#include "plan/json.hpp"
#include "plan/plan_data.hpp"
#include "plan/story.hpp"

namespace falchion {

class OperandList;  // api/operand_list.hpp

/// One pass of one kind of problem: the functions that do not depend on the types of its problem and operands.
struct Operation {
  const char* name;  // "attention_forward", as in variants.def
  Pass pass;
  const char* takes;  // the struct that Plan::run accepts for it, for messages: "Operands"
  DType (*dtype)(const PlanData& plan);

  // Planning (paths.hpp says in which order paths are tried).
  void (*resolve)(PlanData* plan);  // replaces values that mean "choose for me": the scale
  /// Takes the first variant of the backend that fits the problem and the device, and decides how it runs. If none
  /// fits, plan->rejected has each reason; the status is the one to return if this backend was requested.
  Status (*plan_gpu)(Backend backend, PlanData* plan);
  void (*plan_cpu)(PlanData* plan);  // decides how plan->variant runs; null if no CPU level has a kernel
  std::size_t (*ref_workspace)(const PlanData& plan);  // bytes

  // describe() and explain().
  std::string (*describe)(const PlanData& plan);
  Json (*facts)(const PlanData& plan);                        // the fields of its problem, under their own names
  void (*tell_problem)(const PlanData& plan, Story* story);   // the problem, with its work
  void (*tell_decision)(const PlanData& plan, Story* story);  // the decision
};

template <class Problem>
struct OperationOf;
extern const OperationOf<Attention> kAttentionForward, kAttentionBackward;
extern const OperationOf<LinearAttention> kLinearAttentionForward, kLinearAttentionBackward;
extern const OperationOf<Gemm> kGemm;
extern const OperationOf<Norm> kNorm, kNormBackward;
extern const OperationOf<Quantise> kQuantise;

/// The types of a kind of problem: its operands, with the first of them; a plan's decision for it; a run's choice by
/// the layouts of its operands on a GPU; its operations, forward and backward. A problem without a backward pass has
/// its one operation for both: the other pass is refused later.
template <class Problem>
struct TraitsOf;
template <>
struct TraitsOf<Attention> {
  using Operands = falchion::Operands;
  using Decided = AttentionPlan;
  using Layout = falchion::Layout;
  static constexpr Tensor Operands::*kFirst = &Operands::q;
  static constexpr const char* kFirstName = "q";
  static constexpr const OperationOf<Attention>* kPasses[] = {&kAttentionForward, &kAttentionBackward};
};
template <>
struct TraitsOf<LinearAttention> {
  using Operands = LinearOperands;
  using Decided = LinearPlan;
  using Layout = falchion::Layout;
  static constexpr Tensor Operands::*kFirst = &Operands::q;
  static constexpr const char* kFirstName = "q";
  static constexpr const OperationOf<LinearAttention>* kPasses[] = {&kLinearAttentionForward,
                                                                    &kLinearAttentionBackward};
};
template <>
struct TraitsOf<Gemm> {
  using Operands = GemmOperands;
  using Decided = GemmPlan;
  using Layout = GemmLayout;
  static constexpr Tensor Operands::*kFirst = &Operands::a;
  static constexpr const char* kFirstName = "a";
  static constexpr const OperationOf<Gemm>* kPasses[] = {&kGemm, &kGemm};
};
template <>
struct TraitsOf<Norm> {
  using Operands = NormOperands;
  using Decided = NormPlan;
  using Layout = falchion::Layout;
  static constexpr Tensor Operands::*kFirst = &Operands::x;
  static constexpr const char* kFirstName = "x";
  static constexpr const OperationOf<Norm>* kPasses[] = {&kNorm, &kNormBackward};
};
template <>
struct TraitsOf<Quantise> {
  using Operands = QuantiseOperands;
  using Decided = QuantisePlan;
  using Layout = falchion::Layout;
  static constexpr Tensor Operands::*kFirst = &Operands::x;
  static constexpr const char* kFirstName = "x";
  static constexpr const OperationOf<Quantise>* kPasses[] = {&kQuantise, &kQuantise};
};
template <class Problem>
using OperandsOf = typename TraitsOf<Problem>::Operands;

/// How an operation runs on its operands. run.cpp does the rest: the checks, in an order that is the same for all.
template <class Problem>
struct RunOf {
  using X = OperandsOf<Problem>;
  using Layout = typename TraitsOf<Problem>::Layout;

  OperandList (*operands)(const Problem& problem, Pass pass, const X& x);
  Status (*validate)(const Problem& problem, const X& x, const OperandList& list);
  bool (*nothing_to_do)(const PlanData& plan, const X& x);  // no output has an element

  /// The layout of the operands, as far as the plan's choices need it.
  Layout (*layout)(const PlanData& plan, const X& x);
  // Checks of packed sequences. On a GPU the lengths are not read on the host, so only the totals are checked. On the
  // host the lengths themselves are checked. taken: the choice of the run; null: there is none.
  Status (*check_totals)(const PlanData& plan, const X& x, const Choice* taken);
  Status (*check_lengths)(const PlanData& plan, const X& x);

  /// Returns the launch's return value.
  int (*launch)(const PlanData& plan, const Choice& taken, const Layout& layout, const X& x, void* workspace,
                Stream stream);
  void (*run_on_cpu)(const PlanData& plan, const X& x, void* workspace);
  void (*run_on_ref)(const PlanData& plan, const X& x, void* workspace);
};

// For the entries of operations without a workspace of ref, and without packed sequences.
inline std::size_t no_workspace(const PlanData&) { return 0; }
template <class Problem>
Status has_no_totals(const PlanData&, const OperandsOf<Problem>&, const Choice*) {
  return {};
}
template <class Problem>
Status has_no_lengths(const PlanData&, const OperandsOf<Problem>&) {
  return {};
}

/// The entry of an operation.
template <class Problem>
struct OperationOf : Operation, RunOf<Problem> {};

/// The operation of a problem and a pass.
template <class Problem>
const OperationOf<Problem>& operation_of(const Problem&, Pass pass = Pass::forward) {
  return *TraitsOf<Problem>::kPasses[pass == Pass::backward];
}

/// The operation of a plan, or null if the plan is of another kind of problem.
template <class Problem>
const OperationOf<Problem>* operation_in(const PlanData& plan) {
  return plan.is<typename TraitsOf<Problem>::Decided>() ? static_cast<const OperationOf<Problem>*>(plan.operation)
                                                        : nullptr;
}
/// The decision in a plan of that kind of problem.
template <class Problem>
const typename TraitsOf<Problem>::Decided& decided_in(const PlanData& plan) {
  return *std::get_if<typename TraitsOf<Problem>::Decided>(&plan.decided);
}

/// Every operation.
std::span<const std::reference_wrapper<const Operation>> operations();

/// Whether variants.def lists the operation for this backend.
bool is_listed_for(Backend backend, const Operation& operation);

/// Sets the problem in an empty plan: the operation, the problem, the target.
template <class Problem>
void ask(const Problem& problem, Pass pass, const Target& target, PlanData* plan) {
  *plan = PlanData{};
  plan->operation = &operation_of(problem, pass);
  plan->decided.emplace<typename TraitsOf<Problem>::Decided>().problem = problem;
  plan->pass = pass;
  plan->target = target;
}

/// Decides a problem in the plan that has passed validate_problem() (src/api/validate.hpp). On refusal plan->rejected
/// has every path's reason; the rest of the plan is then for explain() only. If plan->any_build is set, the decision is
/// that of a build with every GPU variant, on the backend's own architecture if there is no GPU and the target names
/// none.
Status decide(PlanData* plan);

/// ask() and decide(). any_build: see decide().
template <class Problem>
Status plan_problem(const Problem& problem, Pass pass, const Target& target, PlanData* plan, bool any_build = false) {
  ask(problem, pass, target, plan);
  plan->any_build = any_build;
  return decide(plan);
}

}  // namespace falchion
