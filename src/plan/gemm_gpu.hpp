// src/plan/gemm_gpu.hpp: which variant of a GPU takes the operands of a run, and what it is handed.
#pragma once

#include "args/gpu_gemm_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

GpuChoice gpu_variant(const PlanData& plan, const GemmOperands& operands) noexcept;
gpu::GemmArgs to_gpu_gemm_args(const PlanData& plan, const Variant& variant, const GemmOperands& operands,
                               void* workspace) noexcept;

}  // namespace falchion
