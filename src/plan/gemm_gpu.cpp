// src/plan/gemm_gpu.cpp: problem + device -> variant, tiles, parts of k, workspace. Every decision about a GEMM on a
// GPU is here, but how the operands lie, which a run alone knows: gemm_gpu_launch.cpp.
#include "plan/gemm_gpu.hpp"

#include <algorithm>
#include <cmath>
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
#include "types/size.hpp"

namespace falchion {
namespace {

std::int64_t blocks_of_k(const Gemm& g, const gpu::GemmFacts& facts) {
  return g.alpha == 0 ? 0 : ceil_div(g.k, facts.depth);
}

/// Bytes of the sums of all parts.
double partial_bytes(const Gemm& g, int splits) {
  if (splits == 1) return 0;
  return 4.0 * splits * static_cast<double>(g.batch) * static_cast<double>(g.m) * static_cast<double>(gemm_pitch(g));
}

/// The flop of an SM in a microsecond.
double rate_of(const Gemm& g, const Variant& variant) {
  if (is_8bit(g.dtype) && variant.backend == Backend::sm90) return tiles::kGemmFlopBytes;
  if (is_8bit(g.dtype)) return g.dtype == DType::i8 ? tiles::kGemmFlopI8 : tiles::kGemmFlopF32;
  if (same(variant.level, "few")) return g.dtype == DType::f32 ? tiles::kGemmFlopFewF32 : tiles::kGemmFlopFew;
  if (variant.backend == Backend::sm90) return tiles::kGemmFlopSm90;
  return g.dtype == DType::f32 ? tiles::kGemmFlopF32 : tiles::kGemmFlop;
}

/// About how many microseconds the tiles take in so many parts, with what it takes to add the parts up. A CTA that has
/// an SM for itself, but is meant to share it, computes a block of k in less time than those that share it, though not
/// at the whole rate of the SM.
double microseconds(const Gemm& g, const Variant& variant, std::int64_t items, const cuda::Device& device, int splits) {
  const gpu::GemmFacts& facts = variant.facts_as<gpu::GemmFacts>();
  const double flop = 2.0 * facts.rows / facts.cluster * facts.columns * facts.depth;  // of a CTA
  const std::int64_t ctas = items * splits * facts.cluster;
  const int together = ctas <= device.sms ? 1 : ctas_an_sm(facts, device);
  const double block = (together == 1 && facts.ctas > 1 ? tiles::kGemmAlone : together) * flop / rate_of(g, variant);
  const auto waves = static_cast<double>(ceil_div(ctas, std::int64_t{device.sms} * together));
  const auto blocks = static_cast<double>(ceil_div(blocks_of_k(g, facts), splits));
  const double after = splits > 1 ? tiles::kGemmCombine + 2 * partial_bytes(g, splits) / tiles::kGemmPartialRate : 0;
  return waves * (tiles::kGemmTile + blocks * block) + after;
}

/// The parts of k with which everything ends soonest.
int choose_splits(const Gemm& g, const Variant& variant, std::int64_t items, const cuda::Device& device) {
  const gpu::GemmFacts& facts = variant.facts_as<gpu::GemmFacts>();
  const std::int64_t most =
      std::clamp<std::int64_t>(blocks_of_k(g, facts) / tiles::kGemmLeastBlocks, 1, tiles::kMaxSplits);
  int best = 1;
  double best_time = microseconds(g, variant, items, device, 1);
  for (int splits = 2; splits <= most; ++splits) {
    const double time = microseconds(g, variant, items, device, splits);
    if (time >= best_time) continue;
    best = splits;
    best_time = time;
  }
  return best;
}

/// Whole blocks of k, all parts of the same length but the last. So fewer parts may be enough. No tile: the grid would
/// be too large.
GemmGpuCut cut(const Gemm& g, const Variant& variant, const cuda::Device& device) {
  const gpu::GemmFacts& facts = variant.facts_as<gpu::GemmFacts>();
  GemmGpuCut out;
  const std::int64_t tiles_m = ceil_div(g.m, facts.rows), tiles_n = ceil_div(rows_of_b(g), facts.columns);
  const double items = static_cast<double>(g.batch) * static_cast<double>(tiles_m) * static_cast<double>(tiles_n);
  if (items > INT32_MAX) return out;
  out.items = g.batch * tiles_m * tiles_n;
  const int splits = items * tiles::kMaxSplits <= INT32_MAX ? choose_splits(g, variant, out.items, device) : 1;
  const std::int64_t blocks = blocks_of_k(g, facts), each = std::max<std::int64_t>(ceil_div(blocks, splits), 1);
  out.depth = each * facts.depth;
  out.splits = static_cast<int>(std::max<std::int64_t>(ceil_div(blocks, each), 1));
  const int together = ctas_an_sm(facts, device);
  // A grid of which several CTAs share an SM would crowd on the SMs that are free first, if it were started early.
  const bool fills = out.items * out.splits >= 2 * std::int64_t{device.sms} * together;
  out.early = device.sm >= 90 && (together == 1 || fills);
  out.microseconds = microseconds(g, variant, out.items, device, out.splits);
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
  gemm.gpu = cut(g, *plan->variant, device);
  if (g.batch > 1) gemm.gpu_merged = cut(merged(g), *plan->variant, device);
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

std::int64_t gemm_pitch(const Gemm& g) { return ceil_div(g.n, 4) * 4 * (g.activation == Activation::swiglu ? 2 : 1); }

namespace {

/// The first listed variant of sm80 of that kind and of the problem's type.
const Variant* tile_of_sm80(const Gemm& g) {
  for (const Variant& listed : listed_variants()) {
    if (listed.is("gemm") && same(listed.level, "tile") && listed.dtype == g.dtype) return &listed;
  }
  return nullptr;
}

/// Hopper's tiles are large. Where they leave much of the device idle, or much of each tile is outside of d, the
/// smaller ones of sm80 are faster.
std::string why_not(const Variant& listed, const Gemm& g, const cuda::Device& device, bool named) {
  if (same(listed.level, "few")) {
    if (g.activation == Activation::swiglu) return "with swiglu a gate and its other half are too far apart in b";
    return g.m <= tiles::kGemmFewRows
               ? ""
               : text("it is for at most ", tiles::kGemmFewRows, " rows of a, but here are ", g.m);
  }
  const Variant* other = tile_of_sm80(g);
  if (listed.backend != Backend::sm90 || named || other == nullptr) return "";
  const GemmGpuCut own = cut(g, listed, device), smaller = cut(g, *other, device);
  if (own.items == 0 || own.microseconds <= smaller.microseconds) return "";
  const gpu::GemmFacts& facts = listed.facts_as<gpu::GemmFacts>();
  return text(own.items * own.splits * facts.cluster, " CTAs for ", device.sms, " SMs, ",
              std::min<std::int64_t>(g.m, facts.rows), " of ", facts.rows, " rows used: some ",
              std::llround(own.microseconds), " us, and tiles of sm80 ", std::llround(smaller.microseconds), " us");
}

}  // namespace

Status plan_gemm_gpu(Backend backend, PlanData* plan) {
  cuda::Device device;
  if (Status status = device_for(backend, plan, &device); !status) return status;
  const Gemm& g = plan->gemm().problem;
  const bool named = plan->target.backend == backend;
  const auto any = [](const Variant&) { return std::string(); };
  const GpuWish wish{.d = 0,
                     .concerns = [](const Variant&) { return true; },
                     .why_not = [&](const Variant& listed) { return why_not(listed, g, device, named); }};
  if (Status status = take_gpu_variant(backend, device, wish, plan); !status) return status;
  const auto of_kind = [&](const char* kind) {
    if (same(plan->variant->level, kind)) return plan->variant;
    const GpuWish other{.d = 0, .concerns = [kind](const Variant& v) { return same(v.level, kind); }, .why_not = any};
    return other_gpu_variant(Backend::sm80, device, other, *plan);
  };
  plan->gpu.unaligned = of_kind("general");
  plan->gemm().strided = backend != Backend::sm90 ? plan->variant : of_kind(is_8bit(g.dtype) ? "general" : "tile");
  return decide_grid(device, plan);
}

}  // namespace falchion
