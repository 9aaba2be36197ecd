// src/plan/attention_backward_gpu.cpp: problem + device -> variant, grid and workspace of the backward pass on a GPU.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/size.hpp"
#include "plan/attention_backward.hpp"
#include "plan/attention_backward_launch.hpp"
#include "plan/gpu_variants.hpp"
#include "plan/launch.hpp"
#include "plan/paths.hpp"
#include "plan/text.hpp"
#include "runtime/runtime.hpp"

namespace falchion {
namespace {

std::string why_not(const Variant& listed, const Attention& a) {
  // The workspace has the statistics of the rows, so the plan must know their number.
  if (a.packed && a.s_q == 0) return "packed lengths without a hint";
  // It makes dS for both grad_q and grad_k; a sweep of the rows alone makes three products instead of four.
  if (listed.kind == VariantKind::once && (a.frozen & 2) != 0) return "frozen k and v: only the rows need a sweep";
  return why_lacking(listed, a, features_of(a, Pass::backward));
}

Status decide_grid(const cuda::Device& device, PlanData* plan) {
  AttentionPlan& attention = plan->attention();
  const Attention& a = attention.problem;
  const gpu::BackwardVariantFacts& facts = plan->variant->facts_as<gpu::BackwardVariantFacts>();
  set_device(device, plan);
  attention.rows = facts.rows;
  attention.keys = facts.keys;
  attention.early = device.sm >= 90;
  const gpu::AttentionBackwardArgs args = to_gpu_backward_args(*plan, nullptr, nullptr, facts, true);
  attention.tiles = args.row_tiles;
  const std::int64_t sequences = a.packed ? 1 : a.b;
  const std::int64_t of_rows = args.row_tiles * a.h_q * sequences, of_keys = args.key_tiles * a.h_k * sequences;
  // Tiles that a CTA owns. Kind wide has one kernel for all requested sides. Of sm80's two kernels the one for grad_q
  // is counted.
  if (plan->variant->kind == VariantKind::wide)
    plan->items = ((a.frozen & 2) != 0 ? 0 : of_keys) + ((a.frozen & 1) != 0 ? 0 : of_rows);
  else
    plan->items = computes_pairs_once(*plan->variant) ? of_keys : of_rows;
  if (facts.goes_on && plan->items > 0) {
    const std::int64_t slots = args.ctas_at_once;
    attention.walkers = static_cast<int>(a.packed ? slots : std::min(plan->items, slots));
    attention.counted = a.packed || plan->items > slots;
  }
  plan->workspace = facts.workspace(args);
  if (std::max(of_rows, of_keys) <= INT32_MAX / 4) return {};
  return {Code::unsupported, text("b * h_q * s_q: ", of_rows, " tiles of rows and ", of_keys,
                                  " of keys are over the grid's limit of ", INT32_MAX / 4)};
}

/// The conditions of a variant on a run's operands.
Conditions needs_of(const Variant& variant) {
  if (variant.kind == VariantKind::general) return {};
  const Conditions all = Condition::aligned | Condition::contiguous;
  return variant.backend == Backend::sm90 ? all | Condition::tma : all;
}

/// q, k, v, o and grad_o are read 16 bytes at a time.
bool aligned_to_16(const Attention& a, const Operands& x) noexcept {
  const std::int64_t chunk = 16 / size_of(a.dtype);
  return a.d_qk % chunk == 0 && a.d_v % chunk == 0 && rows_aligned(x.q) && rows_aligned(x.k) && rows_aligned(x.v) &&
         rows_aligned(x.o) && rows_aligned(x.grad_o);
}

}  // namespace

bool computes_pairs_once(const Variant& variant) noexcept {
  return variant.kind == VariantKind::once || (variant.backend == Backend::sm90 && variant.kind == VariantKind::plain);
}

Layout backward_layout_of(const PlanData& plan, const Operands& x) noexcept {
  Layout layout;
  layout.met.add_if(aligned_to_16(plan.attention().problem, x), Condition::aligned);
  layout.met.add_if(x.grad_o.shape[3] == 1 || x.grad_o.stride[3] == 1, Condition::contiguous);  // others always are
  if (plan.variant->backend == Backend::sm90)
    layout.met.add_if(fits_tma(x.q) && fits_tma(x.k) && fits_tma(x.v) && fits_tma(x.grad_o), Condition::tma);
  return layout;
}

Status plan_attention_backward_gpu(Backend backend, PlanData* plan) {
  cuda::Device device;
  if (Status status = device_for(backend, plan, &device); !status) return status;
  const Attention& a = plan->attention().problem;
  const std::int64_t d = std::max(a.d_qk, a.d_v);
  const GpuWish wish{.d = d,
                     .concerns = [d](const Variant& listed) { return listed.kind != VariantKind::wide || d > 128; },
                     .why_not = [&](const Variant& listed) { return why_not(listed, a); }};
  if (Status status = take_gpu_variant(backend, device, wish, plan); !status) return status;
  choose_or_general(needs_of(*plan->variant), device, wish, plan);
  return decide_grid(device, plan);
}

}  // namespace falchion
