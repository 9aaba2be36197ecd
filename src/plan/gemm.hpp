// src/plan/gemm.hpp: a plan of a GEMM and its operands -> a kernel's arguments.
#pragma once

#include <cstddef>

#include "args/cpu_gemm_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

// Operation's dtype, resolve, plan_cpu and plan_gpu (plan/operation.hpp).
DType gemm_dtype(const PlanData& plan);
void resolve_gemm(PlanData* plan);
void plan_gemm_cpu(PlanData* plan);
Status plan_gemm_gpu(Backend backend, PlanData* plan);

// The types of the operands that have a choice, with as_q resolved.
DType dtype_of_c(const Gemm& problem);
DType dtype_of_d(const Gemm& problem);
/// Rows of b: n, or 2 n with swiglu.
std::int64_t rows_of_b(const Gemm& problem);

/// How many scales a, or b, has along its rows and along k.
struct ScaleCount {
  std::int64_t rows = 1, along_k = 1;
};
ScaleCount scales_of_a(const Gemm& problem);
ScaleCount scales_of_b(const Gemm& problem);

/// The kernel's arguments of a run of the plan.
cpu::GemmArgs to_gemm_args(const PlanData& plan, const GemmOperands& operands, void* workspace) noexcept;

}  // namespace falchion
