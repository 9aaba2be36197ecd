// src/plan/gemm_gpu.hpp: how the operands of a run lie on a GPU, and what the kernel that takes them is handed.
#pragma once

#include "args/gpu_gemm_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// How the operands of a run lie.
GemmLayout layout_of(const PlanData& plan, const GemmOperands& operands) noexcept;
/// taken: one of the plan's choices, which the layout fits.
gpu::GemmArgs to_gpu_gemm_args(const PlanData& plan, const Choice& taken, const GemmLayout& layout,
                               void* workspace) noexcept;

/// The cut of the plan's own variant where the batch is not rows of one matrix.
GemmGpuCut own_cut(const PlanData& plan) noexcept;

}  // namespace falchion
