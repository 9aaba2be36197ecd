// src/plan/gemm.cpp: problem + what this machine is -> PlanData: threads, and the tile of D that is one work item.
#include "plan/gemm.hpp"

#include <algorithm>
#include <cstdint>

#include "plan/launch.hpp"
#include "plan/paths.hpp"
#include "plan/tiles.hpp"
#include "plan/work.hpp"
#include "policy/divide.hpp"

namespace falchion {
namespace {

std::int64_t round_up(std::int64_t x, std::int64_t to) { return ceil_div(x, to) * to; }

std::int64_t items_of(const GemmPlan& gemm) {
  return gemm.problem.batch * ceil_div(gemm.problem.m, gemm.rows) * ceil_div(gemm.problem.n, gemm.columns);
}

/// Of `extent`, cut into parts of at most `most`: parts of equal length, in whole tiles.
std::int64_t even_part(std::int64_t extent, std::int64_t most, std::int64_t tile) {
  return round_up(ceil_div(extent, ceil_div(extent, most)), tile);
}

/// As large as the kernel likes them, because a and b are packed for each item, and smaller where threads would have
/// too few of them.
void choose_item(const cpu::GemmTile& tile, std::int64_t threads, GemmPlan* gemm) {
  const Gemm& g = gemm->problem;
  const std::int64_t halves = g.activation == Activation::swiglu ? 2 : 1;  // it has two sums for each column
  gemm->rows = even_part(g.m, tile.most_rows, tile.rows);
  gemm->columns = even_part(g.n, std::max<std::int64_t>(tile.most_columns / halves, tile.columns), tile.columns);
  const std::int64_t least_rows = tiles::kGemmLeast * tile.rows, least_columns = tiles::kGemmLeast * tile.columns;
  while (threads > 1 && items_of(*gemm) < tiles::kItemsPerThread * threads) {
    const bool down = gemm->rows > least_rows, across = gemm->columns > least_columns;
    if (!down && !across) break;
    if (down && (!across || gemm->rows >= gemm->columns)) {
      gemm->rows = round_up(ceil_div(gemm->rows, 2), tile.rows);
    } else {
      gemm->columns = round_up(ceil_div(gemm->columns, 2), tile.columns);
    }
  }
  const std::int64_t share = ceil_div(g.n * g.batch, tiles::kItemsPerThread * threads);
  gemm->few_columns = std::clamp<std::int64_t>(round_up(share, 8), 32, tiles::kGemmFewColumns);
}

}  // namespace

DType gemm_dtype(const PlanData& plan) { return plan.gemm().problem.dtype; }
void resolve_gemm(PlanData*) {}

DType dtype_of_d(const Gemm& g) { return g.dtype_d == DType::as_q ? g.dtype : g.dtype_d; }
DType dtype_of_c(const Gemm& g) { return g.dtype_c == DType::as_q ? dtype_of_d(g) : g.dtype_c; }
std::int64_t rows_of_b(const Gemm& g) { return g.activation == Activation::swiglu ? 2 * g.n : g.n; }

void plan_gemm_cpu(PlanData* plan) {
  GemmPlan& gemm = plan->gemm();
  const Gemm& g = gemm.problem;
  const cpu::GemmKernel& kernel = *plan->variant->kernel_as<cpu::GemmKernel>();
  if (g.batch == 0 || g.m == 0 || g.n == 0) return;
  const double worth = 1 + gemm_flops(g) / tiles::kFlopPerThread;
  const auto threads = static_cast<std::int64_t>(std::min<double>(threads_wanted(plan->target), worth));
  choose_item(kernel.tile, threads, &gemm);
  gemm.few = g.m <= kernel.tile.few_rows;
  const std::int64_t few_items = gemm.few ? g.batch * ceil_div(g.n, gemm.few_columns) : 0;
  plan->items = items_of(gemm);
  plan->threads = static_cast<int>(std::clamp<std::int64_t>(std::max(plan->items, few_items), 1, threads));
  gemm.scratch = kernel.scratch(to_gemm_args(*plan, nullptr, nullptr));
  plan->workspace = aligned(gemm.scratch) * static_cast<std::size_t>(plan->threads);
}

cpu::GemmArgs to_gemm_args(const PlanData& plan, const GemmOperands* operands, void* workspace) noexcept {
  const GemmPlan& gemm = plan.gemm();
  const Gemm& g = gemm.problem;
  cpu::GemmArgs args;
  args.batch = g.batch;
  args.m = g.m;
  args.n = g.n;
  args.k = g.alpha != 0 ? g.k : 0;
  args.alpha = g.alpha;
  args.beta = g.beta;
  args.activation = static_cast<GemmActivation>(g.activation);
  args.c_f32 = dtype_of_c(g) == DType::f32;
  args.d_f32 = dtype_of_d(g) == DType::f32;
  args.pool = pool_of(plan);
  args.threads = plan.threads;
  args.rows = gemm.rows;
  args.columns = gemm.columns;
  args.few_columns = gemm.few_columns;
  if (operands == nullptr) return args;
  const GemmOperands& x = *operands;
  args.k1 = x.a.shape[3];
  args.n1 = x.d.shape[3];
  args.a = view_of(x.a);
  args.b = view_of(x.b);
  args.d = view_of(x.d);
  if (g.beta != 0) args.c = view_of(x.c);
  if (g.residual) args.residual = view_of(x.residual);
  if (g.bias_n) args.bias_n = view_of(x.bias_n);
  if (g.bias_m) args.bias_m = view_of(x.bias_m);
  args.bias_n_f32 = x.bias_n.dtype == DType::f32;
  args.bias_m_f32 = x.bias_m.dtype == DType::f32;
  args.scratch = static_cast<std::byte*>(workspace);
  args.scratch_bytes = aligned(gemm.scratch);
  return args;
}

}  // namespace falchion
