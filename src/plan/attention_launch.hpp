// src/plan/attention_launch.hpp: a plan and its operands -> what a kernel is handed.
#pragma once

#include "args/cpu_attention_args.hpp"
#include "args/gpu_attention_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// What a call of either pass has of the problem, and of the operands where they are not null.
void set_call(const Attention& problem, const Operands* operands, AttentionCall* call) noexcept;

/// operands null: sizes only, for AttentionKernel::memory (packed totals are then their upper bounds b * s).
/// workspace null: no place for anything yet. Allocates nothing.
cpu::AttentionArgs to_args(const PlanData& plan, const Operands* operands, void* workspace) noexcept;

/// The same for a GPU kernel, whose tiles have `rows` rows.
gpu::AttentionArgs to_gpu_args(const PlanData& plan, const Operands& operands, void* workspace, int rows,
                               bool aligned) noexcept;

/// The parts of the workspace in order, each 64-byte aligned: packed K, packed V, scratch of each thread, partials.
struct WorkspaceLayout {
  std::size_t packed_v, scratch, scratch_stride, partials, total;  // offsets in bytes; packed K lies at 0
};
WorkspaceLayout workspace_layout(const cpu::Memory& memory, int threads) noexcept;

}  // namespace falchion
