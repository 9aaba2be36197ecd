// src/plan/gemm.cpp: problem + what this machine is -> PlanData: threads, and the tile of D that is one work item.
#include "plan/gemm.hpp"

#include <algorithm>
#include <cstdint>

#include "base/divide.hpp"
#include "plan/constants.hpp"
#include "plan/gemm_call.hpp"
#include "plan/launch.hpp"
#include "plan/paths.hpp"
#include "plan/work.hpp"
#include "policy/scale_block.hpp"

namespace falchion {
namespace {

std::int64_t round_up(std::int64_t x, std::int64_t to) { return ceil_div(x, to) * to; }

/// Of `extent`, cut into parts of at most `most`: parts of equal length, in whole tiles.
std::int64_t even_part(std::int64_t extent, std::int64_t most, std::int64_t tile) {
  return round_up(ceil_div(extent, ceil_div(extent, most)), tile);
}

/// Items of the kernel's preferred size, because a and b are packed for each item, or smaller if threads would have too
/// few of them.
GemmCut cut(const Gemm& g, const cpu::GemmTile& tile, std::int64_t threads) {
  GemmCut out;
  const std::int64_t halves = g.activation == Activation::swiglu ? 2 : 1;  // it has two sums for each column
  out.rows = even_part(g.m, tile.most_rows, tile.rows);
  out.columns = even_part(g.n, std::max<std::int64_t>(tile.most_columns / halves, tile.columns), tile.columns);
  const auto items = [&] { return g.batch * ceil_div(g.m, out.rows) * ceil_div(g.n, out.columns); };
  const std::int64_t least_rows = tiles::kGemmLeast * tile.rows, least_columns = tiles::kGemmLeast * tile.columns;
  while (threads > 1 && items() < tiles::kItemsPerThread * threads) {
    const bool down = out.rows > least_rows, across = out.columns > least_columns;
    if (!down && !across) break;
    if (down && (!across || out.rows >= out.columns)) {
      out.rows = round_up(ceil_div(out.rows, 2), tile.rows);
    } else {
      out.columns = round_up(ceil_div(out.columns, 2), tile.columns);
    }
  }
  out.items = items();
  out.few = g.m <= tile.few_rows;
  const std::int64_t share = ceil_div(g.n * g.batch, tiles::kItemsPerThread * threads);
  out.few_columns = std::clamp<std::int64_t>(round_up(share, 8), 32, tiles::kGemmFewColumns);
  return out;
}

/// The most items that a run of the cut may have.
std::int64_t most_items(const Gemm& g, const GemmCut& of) {
  return std::max(of.items, of.few ? g.batch * ceil_div(g.n, of.few_columns) : 0);
}

/// The threads that the work keeps busy: by its flop, or by the bytes of d where there is no product.
std::int64_t threads_worth(const Gemm& g, const Target& target) {
  const double by_flops = gemm_flops(g) / tiles::kFlopPerThread,
               by_bytes = gemm_bytes_like_d(g) / tiles::kBytesPerThread;
  return static_cast<std::int64_t>(std::min<double>(threads_wanted(target), 1 + std::max(by_flops, by_bytes)));
}

/// Sizes and factors of the problem, and how it is cut.
cpu::GemmArgs args_of(const PlanData& plan, const Gemm& g, const GemmCut& of) {
  cpu::GemmArgs args;
  set_sizes(g, &args);
  args.pool = pool_of(plan);
  args.threads = plan.threads;
  args.rows = of.rows;
  args.columns = of.columns;
  args.few_columns = of.few_columns;
  return args;
}

}  // namespace

DType gemm_dtype(const PlanData& plan) { return plan.gemm().problem.dtype; }
void resolve_gemm(PlanData*) {}

DType dtype_of_d(const Gemm& g) { return g.dtype_d == DType::as_q ? g.dtype : g.dtype_d; }
DType dtype_of_c(const Gemm& g) { return g.dtype_c == DType::as_q ? dtype_of_d(g) : g.dtype_c; }
std::int64_t rows_of_b(const Gemm& g) { return g.activation == Activation::swiglu ? 2 * g.n : g.n; }

ScaleCount scales_of_a(const Gemm& g) {
  if (g.scaling == Scaling::block128) return {g.m, ceil_div(g.k, kScaleBlock)};
  return {g.scaling == Scaling::row_col ? g.m : 1};
}
ScaleCount scales_of_b(const Gemm& g) {
  if (g.scaling == Scaling::block128) return {ceil_div(rows_of_b(g), kScaleBlock), ceil_div(g.k, kScaleBlock)};
  return {g.scaling == Scaling::row_col ? rows_of_b(g) : 1};
}

void plan_gemm_cpu(PlanData* plan) {
  GemmPlan& gemm = plan->gemm();
  const Gemm& g = gemm.problem;
  const cpu::GemmKernel& kernel = *plan->variant->kernel_as<cpu::GemmKernel>();
  if (g.batch == 0 || g.m == 0 || g.n == 0) return;
  const std::int64_t threads = threads_worth(g, plan->target);
  static_cast<GemmCut&>(gemm) = cut(g, kernel.tile, threads);
  std::int64_t items = most_items(g, gemm);
  gemm.scratch = kernel.scratch(args_of(*plan, g, gemm));
  if (g.batch > 1) {
    gemm.merged = cut(merged(g), kernel.tile, threads);
    items = std::max(items, most_items(merged(g), gemm.merged));
    gemm.scratch = std::max(gemm.scratch, kernel.scratch(args_of(*plan, merged(g), gemm.merged)));
  }
  plan->items = gemm.items;
  plan->threads = static_cast<int>(std::clamp<std::int64_t>(items, 1, threads));
  plan->workspace = aligned(gemm.scratch) * static_cast<std::size_t>(plan->threads);
}

cpu::GemmArgs to_gemm_args(const PlanData& plan, const GemmOperands& operands, void* workspace) noexcept {
  const GemmPlan& gemm = plan.gemm();
  const Gemm& g = gemm.problem;
  GemmCall call;
  const bool one_matrix = set_call(g, operands, &call);
  cpu::GemmArgs args = one_matrix ? args_of(plan, merged(g), gemm.merged) : args_of(plan, g, gemm);
  static_cast<GemmCall&>(args) = call;
  args.scratch = static_cast<std::byte*>(workspace);
  args.scratch_bytes = aligned(gemm.scratch);
  return args;
}

}  // namespace falchion
