// src/plan/operations.cpp: functions over the entries of all operations.
#include <algorithm>

#include "plan/operation.hpp"
#include "plan/paths.hpp"

namespace falchion {

bool is_listed_for(Backend backend, const Operation& operation) {
  const auto all = listed_variants();
  return std::any_of(all.begin(), all.end(),
                     [&](const Variant& v) { return v.backend == backend && v.is(operation.name); });
}

Status decide(PlanData* plan) {
  plan->operation->resolve(plan);
  Status status = choose_path(plan);
  if (status && plan->backend == Backend::ref) plan->workspace = plan->operation->ref_workspace(*plan);
  return status;
}

}  // namespace falchion
