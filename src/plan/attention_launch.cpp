// src/plan/attention_launch.cpp: hands a plan over. It decides nothing.
#include "plan/attention_launch.hpp"

#include <algorithm>

#include "plan/attention.hpp"
#include "plan/launch.hpp"
#include "plan/tiles.hpp"
#include "ref/dropout_origin.hpp"

namespace falchion {
namespace {

/// bias, mask: an extent of 1 is broadcast, on the keys too.
View broadcast_view_of(const Tensor& x) {
  View view = view_of(x);
  if (x.shape[3] == 1) view.stride[3] = 0;
  return view;
}

/// Slopes of one entry serve the whole batch.
View slopes_of(const Tensor& x) {
  View view = view_of(x);
  if (x.shape[0] == 1) view.stride[0] = 0;
  return view;
}

void set_operands(const Attention& problem, const Operands& x, AttentionCall* args) {
  args->q = view_of(x.q);
  args->k = view_of(x.k);
  args->v = view_of(x.v);
  args->o = view_of(x.o);
  if (problem.lse) args->lse = view_of(x.lse);
  if (problem.row_max) args->row_max = view_of(x.row_max);
  if (problem.probabilities) args->probabilities = view_of(x.probabilities);
  if (problem.bias) args->bias = broadcast_view_of(x.bias);
  if (problem.mask) args->mask = broadcast_view_of(x.mask);
  args->bias_f32 = x.bias.dtype == DType::f32;
  if (problem.alibi) args->alibi = slopes_of(x.alibi);
  if (problem.packed) {
    args->cu_q = x.cu_seqlens_q;
    args->cu_k = x.cu_seqlens_k;
    args->total_q = x.q.shape[1];
    args->total_k = std::min(x.k.shape[1], args->total_k);  // no more than the workspace holds
  }
  args->used_q = problem.used_q ? x.used_q : nullptr;
  args->used_k = problem.used_k ? x.used_k : nullptr;
  args->first_k = problem.first_k ? x.first_k : nullptr;
  args->seed = x.rng.seed;
  args->offset = x.rng.offset;
  args->rng_at = problem.dropout > 0 ? x.rng.at : nullptr;
  args->origin = origin_of(problem, x.rng);
}

void set_problem(const Attention& problem, AttentionCall* args) {
  args->b = problem.b;
  args->s_q = problem.s_q;
  args->s_k = problem.s_k;
  args->h_q = problem.h_q;
  args->h_k = problem.h_k;
  args->d_qk = problem.d_qk;
  args->d_v = problem.d_v;
  args->packed = problem.packed;
  if (problem.packed) {
    args->total_q = problem.b * problem.s_q;
    args->total_k = problem.b * problem.s_k;
  }
  args->left = problem.band.left;
  args->right = problem.band.right;
  args->bottom_right = problem.band.align != Align::top_left && problem.band.align != Align::at;
  args->diagonal = problem.band.offset;
  args->scale = problem.score.scale;
  args->softcap = problem.score.softcap;
  args->dropout = problem.dropout;
}

}  // namespace

void set_call(const Attention& problem, const Operands* operands, AttentionCall* call) noexcept {
  set_problem(problem, call);
  if (operands != nullptr) set_operands(problem, *operands, call);
}

WorkspaceLayout workspace_layout(const cpu::Memory& memory, int threads) noexcept {
  WorkspaceLayout layout{};
  layout.packed_v = aligned(memory.packed_k);
  layout.scratch = layout.packed_v + aligned(memory.packed_v);
  layout.scratch_stride = aligned(memory.scratch);
  layout.partials = layout.scratch + layout.scratch_stride * static_cast<std::size_t>(threads);
  layout.total = layout.partials + aligned(memory.partials);
  return layout;
}

cpu::AttentionArgs to_args(const PlanData& plan, const Operands* operands, void* workspace) noexcept {
  const AttentionPlan& attention = plan.attention();
  cpu::AttentionArgs args;
  set_call(attention.problem, operands, &args);

  args.pool = pool_of(plan);
  args.threads = plan.threads;
  args.rows = attention.rows;
  args.keys = attention.keys;
  args.splits = attention.splits;
  args.heads = attention.heads;
  args.decode = attention.decode;
  if (workspace != nullptr) {
    const WorkspaceLayout layout = workspace_layout(attention.memory, plan.threads);
    auto* base = static_cast<std::byte*>(workspace);
    args.packed_k = base;
    args.packed_v = base + layout.packed_v;
    args.scratch = base + layout.scratch;
    args.scratch_bytes = layout.scratch_stride;
    args.partials = reinterpret_cast<float*>(base + layout.partials);
  }
  return args;
}

gpu::AttentionArgs to_gpu_args(const PlanData& plan, const Operands& operands, void* workspace, int rows,
                               bool aligned) noexcept {
  const AttentionPlan& attention = plan.attention();
  const Attention& problem = attention.problem;
  gpu::AttentionArgs args;
  set_call(problem, &operands, &args);
  if (problem.packed) args.total_k = operands.k.shape[1];  // nothing is sized by the hint s_k
  args.group = attention.group;
  args.walkers = attention.walkers;
  args.splits = attention.splits;
  args.aligned = aligned;
  args.early = attention.early;
  args.tiles = gpu_row_tiles(problem, args.total_q, args.group, rows);
  auto* base = static_cast<std::byte*>(workspace);
  if (attention.counted) {
    args.counter = base;
    args.section = gpu_section(problem, args.total_k, args.group, tiles::kSectionBytes);
    args.last_section = gpu_section(problem, args.total_k, args.group, tiles::kLastSectionBytes);
  }
  args.halves = base + attention.halves;
  if (attention.splits > 1) {
    args.partial_o = reinterpret_cast<float*>(base);
    args.partial_m_l = reinterpret_cast<float*>(base + attention.partial_m_l);
  }
  return args;
}

}  // namespace falchion
