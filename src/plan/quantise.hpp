// src/plan/quantise.hpp: a plan of Quantise and its operands -> a kernel's arguments.
#pragma once

#include <cstdint>

#include "args/gpu_quantise_args.hpp"
#include "base/divide.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

// Operation's dtype, resolve and plan_gpu (plan/operation.hpp). On the CPU the definition runs.
DType quantise_dtype(const PlanData& plan);
void resolve_quantise(PlanData* plan);
Status plan_quantise_gpu(Backend backend, PlanData* plan);

/// Rows of a block; at least 1.
inline std::int64_t rows_of_a_block(const Quantise& q) { return q.rows > 0 ? q.rows : q.s > 0 ? q.s : 1; }
/// Blocks of one head: the second extent of scale.
inline std::int64_t blocks_of(const Quantise& q) { return q.s > 0 ? ceil_div(q.s, rows_of_a_block(q)) : 0; }

/// The kernel's arguments of a run of the plan. cut: that of its choice.
gpu::QuantiseArgs to_gpu_quantise_args(const PlanData& plan, const QuantiseOperands& operands,
                                       const gpu::QuantiseCut& cut, void* workspace) noexcept;

/// The layout of a run's operands.
Layout layout_of(const PlanData& plan, const QuantiseOperands& operands) noexcept;

}  // namespace falchion
