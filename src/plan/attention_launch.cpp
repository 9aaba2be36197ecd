// src/plan/attention_launch.cpp: fills a kernel's arguments from a plan of attention. It decides nothing.
#include "plan/attention_launch.hpp"

#include <algorithm>

#include "base/size.hpp"
#include "plan/attention.hpp"
#include "plan/constants.hpp"
#include "plan/launch.hpp"
#include "ref/cache_pages.hpp"
#include "ref/dropout_origin.hpp"

namespace falchion {
namespace {

void set_operands(const Attention& problem, const Operands& x, AttentionCall* call) {
  call->bias_f32 = x.bias.dtype == DType::f32;
  if (problem.packed) {
    call->cu_q = x.cu_seqlens_q;
    call->total_q = x.q.shape[1];
  }
  if (problem.packed && !problem.cache) {
    call->cu_k = x.cu_seqlens_k;
    call->total_k = std::min(x.k.shape[1], call->total_k);  // no more than the workspace holds
  }
  call->pages = pages_of(problem, x);
  call->rotation = rotation_of(problem, x);
  call->seed = x.rng.seed;
  call->offset = x.rng.offset;
  call->rng_at = problem.dropout > 0 ? x.rng.at : nullptr;
  call->origin = origin_of(problem, x.rng);
}

}  // namespace

void set_rest(const Attention& problem, const Operands* operands, AttentionCall* call) noexcept {
  if (problem.packed) {
    call->total_q = problem.b * problem.s_q;
    call->total_k = problem.b * problem.s_k;
  }
  call->left = problem.band.left;
  call->right = problem.band.right;
  call->bottom_right = problem.band.align != Align::top_left && problem.band.align != Align::at;
  call->diagonal = problem.band.offset;
  call->pages.size = problem.page_size;
  call->k_scale_rows = rows_of_k_scale(problem);
  call->type_q = number_of(problem.dtype);
  call->type_k = number_of(dtype_of_k(problem));
  call->type_v = number_of(dtype_of_v(problem));
  call->type_o = number_of(dtype_of_o(problem));
  if (operands != nullptr) set_operands(problem, *operands, call);
}

std::size_t rotated_bytes(const Attention& a) noexcept {
  return a.rotary_dim == 0 ? 0 : static_cast<std::size_t>(a.b * a.s_q * a.h_q * a.d_qk * size_of(a.dtype));
}

WorkspaceLayout workspace_layout(const cpu::Memory& memory, int threads) noexcept {
  WorkspaceLayout layout{};
  layout.packed_v = aligned(memory.packed_k);
  layout.scratch = layout.packed_v + aligned(memory.packed_v);
  layout.scratch_stride = aligned(memory.scratch);
  layout.partials = layout.scratch + layout.scratch_stride * static_cast<std::size_t>(threads);
  layout.rotated = layout.partials + aligned(memory.partials);
  layout.total = layout.rotated + aligned(memory.rotated);
  return layout;
}

cpu::AttentionArgs to_args(const PlanData& plan, const Operands* operands, void* workspace) noexcept {
  const AttentionPlan& attention = plan.attention();
  cpu::AttentionArgs args;
  set_call<AttentionCall>(attention.problem, Pass::forward, operands, &args);

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
    args.rotated = base + layout.rotated;
  }
  return args;
}

gpu::AttentionArgs to_gpu_args(const PlanData& plan, const Operands& operands, void* workspace, const Variant& taken,
                               bool aligned) noexcept {
  const AttentionPlan& attention = plan.attention();
  const Attention& problem = attention.problem;
  gpu::AttentionArgs args;
  set_call<AttentionCall>(problem, Pass::forward, &operands, &args);
  if (problem.packed && !problem.cache) args.total_k = operands.k.shape[1];  // nothing is sized by the hint s_k
  args.group = attention.group;
  args.walkers = attention.walkers;
  // Only the plan's own variant cuts the keys of packed rows, as far as the workspace has room for their partial
  // results.
  const bool fits = !problem.packed || (&taken == plan.variant && args.total_q <= problem.b * problem.s_q);
  args.splits = fits ? attention.splits : 1;
  args.aligned = aligned;
  args.early = attention.early;
  args.tiles = gpu_row_tiles(problem, args.total_q, args.group, taken.facts_as<gpu::AttentionFacts>().rows);
  auto* base = static_cast<std::byte*>(workspace);
  args.rotated = base + attention.rotated;
  if (attention.counted) {
    args.counter = base;
    args.section = gpu_section(problem, args.total_k, args.group, tiles::kSectionBytes);
    args.last_section = gpu_section(problem, args.total_k, args.group, tiles::kLastSectionBytes);
  }
  if (attention.width > 0) {
    args.section = attention.width;
    args.partial_o = reinterpret_cast<float*>(base);
  }
  args.copies = base + attention.copies;
  if (args.splits > 1) {
    args.partial_o = reinterpret_cast<float*>(base);
    args.partial_m_l = reinterpret_cast<float*>(base + attention.partial_m_l);
  }
  return args;
}

}  // namespace falchion
