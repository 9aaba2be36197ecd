// src/plan/attention_backward_launch.hpp: a plan of attention's backward pass and its operands -> a kernel's arguments.
#pragma once

#include <cstddef>

#include "args/attention_backward_call.hpp"
#include "args/cpu_attention_backward_args.hpp"
#include "args/gpu_attention_backward_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

/// Sets the fields of every kernel of the pass from the problem, and from the operands if not null.
void set_backward_call(const Attention& problem, const Operands* operands, AttentionBackwardCall* call) noexcept;

/// The arguments of a GPU kernel with these facts. operands null: sizes only, where packed totals are their upper
/// bounds b * s.
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
