// src/plan/attention_backward_launch.hpp: a plan of attention's backward pass and its operands -> what a kernel is
// handed.
#pragma once

#include <cstddef>

#include "args/attention_backward_call.hpp"
#include "args/cpu_attention_backward_args.hpp"
#include "args/gpu_attention_backward_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// What every kernel of the pass is handed of the problem, and of the operands where they are not null.
void set_backward_call(const Attention& problem, const Operands* operands, AttentionBackwardCall* call) noexcept;

/// What a GPU kernel with these facts is handed. operands null: sizes only, where packed totals are their upper bounds
/// b * s.
gpu::AttentionBackwardArgs to_gpu_backward_args(const PlanData& plan, const Operands* operands, void* workspace,
                                                const gpu::AttentionBackwardFacts& facts, bool aligned) noexcept;

/// The parts of a CPU plan's workspace in order, each 64-byte aligned: what all workers share, scratch of each thread.
struct BackwardWorkspace {
  std::size_t scratch, scratch_stride, total;  // offsets in bytes; what is shared lies at 0
};
BackwardWorkspace backward_workspace(const cpu::BackwardMemory& memory, int threads) noexcept;

/// operands null: sizes only, for AttentionBackwardKernel::memory. workspace null: no place for anything yet.
cpu::AttentionBackwardArgs to_backward_args(const PlanData& plan, const Operands* operands, void* workspace) noexcept;

}  // namespace falchion
