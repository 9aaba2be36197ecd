// src/plan/operation.hpp: an operation is one entry. Planning, explain() and the API walk over these entries: whoever
// adds an operation adds its entry to operations.cpp and the files that the entry names.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "falchion/falchion.hpp"
#include "plan/json.hpp"
#include "plan/plan_data.hpp"
#include "plan/story.hpp"

namespace falchion {

/// One pass of one kind of problem.
struct Operation {
  const char* name;  // "attention_forward", as in variants.def
  Pass pass;
  const char* operands;  // the struct that Plan::run takes for it, for messages: "Operands"
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

/// Every operation, built or not.
std::span<const Operation> operations();

/// The operation that a problem and a pass name. A pass that is none counts as forward: it is refused later.
const Operation& operation_of(const Attention& problem, Pass pass);
const Operation& operation_of(const LinearAttention& problem, Pass pass);
const Operation& operation_of(const Gemm& problem, Pass pass = Pass::forward);  // it has no other pass
const Operation& operation_of(const Norm& problem, Pass pass = Pass::forward);  // nor has it

/// Does variants.def list the operation for this backend?
bool is_listed_for(Backend backend, const Operation& operation);

/// Puts the question into an empty plan: the operation, the problem, the target.
void ask(const Attention& problem, Pass pass, const Target& target, PlanData* plan);
void ask(const LinearAttention& problem, Pass pass, const Target& target, PlanData* plan);
void ask(const Gemm& problem, Pass pass, const Target& target, PlanData* plan);
void ask(const Norm& problem, Pass pass, const Target& target, PlanData* plan);

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
