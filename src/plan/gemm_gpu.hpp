// src/plan/gemm_gpu.hpp: how the operands of a run lie on a GPU, and what the kernel that takes them is handed.
#pragma once

#include "args/gpu_gemm_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// The layout of a run's operands.
GemmLayout layout_of(const PlanData& plan, const GemmOperands& operands) noexcept;
/// taken: one of the plan's choices, whose conditions the layout meets.
gpu::GemmArgs to_gpu_gemm_args(const PlanData& plan, const Choice& taken, const GemmLayout& layout,
                               void* workspace) noexcept;

/// The cut of the plan's own variant if the batch is not rows of one matrix.
GemmGpuCut own_cut(const PlanData& plan) noexcept;

}  // namespace falchion
