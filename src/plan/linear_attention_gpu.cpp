// src/plan/linear_attention_gpu.cpp: linear attention + device -> variant, segments, workspace. Every decision about
// the GPU is here.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/divide.hpp"
#include "base/size.hpp"
#include "plan/constants.hpp"
#include "plan/gpu_variants.hpp"
#include "plan/launch.hpp"
#include "plan/linear_attention.hpp"
#include "plan/operation.hpp"
#include "plan/paths.hpp"
#include "plan/text.hpp"
#include "runtime/runtime.hpp"

namespace falchion {
namespace {

/// aligned: whether the operands are.
std::string why_not(const Variant& listed, const LinearAttention& a, Pass pass, bool aligned) {
  std::string why = why_lacking(listed, a, features_of(a, pass, aligned));
  const bool of_packed = listed.backend == Backend::sm90 && why.starts_with(name(Feature::packed));
  return of_packed ? why + ": a chunk of Hopper's would reach into the next one" : why;
}

/// CTAs that each segment of a head has.
std::int64_t ctas_of_segment(const gpu::LinearAttentionFacts& facts, const LinearAttention& a, Pass pass) {
  const std::int64_t columns = pass == Pass::forward ? a.d_v : std::max(a.d_qk, a.d_v);
  return (facts.columns > 0 ? ceil_div(columns, facts.columns) : 1) * facts.sweeps;
}

/// Whole chunks each, and no more than `room` for all segments but the last.
int parts_of(const LinearPlan& linear, int chunk, std::int64_t room) {
  if (linear.segments == 1 || linear.ctas == 0) return 1;
  std::int64_t parts = std::min<std::int64_t>(linear.segment / tiles::kLinearPart, tiles::kLinearParts);
  parts = std::clamp<std::int64_t>(room / (linear.ctas * (linear.segments - 1)), 1, std::max<std::int64_t>(parts, 1));
  while (linear.segment / chunk % parts != 0) --parts;
  return static_cast<int>(parts);
}

/// The time until all are done if SMs take `wide` CTAs of time kLinearWide, one at a time, then `narrow` ones of time
/// 1.
double time_of(std::int64_t wide, std::int64_t narrow, std::int64_t sms) {
  static_assert(tiles::kLinearWide < 3);
  const std::int64_t rounds = wide / sms, later = wide % sms, sooner = sms - later;  // SMs that have one more, or not
  const double ready = static_cast<double>(rounds) * tiles::kLinearWide;
  if (later == 0) return ready + static_cast<double>(ceil_div(narrow, sms));
  // The CTAs that an SM has finished when others have done `n`, if it became ready `ahead` sooner.
  const auto done = [](std::int64_t n, double ahead) {
    return std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(static_cast<double>(n) + ahead)), 0);
  };
  // The last CTA ends a whole number of narrow CTAs after either group became ready.
  std::int64_t n = narrow / sms, n_later = std::max<std::int64_t>(n - 2, 0);
  while (n * sooner + done(n, -tiles::kLinearWide) * later < narrow) ++n;
  while (done(n_later, tiles::kLinearWide) * sooner + n_later * later < narrow) ++n_later;
  const double ready_later = ready + tiles::kLinearWide;
  return std::max(ready_later, std::min(ready + static_cast<double>(n), ready_later + static_cast<double>(n_later)));
}

/// Sweeps whose CTAs have all columns of a head: the number with the shortest time, of equals the largest.
int wide_sweeps(const gpu::LinearAttentionFacts& facts, const PlanData& plan) {
  const LinearAttention& a = plan.linear().problem;
  if (facts.wide_d == 0 || a.d_qk != facts.wide_d || a.d_v != facts.wide_d) return 0;
  if (plan.linear().segments > 1 || a.initial_state || a.final_state) return 0;  // they start from 0 and keep S
  const std::int64_t narrow = facts.wide_d / facts.columns;
  const auto time = [&](int wide) {
    return time_of(plan.items * wide, plan.items * (facts.sweeps - wide) * narrow, plan.gpu.sms);
  };
  int best = 0;
  for (int wide = 1; wide <= facts.sweeps; ++wide)
    if (time(wide) < time(best) || (best > 0 && time(wide) == time(best))) best = wide;
  return best;
}

Status decide_grid(const cuda::Device& device, PlanData* plan) {
  LinearPlan& linear = plan->linear();
  const LinearAttention& problem = linear.problem;
  const gpu::LinearAttentionFacts& facts = plan->variant->facts_as<gpu::LinearVariantFacts>();
  set_device(device, plan);
  const std::int64_t heads = plan->items = problem.b * problem.h_v;
  const std::int64_t ctas = linear.ctas = heads * ctas_of_segment(facts, problem, plan->pass);
  const bool hopper = plan->variant->backend == Backend::sm90, light = hopper && problem.dtype != DType::f32;
  const double busy_share = light ? tiles::kLinearBusyLight : tiles::kLinearBusy;
  const bool busy = static_cast<double>(ctas) >= busy_share * device.sms;
  // One CTA an SM, even if two would fit: each cut reads k and v once more.
  const std::int64_t wanted = busy || ctas == 0 ? 1 : std::max<std::int64_t>(device.sms / ctas, 1);
  cut_into_segments(wanted, tiles::kLinearChunks, facts.chunk, plan);
  // Hopper's CTAs sum one part each in the same launch; elsewhere the parts have a separate launch on the whole device.
  const std::int64_t room = hopper ? ctas * linear.segments : std::int64_t{device.sms} * plan->gpu.ctas;
  linear.parts = parts_of(linear, facts.chunk, room);
  linear.wide = wide_sweeps(facts, *plan);
  if (linear.wide > 0) linear.ctas -= heads * linear.wide * (facts.wide_d / facts.columns - 1);
  if (static_cast<double>(ctas) * linear.segments * linear.parts > INT32_MAX) {
    return {Code::unsupported, text("b * h_v: ", heads, " heads of ", linear.segments,
                                    " segments are over the grid's limit of ", INT32_MAX, " CTAs")};
  }
  plan->workspace = 0;
  for (const Choice& choice : plan->gpu.choices) {
    if (heads == 0) break;
    const bool aligned = choice.variant == plan->variant;
    const auto bytes = choice.variant->facts_as<gpu::LinearVariantFacts>().workspace;
    plan->workspace = std::max(plan->workspace, bytes(to_linear_gpu_args(*plan, nullptr, nullptr, aligned)));
  }
  return {};
}

/// The conditions of a variant on a run's operands.
Conditions needs_of(const Variant& variant) {
  if (variant.features.has(Feature::unaligned)) return {};
  return variant.backend == Backend::sm90 ? Condition::aligned | Condition::tma : Condition::aligned;
}

/// For operands that the plan's variant cannot move. It keeps the plan's segments, which must be whole chunks of this
/// variant too.
const Variant* unaligned_variant(Backend backend, const cuda::Device& device, const GpuWish& wish,
                                 const PlanData& plan) {
  const int chunk = plan.variant->facts_as<gpu::LinearVariantFacts>().chunk;
  for (const Backend other : {backend, Backend::sm80}) {
    const Variant* variant = other_gpu_variant(other, device, wish, plan);
    if (variant != nullptr && variant->facts_as<gpu::LinearVariantFacts>().chunk == chunk) return variant;
  }
  return nullptr;
}

/// The tensors whose rows the kernels of a pass move 16 bytes at a time where they can; null at the end.
std::array<const Tensor*, 8> moved_tensors(Pass pass, const LinearOperands& x) {
  if (pass == Pass::forward) return {&x.q, &x.k, &x.v, &x.o};
  return {&x.q, &x.k, &x.v, &x.grad_o, &x.grad_q, &x.grad_k, &x.grad_v};
}

}  // namespace

Status plan_linear_attention_gpu(Backend backend, PlanData* plan) {
  cuda::Device device;
  if (Status status = device_for(backend, plan, &device); !status) return status;

  const LinearAttention& a = plan->linear().problem;
  const auto wish = [&](bool aligned) {
    return GpuWish{.d = std::max(a.d_qk, a.d_v), .why_not = [&a, plan, aligned](const Variant& listed) {
                     return why_not(listed, a, plan->pass, aligned);
                   }};
  };
  if (Status status = take_gpu_variant(backend, device, wish(true), plan); !status) return status;
  const Conditions needs = needs_of(*plan->variant);
  add_choice({plan->variant, needs}, plan);
  if (!needs.empty()) add_choice({unaligned_variant(backend, device, wish(false), *plan), {}}, plan);
  return decide_grid(device, plan);
}

Layout layout_of(const PlanData& plan, const LinearOperands& x) noexcept {
  const LinearAttention& a = plan.linear().problem;
  const std::int64_t chunk = 16 / size_of(a.dtype);
  const bool hopper = plan.variant->backend == Backend::sm90;
  bool aligned = a.d_qk % chunk == 0 && a.d_v % chunk == 0;
  bool tma = hopper;
  for (const Tensor* tensor : moved_tensors(plan.pass, x)) {
    if (tensor == nullptr) break;
    aligned = aligned && rows_aligned(*tensor);
    tma = tma && fits_tma(*tensor);
  }
  Layout layout;
  layout.met.add_if(aligned, Condition::aligned);
  layout.met.add_if(tma, Condition::tma);
  return layout;
}

}  // namespace falchion
