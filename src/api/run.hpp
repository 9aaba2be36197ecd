// src/api/run.hpp: what Plan::make and Plan::run do, whatever the operation.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "falchion/falchion.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "runtime/place.hpp"

namespace falchion {

/// What the caller lends a run.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// What a one-call form has found out before it runs its plan, so that the run need not ask again.
struct Known {
  const void* data = nullptr;          // an operand's,
  cuda::Place place{};                 // and where that lies
  bool device_is_current = false;      // the plan's
  bool workspace_is_in_place = false;  // it is the library's own
};

/// Validates the question and answers it. Nothing is written to *plan on refusal.
template <class Problem>
Status make_plan(const Problem& problem, Pass pass, const Target& target, std::shared_ptr<const PlanData>* plan);

/// Validates the operands and hands them over with the plan. A plan of another kind of problem is refused. Never
/// throws.
template <class Problem>
Status run(const PlanData& plan, const OperandsOf<Problem>& operands, const Workspace& workspace, Stream stream,
           const Known& known = {}) noexcept;

/// Of an empty tensor nothing is read.
const void* data_of(const Tensor& x);
/// The answer where CUDA's driver was asked for the place of an operand and failed: that is no fault of the operand.
Status unknown_place(const char* name, std::string_view asks);

}  // namespace falchion
