// src/plan/norm.cpp: problem + what this machine is -> PlanData: threads and the rows of a work item on the CPU, how a
// row is cut on a GPU. A norm is limited by memory alone, so there is little to decide.
#include "plan/norm.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/divide.hpp"
#include "plan/constants.hpp"
#include "plan/gpu_variants.hpp"
#include "plan/launch.hpp"
#include "plan/paths.hpp"
#include "plan/work.hpp"
#include "tiles/norm/sm80.hpp"

namespace falchion {
namespace {

void join_axes_of(std::int64_t b, NormCall* call) {
  View* const all[] = {&call->x, &call->residual, &call->weight,       &call->bias,
                       &call->y, &call->mean,     &call->residual_out, &call->rstd};
  join_axes(all, b, call);
}

/// Sets the operands that the call reads and writes. Without elements they may be null and have any strides.
void set_call(const Norm& n, const NormOperands& x, NormCall* call) {
  set_sizes(n, call);
  call->s = x.x.shape[1];
  call->h = x.x.shape[2];
  if (n.mean) call->mean = view_of(x.mean);
  if (n.rstd) call->rstd = view_of(x.rstd);
  if (n.d == 0) return join_axes_of(x.x.shape[0], call);
  call->x = view_of(x.x);
  call->y = view_of(x.y);
  if (n.residual) call->residual = view_of(x.residual);
  if (n.residual_out) call->residual_out = view_of(x.residual_out);
  if (n.weight) call->weight = view_of(x.weight);
  if (n.bias) call->bias = view_of(x.bias);
  call->y_type = number_of(dtype_of_y(n));
  call->residual_type = number_of(dtype_of_residual(n));
  call->weight_type = number_of(x.weight.dtype);
  call->bias_type = number_of(x.bias.dtype);
  join_axes_of(x.x.shape[0], call);
}

}  // namespace

void set_sizes(const Norm& n, NormRows* call) {
  call->rows = n.rows;
  call->d = n.d;
  call->layer = n.kind == NormKind::layer;
  call->zero_centered = n.zero_centered;
  call->eps = n.eps;
}

void join_axes(std::span<View* const> all, std::int64_t b, NormRows* call) {
  const auto follow = [&](int outer, int inner, std::int64_t extent) {
    return std::all_of(all.begin(), all.end(), [&](const View* x) {
      return x->data == nullptr || x->stride[outer] == extent * x->stride[inner];
    });
  };
  if (call->s == 1 || call->h == 1 || follow(1, 2, call->h)) {
    for (View* x : all)
      if (call->h > 1) x->stride[1] = x->stride[2];
    call->s *= call->h;
    call->h = 1;
  }
  if (call->h == 1 && (call->s == 1 || b == 1 || follow(0, 1, call->s))) {
    for (View* x : all)
      if (call->s == 1) x->stride[1] = x->stride[0];
    call->s *= b;
  }
}

DType norm_dtype(const PlanData& plan) { return plan.norm().problem.dtype; }
void resolve_norm(PlanData*) {}

DType dtype_of_y(const Norm& n) { return n.dtype_y == DType::as_q ? n.dtype : n.dtype_y; }
DType dtype_of_residual(const Norm& n) { return n.dtype_residual == DType::as_q ? n.dtype : n.dtype_residual; }

void plan_norm_cpu(PlanData* plan) {
  NormPlan& norm = plan->norm();
  const Norm& n = norm.problem;
  cpu::NormArgs args;
  set_sizes(n, &args);
  norm.scratch = plan->variant->kernel_as<cpu::NormKernel>()->scratch(args);
  if (n.rows == 0) return;
  const double all = norm_bytes(n), a_row = std::max(1.0, all / static_cast<double>(n.rows));
  const auto threads =
      static_cast<std::int64_t>(std::min<double>(threads_wanted(plan->target), 1 + all / tiles::kBytesPerThread));
  norm.item = std::clamp<std::int64_t>(static_cast<std::int64_t>(tiles::kNormItemBytes / a_row), 1,
                                       ceil_div(n.rows, tiles::kItemsPerThread * threads));
  plan->items = ceil_div(n.rows, norm.item);
  plan->threads = static_cast<int>(std::clamp<std::int64_t>(plan->items, 1, threads));
  plan->workspace = aligned(norm.scratch) * static_cast<std::size_t>(plan->threads);
}

double norm_rate(const cuda::Device& device) {
  const double known = device.memory_bytes_per_second;
  return tiles::kNormRate * (known > 0 ? known : device.sm >= 90 ? tiles::kMemoryRateSm90 : tiles::kMemoryRateSm80);
}

cpu::NormArgs to_norm_args(const PlanData& plan, const NormOperands& operands, void* workspace) noexcept {
  const NormPlan& norm = plan.norm();
  cpu::NormArgs args;
  set_call(norm.problem, operands, &args);
  args.pool = pool_of(plan);
  args.threads = plan.threads;
  args.item = norm.item;
  args.scratch = static_cast<std::byte*>(workspace);
  args.scratch_bytes = aligned(norm.scratch);
  return args;
}

Status plan_norm_gpu(Backend backend, PlanData* plan) {
  cuda::Device device;
  if (Status status = device_for(backend, plan, &device); !status) return status;
  if (Status status = take_gpu_variant(backend, device, {}, plan); !status) return status;
  set_device(device, plan);
  NormPlan& norm = plan->norm();
  const Norm& n = norm.problem;
  // The same variant moves eight numbers at a time or, where it cannot, single ones.
  if (n.d % sm80::kNormChunk == 0)
    add_choice({plan->variant, Condition::aligned | Condition::contiguous, sm80::norm_cut(n.d, true, n.residual)},
               plan);
  add_choice({plan->variant, {}, sm80::norm_cut(n.d, false, n.residual)}, plan);
  norm.rate = norm_rate(device);
  plan->items = n.rows;
  return {};
}

Layout layout_of(const PlanData& plan, const NormOperands& x) noexcept {
  const Norm& n = plan.norm().problem;
  return {conditions_of({&x.x, &x.y, n.residual ? &x.residual : nullptr, n.residual_out ? &x.residual_out : nullptr,
                         n.weight ? &x.weight : nullptr, n.bias ? &x.bias : nullptr})};
}

gpu::NormArgs to_gpu_norm_args(const PlanData& plan, const NormOperands& operands, const gpu::NormCut& cut) noexcept {
  const Norm& n = plan.norm().problem;
  gpu::NormArgs args;
  set_call(n, operands, &args);
  args.cut = cut;
  args.sms = plan.gpu.sms;
  args.early = plan.gpu.sm >= 90;
  return args;
}

}  // namespace falchion
