// src/plan/attention_gpu.hpp: the GPU's part of planning attention: which row, how the grid is cut.
#pragma once

#include "plan/plan_data.hpp"

namespace falchion {

/// Takes the first row of the backend that fits the problem and the device and decides how it runs; on failure
/// plan->rejected tells each reason, and the status is the one to give when this backend was asked for.
Status plan_attention_gpu(Backend backend, PlanData* plan);

/// The row that runs on these operands: the plan's, or the one for operands that it cannot move; null: none is built.
struct GpuRow {
  const Variant* variant;
  bool aligned;  // q, k, v and o can be moved 16 bytes at a time
};
GpuRow gpu_row(const PlanData& plan, const Operands& operands) noexcept;

}  // namespace falchion
