// src/api/run.hpp: what Plan::run does, whatever the operation.
#pragma once

#include <cstddef>
#include <string_view>

#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// What the caller lends a run.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Validates the operands and hands them over with the plan. A plan of an operation that takes other operands is
/// refused.
Status run(const PlanData& plan, const Operands& operands, const Workspace& workspace, Stream stream);
Status run(const PlanData& plan, const LinearOperands& operands, const Workspace& workspace, Stream stream);
Status run(const PlanData& plan, const GemmOperands& operands, const Workspace& workspace, Stream stream);
Status run(const PlanData& plan, const NormOperands& operands, const Workspace& workspace, Stream stream);

/// Of an empty tensor nothing is read.
const void* data_of(const Tensor& x);
/// The answer where CUDA's driver was asked for the place of an operand and failed: that is no fault of the operand.
Status unknown_place(const char* name, std::string_view asks);

}  // namespace falchion
