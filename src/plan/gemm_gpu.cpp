// src/plan/gemm_gpu.cpp: problem + device -> variant, tiles, parts of k, workspace. Every decision about a GEMM on a
// GPU is here, but how the operands lie, which a run alone knows: gemm_gpu_launch.cpp.
#include "plan/gemm_gpu.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/divide.hpp"
#include "base/size.hpp"
#include "plan/constants.hpp"
#include "plan/gemm.hpp"
#include "plan/gemm_call.hpp"
#include "plan/gemm_gpu_few.hpp"
#include "plan/gpu_variants.hpp"
#include "plan/launch.hpp"
#include "plan/paths.hpp"
#include "plan/text.hpp"
#include "runtime/runtime.hpp"

namespace falchion {
namespace {

std::int64_t blocks_of_k(const Gemm& g, const gpu::GemmFacts& facts) {
  return g.alpha == 0 ? 0 : ceil_div(g.k, facts.depth);
}

/// Bytes of the sums of all parts of so many tiles.
double partial_bytes(const Gemm& g, const gpu::GemmFacts& facts, std::int64_t cut_tiles, int splits) {
  if (splits == 1) return 0;
  const auto rows = static_cast<double>(std::min<std::int64_t>(facts.rows, g.m));
  return 4.0 * splits * static_cast<double>(cut_tiles) * rows * facts.columns;
}

/// How many clusters of a variant run at a time, where each CTA has an SM alone.
std::int64_t clusters_at_once(const gpu::GemmFacts& facts, const cuda::Device& device) {
  return std::max<std::int64_t>(device.sms / facts.cluster, 1);
}

/// The estimated microseconds of `pieces` pieces of work side by side, each of `blocks` blocks of k. A CTA that has an
/// SM alone, but is meant to share it, computes a block of k in less time than CTAs that share it, though not at the
/// whole rate of the SM.
double microseconds_of(const Variant& variant, std::int64_t pieces, std::int64_t blocks, const cuda::Device& device) {
  if (pieces == 0) return 0;
  const gpu::GemmFacts& facts = variant.facts_as<gpu::GemmFacts>();
  const double flop = 2.0 * facts.rows / facts.cluster * facts.columns * facts.depth;  // of a CTA
  const std::int64_t ctas = pieces * facts.cluster;
  const int together = ctas <= device.sms ? 1 : ctas_an_sm(facts, device);
  const double block = (together == 1 && facts.ctas > 1 ? tiles::kGemmAlone : together) * flop / facts.flop_rate;
  const auto waves = static_cast<double>(ceil_div(ctas, clusters_at_once(facts, device) * facts.cluster * together));
  const double ends = variant.backend == Backend::sm90 ? tiles::kGemmTileColumn * facts.columns : tiles::kGemmTile;
  return waves * (ends + static_cast<double>(blocks) * block);
}

/// The same for all tiles of a cut, with the time to add the parts up.
double microseconds(const Gemm& g, const Variant& variant, const GemmGpuCut& of, const cuda::Device& device) {
  const gpu::GemmFacts& facts = variant.facts_as<gpu::GemmFacts>();
  const std::int64_t blocks = blocks_of_k(g, facts), cut_tiles = of.items - of.whole;
  double time = microseconds_of(variant, of.whole, blocks, device);
  if (cut_tiles == 0) return time;
  time += microseconds_of(variant, cut_tiles * of.splits, ceil_div(blocks, of.splits), device);
  return time + tiles::kGemmCombine + 2 * partial_bytes(g, facts, cut_tiles, of.splits) / tiles::kGemmPartialRate;
}

/// The cut with the shortest time: of none of the tiles, of all, or of those that are left over when the others have
/// filled the device some times, or once less.
GemmGpuCut best_cut(const Gemm& g, const Variant& variant, std::int64_t items, const cuda::Device& device) {
  const gpu::GemmFacts& facts = variant.facts_as<gpu::GemmFacts>();
  GemmGpuCut best{.items = items, .whole = items};
  best.microseconds = microseconds(g, variant, best, device);
  const std::int64_t most =
      std::clamp<std::int64_t>(blocks_of_k(g, facts) / tiles::kGemmLeastBlocks, 1, tiles::kMaxSplits);
  const std::int64_t at_a_time = clusters_at_once(facts, device) * ctas_an_sm(facts, device);
  const std::int64_t left = items % at_a_time;
  for (const std::int64_t cut_tiles : {items, left, left + at_a_time}) {
    if (cut_tiles == 0 || cut_tiles > items) continue;
    for (int splits = 2; splits <= most; ++splits) {
      GemmGpuCut other{.items = items, .whole = items - cut_tiles, .splits = splits};
      other.microseconds = microseconds(g, variant, other, device);
      if (other.microseconds < best.microseconds) best = other;
    }
  }
  return best;
}

/// Whole blocks of k, all parts of the same length but the last. So fewer parts may be enough. No tile: the grid would
/// be too large.
GemmGpuCut cut(const Gemm& g, const Variant& variant, const cuda::Device& device) {
  if (is_few_of_hopper(variant)) return cut_few(g, device);
  const gpu::GemmFacts& facts = variant.facts_as<gpu::GemmFacts>();
  const std::int64_t tiles_m = ceil_div(g.m, facts.rows), tiles_n = ceil_div(rows_of_b(g), facts.columns);
  const double items = static_cast<double>(g.batch) * static_cast<double>(tiles_m) * static_cast<double>(tiles_n);
  if (items > INT32_MAX) return {};
  GemmGpuCut out{.items = g.batch * tiles_m * tiles_n};
  out.whole = out.items;
  if (items * tiles::kMaxSplits <= INT32_MAX) out = best_cut(g, variant, out.items, device);
  const std::int64_t blocks = blocks_of_k(g, facts), each = std::max<std::int64_t>(ceil_div(blocks, out.splits), 1);
  out.depth = each * facts.depth;
  out.splits = static_cast<int>(std::max<std::int64_t>(ceil_div(blocks, each), 1));
  if (out.splits == 1) out.whole = out.items;
  const int together = ctas_an_sm(facts, device);
  // A grid with several CTAs an SM would fill the SMs that are free first, if it were started early.
  const bool fills = out.pieces() >= 2 * std::int64_t{device.sms} * together;
  out.early = device.sm >= 90 && (together == 1 || fills);
  out.microseconds = microseconds(g, variant, out, device);
  return out;
}

/// Bytes of the sums of all parts, if a variant runs that cut.
double workspace_of(const Gemm& g, const Variant& variant, const GemmGpuCut& cut) {
  if (is_few_of_hopper(variant)) return 0;
  return partial_bytes(g, variant.facts_as<gpu::GemmFacts>(), cut.items - cut.whole, cut.splits);
}

/// The conditions of a variant on a run's operands.
Conditions needs_of(const Variant& variant) {
  if (variant.kind == VariantKind::general) return {};
  if (variant.backend == Backend::sm80) return Condition::aligned;
  const Conditions for_tma = Condition::aligned | Condition::tma;
  const bool only_along_k = is_8bit(variant.dtype) || variant.facts_as<gpu::GemmFacts>().columns % 64 != 0;
  return only_along_k ? for_tma | Condition::along_k : for_tma;
}

/// A tile, and the cut of the problem into such tiles.
struct CutTile {
  const Variant* variant;  // as listed
  GemmGpuCut cut;
};

/// With swiglu half of the columns of a tile are gates, and on Hopper D is stored in boxes of 64 columns.
bool has_whole_boxes(const Variant& variant, const Gemm& g) {
  return g.activation != Activation::swiglu || variant.backend != Backend::sm90 ||
         variant.facts_as<gpu::GemmFacts>().columns % 128 == 0;
}

/// The candidate tiles for a problem on Hopper: sm80's too, unless the caller has chosen Hopper's. Kind few is no
/// candidate; for the problems that it accepts it is always the fastest.
std::vector<CutTile> candidates(const Gemm& g, const cuda::Device& device, const PlanData& plan) {
  std::vector<CutTile> all;
  for (const Variant& listed : listed_variants()) {
    if (!listed.is("gemm") || listed.dtype != g.dtype || listed.kind == VariantKind::few) continue;
    const bool hopper = listed.backend == Backend::sm90 && device.sm / 10 == 9;
    const bool older =
        listed.backend == Backend::sm80 && listed.kind == VariantKind::plain && plan.target.backend != Backend::sm90;
    const bool there = plan.any_build || built(listed) != nullptr;
    if (there && (hopper || older) && has_whole_boxes(listed, g)) all.push_back({&listed, cut(g, listed, device)});
  }
  return all;
}

/// The tile with which the whole product ends soonest. Null: there is none.
const CutTile* best_tile(const std::vector<CutTile>& all) {
  const CutTile* best = nullptr;
  for (const CutTile& tile : all)
    if (tile.cut.items > 0 && (best == nullptr || tile.cut.microseconds < best->cut.microseconds)) best = &tile;
  return best;
}

const CutTile* find(const std::vector<CutTile>& all, const Variant& listed) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const CutTile& x) { return x.variant == &listed; });
  return found != all.end() ? &*found : nullptr;
}

/// Hopper's best tile for operands that need not lie along k. Null: there is none.
const Variant* other_of_hopper(const std::vector<CutTile>& all) {
  std::vector<CutTile> others;
  for (const CutTile& tile : all)
    if (tile.variant->backend == Backend::sm90 && !needs_of(*tile.variant).has(Condition::along_k))
      others.push_back(tile);
  const CutTile* best = best_tile(others);
  if (best == nullptr) return nullptr;
  const Variant* here = built(*best->variant);
  return here != nullptr ? here : best->variant;
}

/// In 16 bits on Hopper, the best tile may be for operands along k alone: then the best of the others accepts those
/// that lie along their rows. Operands that TMA cannot load may still be aligned: sm80's kind tile accepts those, and
/// general the rest.
void choose(const cuda::Device& device, const GpuWish& wish, const std::vector<CutTile>& all, PlanData* plan) {
  const Gemm& g = plan->gemm().problem;
  const auto add = [&](const Variant* variant) {
    if (variant == nullptr) return;
    const Conditions needs = needs_of(*variant);
    if (g.batch > 1) add_choice({variant, needs | Condition::one_matrix, GemmGpuCut{}}, plan);
    add_choice({variant, needs, GemmGpuCut{}}, plan);
  };
  const auto of_sm80 = [&](VariantKind kind) { return other_of_sm80(kind, device, wish, *plan); };
  add(plan->variant);
  if (needs_of(*plan->variant).has(Condition::along_k)) add(other_of_hopper(all));
  if (plan->backend == Backend::sm90) add(of_sm80(VariantKind::plain));  // there is none of 8 bits
  if (!needs_of(*plan->variant).empty()) add(of_sm80(VariantKind::general));
}

/// Why the best tile is chosen, which takes less time. "" for the best, and for what is no candidate.
std::string why_another_tile(const CutTile* own, const CutTile* best, const cuda::Device& device) {
  if (own == nullptr || best == nullptr || own == best) return "";
  return text(own->cut.pieces() * own->variant->facts_as<gpu::GemmFacts>().cluster, " CTAs for ", device.sms,
              " SMs: some ", std::llround(own->cut.microseconds), " us, and ", name(best->variant->backend), " ",
              best->variant->name(), " ", std::llround(best->cut.microseconds), " us");
}

/// The cut of a choice: that of a candidate or of an earlier choice with the same tile for the same matrix (sm80's
/// plain and general), or a new one.
GemmGpuCut cut_of(const Choice& choice, const Gemm& matrix, const cuda::Device& device,
                  const std::vector<CutTile>& known, const PlanData& plan) {
  const gpu::GemmFacts& facts = choice.variant->facts_as<gpu::GemmFacts>();
  const bool one_matrix = choice.needs.has(Condition::one_matrix);
  for (const CutTile& tile : known)
    if (!one_matrix && tile.variant->facts_as<gpu::GemmFacts>() == facts) return tile.cut;
  for (const Choice& earlier : plan.gpu.choices) {
    if (&earlier == &choice) break;
    const bool same_matrix = earlier.needs.has(Condition::one_matrix) == one_matrix;
    if (same_matrix && earlier.variant->facts_as<gpu::GemmFacts>() == facts) return earlier.cut_as<GemmGpuCut>();
  }
  return cut(matrix, *choice.variant, device);
}

/// Cuts the problem for each choice, and sizes the workspace for the largest.
Status decide_cuts(const cuda::Device& device, const std::vector<CutTile>& known, PlanData* plan) {
  GemmPlan& gemm = plan->gemm();
  const Gemm& g = gemm.problem;
  set_device(device, plan);
  if (g.batch == 0 || g.m == 0 || g.n == 0) return {};
  double most = 0;
  for (Choice& choice : plan->gpu.choices) {
    const Gemm matrix = choice.needs.has(Condition::one_matrix) ? merged(g) : g;
    const GemmGpuCut of_choice = cut_of(choice, matrix, device, known, *plan);
    if (of_choice.items == 0) {
      const gpu::GemmFacts& tile = choice.variant->facts_as<gpu::GemmFacts>();
      return {Code::unsupported, text("batch = ", g.batch, ": the tiles of d, ", tile.rows, " x ", tile.columns,
                                      " each, are over the grid's limit of ", INT32_MAX)};
    }
    most = std::max(most, workspace_of(matrix, *choice.variant, of_choice));
    choice.cut = of_choice;
  }
  const gpu::GemmFacts& facts = plan->variant->facts_as<gpu::GemmFacts>();
  const GemmGpuCut own = own_cut(*plan);
  gemm.rows = facts.rows;
  gemm.columns = own.columns > 0 ? own.columns : g.activation == Activation::swiglu ? facts.columns / 2 : facts.columns;
  plan->items = own.items;
  plan->workspace = aligned(static_cast<std::size_t>(most));
  return {};
}

/// Of the kind and of the tile for few rows.
std::string why_not_few(const Gemm& g) {
  if (g.m <= tiles::kGemmFewRows) return "";
  return text("it is for at most ", tiles::kGemmFewRows, " rows of a, but here are ", g.m);
}

/// What a kind lacks for the problem, whatever its tile.
std::string why_not(const Variant& listed, const Gemm& g) {
  const Features lacked = features_of(g) - listed.features;
  if (lacked.has(Feature::block_scales)) return text(name(Feature::block_scales), " are built for CPUs alone");
  if (lacked.has(Feature::swiglu)) return "with swiglu a gate and its other half are too far apart in b";
  return listed.kind == VariantKind::few ? why_not_few(g) : "";
}

}  // namespace

Status plan_gemm_gpu(Backend backend, PlanData* plan) {
  cuda::Device device;
  if (Status status = device_for(backend, plan, &device); !status) return status;
  const Gemm& g = plan->gemm().problem;
  const std::vector<CutTile> all = backend == Backend::sm90 ? candidates(g, device, *plan) : std::vector<CutTile>{};
  const CutTile* best = best_tile(all);
  const GpuWish wish{.why_not = [&](const Variant& listed) { return why_not(listed, g); },
                     .why_another_tile =
                         [&](const Variant& listed) {
                           if (listed.tile == VariantTile::few) return why_not_few(g);
                           if (!has_whole_boxes(listed, g))
                             return std::string("half of its columns are no whole boxes of 64");
                           return why_another_tile(find(all, listed), best, device);
                         }};
  if (Status status = take_gpu_variant(backend, device, wish, plan); !status) return status;
  choose(device, wish, all, plan);
  return decide_cuts(device, all, plan);
}

GemmGpuCut own_cut(const PlanData& plan) noexcept {
  const std::vector<Choice>& all = plan.gpu.choices;
  return all[all[0].needs.has(Condition::one_matrix) ? 1 : 0].cut_as<GemmGpuCut>();
}

}  // namespace falchion
