// src/api/data_of.hpp: what a plan decided, for the command and the tests; to callers a plan is closed.
#pragma once

#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

struct PlanAccess {
  static const PlanData* data(const Plan& plan) { return plan.data_.get(); }
};

/// Null for an empty plan.
inline const PlanData* data_of(const Plan& plan) { return PlanAccess::data(plan); }

}  // namespace falchion
