// tests/support/gemm_args.hpp: what one of a plan's variants is handed for operands, whichever the plan takes for them.
#pragma once

#include <algorithm>

#include "plan/gemm_gpu.hpp"

namespace falchion::testing {

inline gpu::GemmArgs to_gpu_gemm_args(const PlanData& plan, const Variant& variant, const GemmOperands& operands,
                                      void* workspace) {
  const GemmLayout layout = layout_of(plan, operands);
  const auto is_its = [&](const Choice& choice) {
    return choice.variant == &variant &&
           choice.needs.has(Condition::one_matrix) == layout.met.has(Condition::one_matrix);
  };
  const auto choice = std::find_if(plan.gpu.choices.begin(), plan.gpu.choices.end(), is_its);
  return falchion::to_gpu_gemm_args(plan, *choice, layout, workspace);
}

}  // namespace falchion::testing
