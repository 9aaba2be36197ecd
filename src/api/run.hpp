// src/api/run.hpp: Plan::make and Plan::run for all operations.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "falchion/falchion.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "runtime/place.hpp"

namespace falchion {

/// The caller's workspace for a run.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Findings of a one-call form before it runs its plan, so that the run need not query them again.
struct Known {
  const void* data = nullptr;          // an operand's,
  cuda::Place place{};                 // and where that lies
  bool device_is_current = false;      // the plan's
  bool workspace_is_in_place = false;  // it is the library's own
};

/// Validates the problem and plans it. Nothing is written to *plan on refusal.
template <class Problem>
Status make_plan(const Problem& problem, Pass pass, const Target& target, std::shared_ptr<const PlanData>* plan);

/// Validates the operands and runs the plan on them. A plan of another kind of problem is refused. Never throws.
template <class Problem>
Status run(const PlanData& plan, const OperandsOf<Problem>& operands, const Workspace& workspace, Stream stream,
           const Known& known = {}) noexcept;

/// Null for an empty tensor, which is never read.
const void* data_of(const Tensor& x);
/// The status when CUDA's driver failed to report the place of an operand: a device error, since the operand may be
/// valid.
Status unknown_place(const char* name, std::string_view asks);

}  // namespace falchion
