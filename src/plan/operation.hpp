// src/plan/operation.hpp: an operation is one entry: how it is planned, what explain() says of it, and what it does to
// its operands when it runs. Planning, explain() and the API walk over these entries. Whoever adds an operation adds
// its types here, its entry in src/api/run_X.cpp, and that entry to the table in src/api/operations.cpp.
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

/// One pass of one kind of problem: what is asked of it whatever its problem and its operands are.
struct Operation {
  const char* name;  // "attention_forward", as in variants.def
  Pass pass;
  const char* takes;  // the struct that Plan::run takes for it, for messages: "Operands"
  DType (*dtype)(const PlanData& plan);

  // Planning (paths.hpp says in which order paths are tried).
  void (*resolve)(PlanData* plan);  // puts values in the place of "choose for me": the scale
  /// Takes the first variant of the backend that fits the problem and the device, and decides how it runs. Where none
  /// fits plan->rejected tells each reason; the status is the one to give when this backend was asked for.
  Status (*plan_gpu)(Backend backend, PlanData* plan);
  void (*plan_cpu)(PlanData* plan);                    // decides how plan->variant runs; null where no CPU has one
  std::size_t (*ref_workspace)(const PlanData& plan);  // bytes

  // describe() and explain().
  std::string (*describe)(const PlanData& plan);
  Json (*facts)(const PlanData& plan);                        // the fields of its problem, under their own names
  void (*tell_problem)(const PlanData& plan, Story* story);   // what is asked, with the work that it is
  void (*tell_decision)(const PlanData& plan, Story* story);  // what was decided
};

template <class Problem>
struct OperationOf;
extern const OperationOf<Attention> kAttentionForward, kAttentionBackward;
extern const OperationOf<LinearAttention> kLinearAttentionForward, kLinearAttentionBackward;
extern const OperationOf<Gemm> kGemm;
extern const OperationOf<Norm> kNorm;

/// What belongs to a kind of problem: its operands, with the first of them; what a plan decides for it; what a run
/// finds out of how its operands lie on a GPU; its operations, forward and backward. What has no other pass has one for
/// both: a pass that is none is refused later.
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
  static constexpr const OperationOf<Norm>* kPasses[] = {&kNorm, &kNorm};
};
template <class Problem>
using OperandsOf = typename TraitsOf<Problem>::Operands;

/// What an operation does to its operands. run.cpp does the rest: what is checked, and in which order, is the same for
/// all.
template <class Problem>
struct RunOf {
  using X = OperandsOf<Problem>;
  using Layout = typename TraitsOf<Problem>::Layout;

  OperandList (*operands)(const Problem& problem, Pass pass, const X& x);
  Status (*validate)(const Problem& problem, const X& x, const OperandList& list);
  bool (*nothing_to_do)(const PlanData& plan, const X& x);  // no output has an element

  /// How the operands lie, as far as the plan's choices ask.
  Layout (*layout)(const PlanData& plan, const X& x);
  // The lengths of packed sequences, once it is known that there are some. On a GPU nobody reads them before the kernel
  // does, so only the totals can be asked. On the host the lengths themselves are asked. taken: the choice of the run;
  // null: there is none.
  Status (*check_totals)(const PlanData& plan, const X& x, const Choice* taken);
  Status (*check_lengths)(const PlanData& plan, const X& x);

  /// Returns what the launch returned.
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

/// The operation that a problem and a pass name.
template <class Problem>
const OperationOf<Problem>& operation_of(const Problem&, Pass pass = Pass::forward) {
  return *TraitsOf<Problem>::kPasses[pass == Pass::backward];
}

/// The operation of a plan, or null where the plan is of another kind of problem.
template <class Problem>
const OperationOf<Problem>* operation_in(const PlanData& plan) {
  return plan.is<typename TraitsOf<Problem>::Decided>() ? static_cast<const OperationOf<Problem>*>(plan.operation)
                                                        : nullptr;
}
/// What was decided in a plan of that kind of problem.
template <class Problem>
const typename TraitsOf<Problem>::Decided& decided_in(const PlanData& plan) {
  return *std::get_if<typename TraitsOf<Problem>::Decided>(&plan.decided);
}

/// Every operation.
std::span<const std::reference_wrapper<const Operation>> operations();

/// Does variants.def list the operation for this backend?
bool is_listed_for(Backend backend, const Operation& operation);

/// Puts the question into an empty plan: the operation, the problem, the target.
template <class Problem>
void ask(const Problem& problem, Pass pass, const Target& target, PlanData* plan) {
  *plan = PlanData{};
  plan->operation = &operation_of(problem, pass);
  plan->decided.emplace<typename TraitsOf<Problem>::Decided>().problem = problem;
  plan->pass = pass;
  plan->target = target;
}

/// Answers the question in the plan, one that validate_problem() has passed (src/api/validate.hpp). On refusal
/// plan->rejected tells every path's reason; the rest of the plan is then for explain() alone. Where plan->any_build is
/// set, the answer is what a build with every GPU variant would do, on the backend's own architecture where no GPU is
/// here and the target names none.
Status decide(PlanData* plan);

/// Asks and decides. any_build: see decide().
template <class Problem>
Status plan_problem(const Problem& problem, Pass pass, const Target& target, PlanData* plan, bool any_build = false) {
  ask(problem, pass, target, plan);
  plan->any_build = any_build;
  return decide(plan);
}

}  // namespace falchion
