// src/plan/linear_attention.hpp: a plan of linear attention and its operands -> a kernel's arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/cpu_linear_attention_args.hpp"
#include "args/gpu_linear_attention_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

// Operation's dtype, resolve, plan_cpu, plan_gpu and ref_workspace (plan/operation.hpp).
DType linear_dtype(const PlanData& plan);
void resolve_linear(PlanData* plan);
void plan_linear_attention_cpu(PlanData* plan);
Status plan_linear_attention_gpu(Backend backend, PlanData* plan);
std::size_t linear_ref_workspace(const PlanData& plan);

/// Tokens of a chunk: the kernel's; without a kernel (ref, a refusal) the usual 64, for estimates.
int linear_chunk(const PlanData& plan);

/// Cuts each sequence into about `wanted` segments of whole chunks, each of `least` chunks or more; Target::segments
/// overrides both. Packed sequences stay whole: their lengths are known only at run time.
void cut_into_segments(std::int64_t wanted, std::int64_t least, int chunk, PlanData* plan);

/// The layout of a run's operands.
Layout layout_of(const PlanData& plan, const LinearOperands& operands) noexcept;

// operands null: for memory() and workspace() of a kernel, before there are any: a packed total is then its upper bound
// b * s, and an operand that there will be has a dummy address. workspace null: without addresses in it.
cpu::LinearAttentionArgs to_linear_args(const PlanData& plan, const LinearOperands* operands, void* workspace) noexcept;
gpu::LinearAttentionArgs to_linear_gpu_args(const PlanData& plan, const LinearOperands* operands, void* workspace,
                                            bool aligned) noexcept;

}  // namespace falchion
