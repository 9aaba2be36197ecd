// src/plan/quantise.cpp: problem + what this machine is -> PlanData: how blocks are cut into pieces on a GPU. Quantise
// is limited by memory alone, so there is little to decide.
#include "plan/quantise.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "plan/gpu_variants.hpp"
#include "plan/launch.hpp"
#include "plan/norm.hpp"
#include "plan/paths.hpp"
#include "tiles/quantise/sm80.hpp"

namespace falchion {
namespace {

/// Parts that s is cut into for the mean.
std::int64_t parts_of(const Quantise& q) { return q.smooth && !q.mean_given ? ceil_div(q.s, sm80::kQuantisePart) : 0; }

}  // namespace

DType quantise_dtype(const PlanData& plan) { return plan.quantise().problem.dtype; }
void resolve_quantise(PlanData*) {}

Status plan_quantise_gpu(Backend backend, PlanData* plan) {
  cuda::Device device;
  if (Status status = device_for(backend, plan, &device); !status) return status;
  if (Status status = take_gpu_variant(backend, device, {}, plan); !status) return status;
  set_device(device, plan);
  QuantisePlan& own = plan->quantise();
  const Quantise& q = own.problem;
  const std::int64_t rows = std::min(rows_of_a_block(q), std::max<std::int64_t>(q.s, 1));
  // The same variant moves eight numbers at a time or, where it cannot, single ones.
  if (q.d % sm80::kQuantiseChunk == 0)
    add_choice({plan->variant, Condition::aligned | Condition::contiguous,
                sm80::quantise_cut(q.d, rows, q.scale_given, q.rotate, true)},
               plan);
  add_choice({plan->variant, {}, sm80::quantise_cut(q.d, rows, q.scale_given, q.rotate, false)}, plan);
  own.rate = norm_rate(device);
  plan->items = q.b * q.h * blocks_of(q);
  plan->workspace = sizeof(float) * static_cast<std::size_t>(q.b * q.h) * static_cast<std::size_t>(parts_of(q) * q.d);
  return {};
}

Layout layout_of(const PlanData& plan, const QuantiseOperands& x) noexcept {
  const Quantise& q = plan.quantise().problem;
  Conditions met = conditions_of({&x.x, q.smooth ? &x.mean : nullptr});
  Tensor y = x.y;  // its chunks have 8 bytes
  const bool apart = reinterpret_cast<std::uintptr_t>(y.data) % 8 == 0 &&
                     std::all_of(y.stride.begin(), y.stride.begin() + 3, [](auto by) { return by % 8 == 0; });
  if (!is_empty(y) && !apart) met = met - Condition::aligned;
  if (!is_empty(y) && y.stride[3] != 1) met = met - Condition::contiguous;
  return {met};
}

gpu::QuantiseArgs to_gpu_quantise_args(const PlanData& plan, const QuantiseOperands& operands,
                                       const gpu::QuantiseCut& cut, void* workspace) noexcept {
  const Quantise& q = plan.quantise().problem;
  gpu::QuantiseArgs args;
  args.x = view_of(operands.x);
  if (q.smooth) args.mean = view_of(operands.mean);
  args.scale = view_of(operands.scale);
  args.y = view_of(operands.y);
  args.b = q.b;
  args.s = q.s;
  args.h = q.h;
  args.d = q.d;
  args.rows = rows_of_a_block(q);
  args.blocks = blocks_of(q);
  args.e4m3 = q.dtype_y == DType::e4m3;
  args.scale_given = q.scale_given;
  args.powers_of_two = q.powers_of_two;
  args.mean_given = q.mean_given;
  args.rotate = q.rotate;
  args.cut = cut;
  const std::int64_t of_a_block = ceil_div(std::min(args.rows, std::max<std::int64_t>(q.s, 1)), cut.rows);
  args.pieces = args.blocks * of_a_block;
  args.by_heads = Divisor(q.h);
  args.by_pieces = Divisor(std::max<std::int64_t>(args.pieces, 1));
  args.by_pieces_of_a_block = Divisor(of_a_block);
  args.by_chunks_of_a_row = Divisor(ceil_div(q.d, sm80::kQuantiseChunk));
  args.sums = static_cast<float*>(workspace);
  args.parts = parts_of(q);
  args.early = plan.gpu.sm >= 90;
  return args;
}

}  // namespace falchion
