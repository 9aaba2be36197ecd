// src/plan/gemm_gpu.hpp: which variant of a GPU takes the operands of a run, and what it is handed.
#pragma once

#include "args/gpu_gemm_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

GemmChoice gpu_variant(const PlanData& plan, const GemmOperands& operands) noexcept;
/// choice.variant is one of the plan's.
gpu::GemmArgs to_gpu_gemm_args(const PlanData& plan, const GemmChoice& choice, void* workspace) noexcept;

}  // namespace falchion
