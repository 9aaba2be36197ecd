// src/plan/attention_gpu.hpp: the GPU's part of planning attention: which row, how the grid is cut.
#pragma once

#include "plan/plan_data.hpp"

namespace falchion {

/// Takes the first row of the backend that fits the problem and the device and decides how it runs; on failure
/// plan->rejected tells each reason, and the status is the one to give when this backend was asked for.
Status plan_attention_gpu(Backend backend, PlanData* plan);

/// Whether q, k, v and o can be moved 16 bytes at a time.
bool aligned_to_16(const Attention& problem, const Operands& operands) noexcept;

}  // namespace falchion
