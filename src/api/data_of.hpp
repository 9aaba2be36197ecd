// src/api/data_of.hpp: a plan's decisions, for the command and the tests; for callers a plan is opaque.
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
