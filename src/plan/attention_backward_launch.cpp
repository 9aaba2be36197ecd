// src/plan/attention_backward_launch.cpp: fills a kernel's arguments from a plan of attention's backward pass. It
// decides nothing.
#include "plan/attention_backward_launch.hpp"

#include <algorithm>

#include "plan/attention_launch.hpp"
#include "plan/launch.hpp"
#include "tiles/attention_backward/workspace.hpp"

namespace falchion {
namespace {

/// Over which axes the gradients of what is broadcast are summed.
void set_sums(const Attention& problem, const Operands& x, AttentionBackwardCall* call) {
  for (int axis = 0; axis < 4 && problem.grad_bias; ++axis) call->summed[axis] = x.grad_bias.shape[axis] == 1;
  call->alibi_summed = problem.grad_alibi && x.grad_alibi.shape[0] == 1;
  call->sinks_summed = problem.grad_sinks && x.grad_sinks.shape[0] == 1;
}

}  // namespace

void set_backward_call(const Attention& problem, const Operands* operands, AttentionBackwardCall* call) noexcept {
  set_call(problem, Pass::backward, operands, call);
  call->grads_f32 = problem.grads != Grads::rounded || problem.dtype == DType::f32;
  call->accumulate = problem.grads == Grads::accumulate;
  if (operands != nullptr) set_sums(problem, *operands, call);
}

gpu::AttentionBackwardArgs to_gpu_backward_args(const PlanData& plan, const Operands* operands, void* workspace,
                                                const gpu::AttentionBackwardFacts& facts, bool aligned) noexcept {
  const AttentionPlan& attention = plan.attention();
  const Attention& problem = attention.problem;
  gpu::AttentionBackwardArgs args;
  set_backward_call(problem, operands, &args);
  if (problem.packed && operands != nullptr) args.total_k = operands->k.shape[1];  // nothing is sized by the hint s_k
  args.aligned = aligned;
  args.grads_aligned = operands != nullptr && rows_aligned(operands->grad_q) && rows_aligned(operands->grad_k) &&
                       rows_aligned(operands->grad_v);
  args.early = attention.early;
  args.row_tiles = gpu::backward_tiles(args, args.s_q, args.total_q, facts.rows);
  args.key_tiles = gpu::backward_tiles(args, args.s_k, args.total_k, facts.keys);
  args.ctas_at_once = std::int64_t{plan.gpu.sms} * facts.ctas;
  args.workspace = static_cast<std::byte*>(workspace);
  return args;
}

BackwardWorkspace backward_workspace(const cpu::BackwardMemory& memory, int threads) noexcept {
  BackwardWorkspace layout{};
  layout.scratch = aligned(memory.shared);
  layout.scratch_stride = aligned(memory.scratch);
  layout.total = layout.scratch + layout.scratch_stride * static_cast<std::size_t>(threads);
  return layout;
}

cpu::AttentionBackwardArgs to_backward_args(const PlanData& plan, const Operands* operands, void* workspace) noexcept {
  const AttentionPlan& attention = plan.attention();
  const Attention& problem = attention.problem;
  cpu::AttentionBackwardArgs args;
  set_backward_call(problem, operands, &args);
  args.pool = pool_of(plan);
  args.threads = plan.threads;
  args.rows = attention.rows;
  args.keys = attention.keys;
  args.parts = attention.backward.parts;
  args.wants_q = (problem.frozen & 1) == 0;
  args.wants_kv = (problem.frozen & 2) == 0;
  args.wants_bias = problem.grad_bias;
  args.wants_alibi = problem.grad_alibi;
  if (operands != nullptr) {
    args.capacity_q = operands->q.shape[1];
    args.capacity_k = operands->k.shape[1];
    if (problem.packed) {  // no more rows than the workspace holds; keys take none of it
      args.total_q = std::min(args.total_q, problem.b * problem.s_q);
      args.total_k = operands->k.shape[1];
    }
  }
  if (workspace != nullptr) {
    const BackwardWorkspace layout = backward_workspace(attention.backward.memory, plan.threads);
    auto* base = static_cast<std::byte*>(workspace);
    args.shared = base;
    args.scratch = base + layout.scratch;
    args.scratch_bytes = layout.scratch_stride;
  }
  return args;
}

}  // namespace falchion
