// src/plan/gemm_gpu.cpp: problem + device -> variant, tiles, parts of k, workspace. Every decision about a GEMM on a GPU
// is here, but how the operands lie, which a run alone knows: gemm_gpu_launch.cpp.
#include "plan/gemm_gpu.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/runtime.hpp"
#include "plan/gemm.hpp"
#include "plan/gemm_call.hpp"
#include "plan/gpu_variants.hpp"
#include "plan/launch.hpp"
#include "plan/paths.hpp"
#include "plan/text.hpp"
#include "plan/tiles.hpp"
#include "policy/divide.hpp"

namespace falchion {
namespace {

std::int64_t blocks_of_k(const Gemm& g, const gpu::GemmFacts& facts) {
  return g.alpha == 0 ? 0 : ceil_div(g.k, facts.depth);
}

/// Bytes of the sums of all parts.
double partial_bytes(const Gemm& g, int splits) {
  if (splits == 1) return 0;
  return 4.0 * splits * static_cast<double>(g.batch) * static_cast<double>(g.m) *
         static_cast<double>(gemm_pitch(g));
}

/// About how many microseconds the tiles take in so many parts, with what it takes to add the parts up. CTAs that have an
/// SM for themselves compute a block of k in less time than those that share it.
double microseconds(const Gemm& g, const gpu::GemmFacts& facts, std::int64_t items, int sms, int splits) {
  const double flop = 2.0 * facts.rows * facts.columns * facts.depth;
  const double rate = g.dtype == DType::f32 ? tiles::kGemmFlopF32 : tiles::kGemmFlop;  // of an SM, a microsecond
  const std::int64_t ctas = items * splits;
  const bool alone = ctas <= sms;
  const double shared_block = facts.ctas * flop / rate;
  const double block = alone ? tiles::kGemmAlone * shared_block : shared_block;
  const auto waves = static_cast<double>(alone ? 1 : ceil_div(ctas, std::int64_t{sms} * facts.ctas));
  const auto blocks = static_cast<double>(ceil_div(blocks_of_k(g, facts), splits));
  const double after = splits > 1 ? tiles::kGemmCombine + 2 * partial_bytes(g, splits) / tiles::kGemmPartialRate : 0;
  return waves * (tiles::kGemmTile + blocks * block) + after;
}

/// The parts of k with which everything ends soonest.
int choose_splits(const Gemm& g, const gpu::GemmFacts& facts, std::int64_t items, int sms) {
  const std::int64_t most = std::clamp<std::int64_t>(blocks_of_k(g, facts) / tiles::kGemmLeastBlocks, 1,
                                                     tiles::kMaxSplits);
  int best = 1;
  double best_time = microseconds(g, facts, items, sms, 1);
  for (int splits = 2; splits <= most; ++splits) {
    const double time = microseconds(g, facts, items, sms, splits);
    if (time >= best_time) continue;
    best = splits;
    best_time = time;
  }
  return best;
}

/// Whole blocks of k, all parts of the same length but the last. So fewer parts may be enough. No tile: the grid would be
/// too large.
GemmGpuCut cut(const Gemm& g, const gpu::GemmFacts& facts, const cuda::Device& device) {
  GemmGpuCut out;
  const std::int64_t tiles_m = ceil_div(g.m, facts.rows), tiles_n = ceil_div(rows_of_b(g), facts.columns);
  const double items = static_cast<double>(g.batch) * static_cast<double>(tiles_m) * static_cast<double>(tiles_n);
  if (items > INT32_MAX) return out;
  out.items = g.batch * tiles_m * tiles_n;
  const int splits = items * tiles::kMaxSplits <= INT32_MAX ? choose_splits(g, facts, out.items, device.sms) : 1;
  const std::int64_t blocks = blocks_of_k(g, facts), each = std::max<std::int64_t>(ceil_div(blocks, splits), 1);
  out.depth = each * facts.depth;
  out.splits = static_cast<int>(std::max<std::int64_t>(ceil_div(blocks, each), 1));
  out.early = device.sm >= 90 && out.items * out.splits >= 2 * std::int64_t{device.sms} * facts.ctas;
  return out;
}

Status decide_grid(const cuda::Device& device, PlanData* plan) {
  GemmPlan& gemm = plan->gemm();
  const Gemm& g = gemm.problem;
  const gpu::GemmFacts& facts = plan->variant->facts_as<gpu::GemmFacts>();
  set_device(device, plan);
  if (g.batch == 0 || g.m == 0 || g.n == 0) return {};
  gemm.rows = facts.rows;
  gemm.columns = g.activation == Activation::swiglu ? facts.columns / 2 : facts.columns;
  gemm.gpu = cut(g, facts, device);
  if (g.batch > 1) gemm.gpu_merged = cut(merged(g), facts, device);
  if (gemm.gpu.items == 0) {
    return {Code::unsupported, text("batch = ", g.batch, ": the tiles of d, ", gemm.rows, " x ", gemm.columns,
                                    " each, are over the grid's limit of ", INT32_MAX)};
  }
  plan->items = gemm.gpu.items;
  const double most = std::max(partial_bytes(g, gemm.gpu.splits), partial_bytes(g, gemm.gpu_merged.splits));
  plan->workspace = aligned(static_cast<std::size_t>(most));
  return {};
}

}  // namespace

std::int64_t gemm_pitch(const Gemm& g) {
  return ceil_div(g.n, 4) * 4 * (g.activation == Activation::swiglu ? 2 : 1);
}

Status plan_gemm_gpu(Backend backend, PlanData* plan) {
  cuda::Device device;
  if (Status status = device_for(backend, plan, &device); !status) return status;
  const GpuWish wish{.d = 0,
                     .concerns = [](const Variant&) { return true; },
                     .why_not = [](const Variant&) { return std::string(); }};
  if (Status status = take_gpu_variant(backend, device, wish, plan); !status) return status;
  GpuWish for_unaligned = wish;
  for_unaligned.concerns = [](const Variant& listed) { return same(listed.level, "general"); };
  plan->gpu.unaligned = same(plan->variant->level, "general")
                            ? plan->variant
                            : other_gpu_variant(Backend::sm80, device, for_unaligned, *plan);
  return decide_grid(device, plan);
}

}  // namespace falchion
