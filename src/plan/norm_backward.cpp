// src/plan/norm_backward.cpp: problem + what this machine is -> PlanData of a norm's backward pass: threads and parts
// of the rows on the CPU, how a row is cut on a GPU; and the sweeps of a run, whose rows are grouped by what shares an
// element of grad_weight and grad_bias.
#include "plan/norm_backward.hpp"

#include <algorithm>
#include <cstdint>

#include "base/divide.hpp"
#include "plan/constants.hpp"
#include "plan/gpu_variants.hpp"
#include "plan/launch.hpp"
#include "plan/norm.hpp"
#include "plan/paths.hpp"
#include "plan/work.hpp"
#include "ref/norm_backward.hpp"
#include "tiles/norm_backward/sm80.hpp"

namespace falchion {
namespace {

int sums_of(const Norm& n) { return (ref::wants_grad_weight(n) ? 1 : 0) + (n.bias ? 1 : 0); }

/// The sums of the parts in the workspace.
std::size_t sum_bytes(const NormPlan& norm) {
  return static_cast<std::size_t>(norm.parts * sums_of(norm.problem) * norm.problem.d) * sizeof(float);
}

/// What a sweep writes.
struct Wanted {
  bool grad_x, grad_weight, grad_bias;
};

/// Orders the axes of the rows: first those along which the rows have elements of their own in the gradient `of`, then
/// those along which they share them. So the rows of a group follow each other.
class Groups {
 public:
  explicit Groups(const Tensor* of, const Tensor& x) {
    std::size_t next = 0;
    for (const bool own : {true, false}) {
      for (int axis = 0; axis < 3; ++axis) {
        const bool splits = of != nullptr && of->shape[static_cast<std::size_t>(axis)] != 1;
        if (splits != own) continue;
        const std::int64_t extent = x.shape[static_cast<std::size_t>(axis)];
        axis_[next] = axis;
        extent_[next++] = extent;
        (own ? groups_ : group_) *= extent;
      }
      if (own) own_ = next;
    }
  }
  /// Without rows each group has the place of one, where zeros go.
  void set(NormBackwardCall* call) const {
    const bool empty = group_ == 0;
    const auto extent = [&](std::size_t i) { return empty && i >= own_ ? 1 : extent_[i]; };
    call->groups = groups_;
    call->group = empty ? 1 : group_;
    call->rows = call->groups * call->group;
    call->s = extent(1);
    call->h = extent(2);
    View* const all[] = {&call->x,      &call->weight,         &call->grad_y,      &call->grad_residual_out,
                         &call->grad_x, &call->grad_weight.to, &call->grad_bias.to};
    for (View* view : all) {
      const View old = *view;
      for (std::size_t i = 0; i < 3; ++i) view->stride[i] = old.stride[axis_[i]];
    }
    join_axes(all, extent(0), call);
  }
  /// At most `most` parts of all groups together, but one of each.
  void cut(std::int64_t most, NormBackwardCall* call) const {
    const std::int64_t parts = std::clamp<std::int64_t>(most / std::max<std::int64_t>(groups_, 1), 1, call->group);
    call->part_rows = ceil_div(group_, parts);
    call->parts = group_ == 0 ? 1 : ceil_div(group_, call->part_rows);
  }

 private:
  std::size_t own_ = 0;
  int axis_[3]{};
  std::int64_t extent_[3]{}, groups_ = 1, group_ = 1;
};

NormBackwardCall sweep_of(const NormPlan& norm, const NormOperands& x, const Wanted& wanted) {
  const Norm& n = norm.problem;
  NormBackwardCall call;
  set_sizes(n, &call);
  call.x = view_of(x.x);
  call.grad_y = view_of(x.grad_y);
  call.grad_y_type = number_of(dtype_of_y(n));
  if (n.weight) call.weight = view_of(x.weight);
  call.weight_type = number_of(x.weight.dtype);
  if (n.residual_out) call.grad_residual_out = view_of(x.grad_residual_out);
  call.residual_type = number_of(dtype_of_residual(n));
  if (wanted.grad_x) call.grad_x = view_of(x.grad_x);
  if (wanted.grad_weight) call.grad_weight = {view_of(x.grad_weight), number_of(x.grad_weight.dtype)};
  if (wanted.grad_bias) call.grad_bias = {view_of(x.grad_bias), number_of(x.grad_bias.dtype)};
  const Groups groups(wanted.grad_weight ? &x.grad_weight : wanted.grad_bias ? &x.grad_bias : nullptr, x.x);
  groups.set(&call);
  groups.cut(norm.parts, &call);
  return call;
}

}  // namespace

std::size_t norm_backward_ref_workspace(const PlanData& plan) {
  return aligned(ref::norm_backward_workspace(plan.norm().problem));
}

NormSweeps sweeps_of(const PlanData& plan, const NormOperands& x) noexcept {
  const NormPlan& norm = plan.norm();
  const bool weight = ref::wants_grad_weight(norm.problem), bias = norm.problem.bias;
  const Wanted all{ref::wants_grad_x(norm.problem), weight, bias};
  if (!weight || !bias || x.grad_weight.shape == x.grad_bias.shape) return {{sweep_of(norm, x, all)}, 1};
  return {{sweep_of(norm, x, {false, false, true}), sweep_of(norm, x, {all.grad_x, true, false})}, 2};
}

void plan_norm_backward_cpu(PlanData* plan) {
  NormPlan& norm = plan->norm();
  const Norm& n = norm.problem;
  cpu::NormBackwardArgs args;
  set_sizes(n, &args);
  norm.scratch = plan->variant->kernel_as<cpu::NormBackwardKernel>()->scratch(args);
  const auto threads = static_cast<std::int64_t>(
      std::min<double>(threads_wanted(plan->target), 1 + norm_backward_bytes(n) / tiles::kBytesPerThread));
  norm.parts = threads == 1
                   ? 1
                   : std::clamp<std::int64_t>(tiles::kItemsPerThread * threads, 1, std::max<std::int64_t>(n.rows, 1));
  plan->items = norm.parts;
  plan->threads = static_cast<int>(threads);
  plan->workspace = aligned(norm.scratch) * static_cast<std::size_t>(threads) + aligned(sum_bytes(norm));
}

cpu::NormBackwardArgs to_norm_backward_args(const PlanData& plan, const NormBackwardCall& sweep,
                                            void* workspace) noexcept {
  const NormPlan& norm = plan.norm();
  cpu::NormBackwardArgs args;
  static_cast<NormBackwardCall&>(args) = sweep;
  args.pool = pool_of(plan);
  args.threads = plan.threads;
  args.scratch = static_cast<std::byte*>(workspace);
  args.scratch_bytes = aligned(norm.scratch);
  args.sums = reinterpret_cast<float*>(args.scratch + args.scratch_bytes * static_cast<std::size_t>(plan.threads));
  return args;
}

Status plan_norm_backward_gpu(Backend backend, PlanData* plan) {
  cuda::Device device;
  if (Status status = device_for(backend, plan, &device); !status) return status;
  if (Status status = take_gpu_variant(backend, device, {}, plan); !status) return status;
  set_device(device, plan);
  NormPlan& norm = plan->norm();
  const Norm& n = norm.problem;
  const std::int64_t sizes =
      size_of(n.dtype) + size_of(dtype_of_y(n)) + (n.residual_out ? size_of(dtype_of_residual(n)) : 0);
  const auto cut = [&](bool whole) {
    return sm80::norm_backward_cut(n.d, whole, static_cast<int>(sizes), device.shared_per_block);
  };
  if (n.d % sm80::kGradChunk == 0)
    add_choice({plan->variant, Condition::aligned | Condition::contiguous, cut(true)}, plan);
  add_choice({plan->variant, {}, cut(false)}, plan);
  norm.parts = std::clamp<std::int64_t>(plan->gpu.sms, 1, std::max<std::int64_t>(n.rows, 1));
  norm.rate = norm_rate(device);
  plan->items = n.rows;
  plan->workspace = aligned(sum_bytes(norm));
  return {};
}

Layout gradient_layout_of(const PlanData& plan, const NormOperands& x) noexcept {
  const Norm& n = plan.norm().problem;
  return {conditions_of({&x.x, &x.grad_y, n.weight ? &x.weight : nullptr,
                         n.residual_out ? &x.grad_residual_out : nullptr, ref::wants_grad_x(n) ? &x.grad_x : nullptr})};
}

gpu::NormBackwardArgs to_gpu_norm_backward_args(const PlanData& plan, const NormBackwardCall& sweep,
                                                const gpu::NormBackwardCut& cut, void* workspace) noexcept {
  gpu::NormBackwardArgs args;
  static_cast<NormBackwardCall&>(args) = sweep;
  args.cut = cut;
  args.ctas = static_cast<int>(std::min(plan.norm().parts, sweep.groups * sweep.parts));
  args.sums = static_cast<float*>(workspace);
  args.early = plan.gpu.sm >= 90;
  return args;
}

}  // namespace falchion
