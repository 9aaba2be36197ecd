// src/plan/norm.hpp: a plan of a norm and its operands -> a kernel's arguments.
#pragma once

#include <cstdint>
#include <span>

#include "args/cpu_norm_args.hpp"
#include "args/gpu_norm_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

// Operation's dtype, resolve, plan_cpu and plan_gpu (plan/operation.hpp).
DType norm_dtype(const PlanData& plan);
void resolve_norm(PlanData* plan);
void plan_norm_cpu(PlanData* plan);
Status plan_norm_gpu(Backend backend, PlanData* plan);

// Both passes: the sizes; and the rows' three axes, b, s and h. If a step along one axis equals, in all operands, all
// steps along the next one together, both are merged into one axis with one stride. This merges them into s, so that a
// kernel need not divide.
void set_sizes(const Norm& problem, NormRows* rows);
void join_axes(std::span<View* const> all, std::int64_t b, NormRows* rows);
/// The bytes that a large norm, or a quantise, is expected to move in a second on the device.
double norm_rate(const cuda::Device& device);

// The types of the operands that have a choice, with as_q resolved.
DType dtype_of_y(const Norm& problem);
DType dtype_of_residual(const Norm& problem);

// The kernel's arguments of a run of the plan. cut: that of its choice.
cpu::NormArgs to_norm_args(const PlanData& plan, const NormOperands& operands, void* workspace) noexcept;
gpu::NormArgs to_gpu_norm_args(const PlanData& plan, const NormOperands& operands, const gpu::NormCut& cut) noexcept;

/// The layout of a run's operands.
Layout layout_of(const PlanData& plan, const NormOperands& operands) noexcept;

}  // namespace falchion
