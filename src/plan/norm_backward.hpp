// src/plan/norm_backward.hpp: a plan of a norm's backward pass and its operands -> a kernel's arguments.
#pragma once

#include <array>
#include <cstddef>

#include "args/cpu_norm_backward_args.hpp"
#include "args/gpu_norm_backward_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

// Operation's plan_cpu, plan_gpu and ref_workspace (plan/operation.hpp).
void plan_norm_backward_cpu(PlanData* plan);
Status plan_norm_backward_gpu(Backend backend, PlanData* plan);
std::size_t norm_backward_ref_workspace(const PlanData& plan);

/// The sweeps of a run over its rows: one, or a first one for grad_bias alone, where rows share its elements along
/// other axes than those of grad_weight. grad_x is written in the last, because it may be in the place of grad_y.
struct NormSweeps {
  std::array<NormBackwardCall, 2> call;
  std::size_t count = 1;
};
NormSweeps sweeps_of(const PlanData& plan, const NormOperands& operands) noexcept;

// The kernel's arguments of a sweep.
cpu::NormBackwardArgs to_norm_backward_args(const PlanData& plan, const NormBackwardCall& sweep,
                                            void* workspace) noexcept;
gpu::NormBackwardArgs to_gpu_norm_backward_args(const PlanData& plan, const NormBackwardCall& sweep,
                                                const gpu::NormBackwardCut& cut, void* workspace) noexcept;

/// The layout of a run's operands.
Layout gradient_layout_of(const PlanData& plan, const NormOperands& operands) noexcept;

}  // namespace falchion
