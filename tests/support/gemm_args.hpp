// tests/support/gemm_args.hpp: what one of a plan's variants is handed for operands, whichever the plan takes for them.
#pragma once

#include "plan/gemm_gpu.hpp"

namespace falchion::testing {

inline gpu::GemmArgs to_gpu_gemm_args(const PlanData& plan, const Variant& variant, const GemmOperands& operands,
                                      void* workspace) {
  GemmChoice choice = gpu_variant(plan, operands);
  choice.variant = &variant;
  return falchion::to_gpu_gemm_args(plan, choice, workspace);
}

}  // namespace falchion::testing
