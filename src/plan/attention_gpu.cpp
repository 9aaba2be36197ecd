// src/plan/attention_gpu.cpp: problem + device -> variant, grid, splits, workspace. Every decision about the GPU is
// here.
#include "plan/attention.hpp"

#include <algorithm>
#include <cstdint>

#include "base/divide.hpp"
#include "base/fields.hpp"
#include "base/size.hpp"
#include "plan/attention_gpu_decode.hpp"
#include "plan/attention_launch.hpp"
#include "plan/constants.hpp"
#include "plan/gpu_variants.hpp"
#include "plan/launch.hpp"
#include "plan/operation.hpp"
#include "plan/paths.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"
#include "runtime/runtime.hpp"
#include "tiles/attention_forward/halves_workspace.hpp"
#include "tiles/attention_forward/sm90.hpp"
#include "tiles/attention_forward/sm90_decode.hpp"
#include "tiles/attention_forward/turned_v.hpp"

namespace falchion {
namespace {

/// f32 in two f16 parts, which a separate kernel writes to the workspace. So the operands may have any layout.
bool is_halves(const Variant& listed) { return listed.kind == VariantKind::halves; }

bool is_fp8(const Variant& listed) { return listed.kind == VariantKind::fp8; }

/// Kind fp8 turns V into the workspace, which has room for as many packed rows as the hint s_k says.
std::size_t bytes_of_turned_v(const Attention& a) {
  const std::int64_t columns = a.packed ? sm90::turned_columns(a.b * a.s_k, a.b) : a.b * sm90::turned_columns(a.s_k, 0);
  return static_cast<std::size_t>(a.h_k * a.d_v * columns);
}

bool is_for_pages(const Variant& listed) {
  return listed.kind == VariantKind::pages || listed.kind == VariantKind::pages_general;
}

bool is_for_bytes(const Variant& listed) { return listed.features.has(Feature::bytes); }

bool is_for_bytes_of_q(const Variant& listed) { return listed.features.has(Feature::bytes_of_q); }

/// Query rows for each K/V head. The hint s_q of a packed problem is the length of its sequences; without a hint (0)
/// there are assumed to be many.
std::int64_t rows_a_head(const Attention& a) {
  if (a.packed && a.s_q == 0) return sm90::kDecodeMostRows + 1;
  return a.h_k == 0 ? 0 : a.s_q * (a.h_q / a.h_k);
}

/// Head dims as of multi-head latent attention, 192 and 128; up to 128 both, the usual tile of 128 is faster.
bool is_mla(const Attention& a) { return a.d_qk > tiles::kMlaHeadDimV && a.d_v <= tiles::kMlaHeadDimV; }

/// Short tiles are for grids that tiles of kBriefRows would leave half empty, and above head dim 64 for few rows.
std::string why_not_brief(const Attention& a, const cuda::Device& device) {
  if (a.packed && a.s_q == 0) return "packed lengths without a hint";
  if (std::max(a.d_qk, a.d_v) > 64) {
    const std::int64_t rows = rows_a_head(a), most = tiles::kBriefRowsOfWide;
    return rows <= most ? "" : text("it is for at most ", most, " rows for each K/V head, but here are ", rows);
  }
  const std::int64_t items = ceil_div(rows_a_head(a), tiles::kBriefRows) * a.h_k * a.b;
  if (items <= device.sms / 2) return "";
  return text("it is for at most ", device.sms / 2, " tiles of ", tiles::kBriefRows, " rows, but here are ", items);
}

/// The tile of kind plain with which the problem ends soonest, if its head dims have such a tile.
VariantTile best_tile(Backend backend, const Attention& a, const cuda::Device& device) {
  if (backend == Backend::sm80) return rows_a_head(a) <= tiles::kFewRows ? VariantTile::few : VariantTile::usual;
  if (is_mla(a)) return VariantTile::mla;
  return why_not_brief(a, device).empty() ? VariantTile::brief : VariantTile::usual;
}

/// Why a tile is not the best for the problem. The usual one serves every problem.
std::string why_another_tile(VariantTile tile, VariantTile best, const Attention& a, const cuda::Device& device) {
  if (tile == best || tile == VariantTile::usual) return "";
  if (tile == VariantTile::brief) return why_not_brief(a, device);
  return text("it is for at most ", tiles::kFewRows, " rows for each K/V head, but here are ", rows_a_head(a));
}

/// The bytes of q, k and v.
double input_bytes(const Attention& a) {
  const double d_qk = static_cast<double>(a.d_qk), d_v = static_cast<double>(a.d_v);
  const double rows_q = static_cast<double>(a.s_q) * static_cast<double>(a.h_q);
  const double rows_k = static_cast<double>(a.s_k) * static_cast<double>(a.h_k);
  return static_cast<double>(size_of(a.dtype) * a.b) * (rows_q * d_qk + rows_k * (d_qk + d_v));
}

/// Kind halves writes q, k and v once more before it begins, so there must be enough to compute. The copies are in the
/// workspace, so the plan must know the number of rows.
std::string why_not_halves(const Attention& a, bool named) {
  if (a.packed && (a.s_q == 0 || a.s_k == 0)) return "packed lengths without a hint";
  const double flops = attention_flops(a);
  const double least = tiles::kHalvesFlops + tiles::kHalvesFlopsPerByte * input_bytes(a);
  if (named || flops >= least) return "";
  return text("it is for at least ", scaled_text(least, "flop"), " on such operands, but here are ",
              scaled_text(flops, "flop"));
}

/// Each part of the keys has a place in the workspace. It begins at a tile: split_keys is a multiple of 64, and the
/// tiles of the kinds that have it are of 64, 32 or 16 keys. Only those of q of 8 bits may be larger:
/// why_not_bytes_of_q.
std::string why_not_parts(const Attention& a) {
  if (a.split_keys == 0) return "";
  if (a.row_max) return "row_max with split_keys: the largest score of a row is in one part";
  const std::int64_t parts = ceil_div(a.s_k, a.split_keys);
  return parts <= gpu::kMaxSplits ? ""
                                  : text("split_keys = ", a.split_keys, ": there can be at most ", gpu::kMaxSplits,
                                         " parts, but here are ", parts);
}

/// Kind pages of Hopper loads pieces of a page that begin where those of the tile do, so keys begin at slot 0.
std::string why_not_pages_of_hopper(const Variant& listed, const Attention& a) {
  if (a.first_k) return "it has no pages with first_k";
  const int keys = listed.facts_as<gpu::AttentionFacts>().keys;
  if (sm90::keys_of_piece(a.page_size, keys) >= sm90::kLeastPiece) return "";
  return text("it is for pages of a multiple of ", sm90::kLeastPiece, " keys, but here they have ", a.page_size);
}

/// No other kind of a back end takes q of 8 bits where these do, so they take few rows, too. A part of the keys begins
/// with a tile. Kind fp8 has tiles of 128 keys alone; those of sm80's kind eight have 64 or 32, so it takes any split.
std::string why_not_bytes_of_q(const Variant& listed, const Attention& a) {
  const int keys = listed.facts_as<gpu::AttentionFacts>().keys;
  if (a.split_keys % keys == 0) return "";
  return text("it is for split_keys that are a multiple of ", keys, ", but here they are ", a.split_keys);
}

/// named: the caller has chosen this back end, so no variant is refused only for being slower than another back end.
std::string why_not(const Variant& listed, const Attention& a, bool named) {
  if (std::string why = why_lacking(listed, a, features_of(a, Pass::forward)); !why.empty()) return why;
  const std::int64_t rows = rows_a_head(a);
  if (std::string why = why_not_parts(a); !why.empty()) return why;
  if (is_decode_of_hopper(listed)) return why_not_decode(listed, a, rows);
  if (is_for_bytes_of_q(listed)) return why_not_bytes_of_q(listed, a);
  if (listed.backend == Backend::sm90 && rows <= tiles::kFewRows)
    return text("it is for more than ", tiles::kFewRows, " rows for each K/V head, but here are ", rows);
  if (is_for_pages(listed) && listed.backend == Backend::sm90) return why_not_pages_of_hopper(listed, a);
  return is_halves(listed) ? why_not_halves(a, named) : "";
}

/// Few rows: the query heads of a K/V head share a tile, if that saves a tenth of the tiles. A box of TMA holds whole
/// groups.
int choose_group(Backend backend, const Attention& a, int rows) {
  if (a.h_k == 0 || a.h_q == 0) return 1;
  const std::int64_t g = a.h_q / a.h_k;
  if (backend == Backend::sm90 && rows % g != 0) return 1;
  return 10 * ceil_div(a.s_q * g, rows) <= 9 * g * ceil_div(a.s_q, rows) ? static_cast<int>(g) : 1;
}

/// Whether the kernel cuts the keys of packed rows into parts, too.
bool cuts_packed(const Variant& listed) {
  return listed.backend == Backend::sm90 && (is_for_pages(listed) || is_for_bytes_of_q(listed));
}

/// Parts of the keys: the fewest that keep the device busy. A row's maximum and its probabilities need all keys at
/// once. The workspace has room for as many packed rows as the hint s_q says; where a run has more, it does not cut.
int choose_splits(const Attention& a, const Variant& variant, std::int64_t items, std::int64_t slots) {
  if ((a.packed && !cuts_packed(variant)) || a.row_max || a.probabilities || items == 0) return 1;
  const auto& facts = variant.facts_as<gpu::AttentionFacts>();
  if (a.split_keys > 0) return static_cast<int>(std::max<std::int64_t>(ceil_div(a.s_k, a.split_keys), 1));
  const bool bounded = a.band.left >= 0 && a.band.right >= 0 && a.band.left < a.s_k && a.band.right < a.s_k;
  const std::int64_t seen = bounded ? std::min(a.s_k, a.band.left + a.band.right + a.s_q) : a.s_k;
  const bool few = a.s_q * (a.h_q / a.h_k) <= tiles::kFewRows;
  const std::int64_t least = few ? std::int64_t{tiles::kKeyTilesPerSplit} * facts.keys
                                 : std::clamp(a.s_q, tiles::kKeysPerSplit, tiles::kKeysPerSplitOfMany);
  const std::int64_t most = std::clamp<std::int64_t>(seen / least, 1, gpu::kMaxSplits);
  return fewest_parts(items, slots, most, tiles::kSplitWaves);
}

/// Hopper: CTAs that walk over the tiles, so that the loads of one tile overlap the end of the tile before. There are
/// as many as fit on the device. Tiles of equal length are dealt in turn. If their lengths differ, because of a band or
/// because only the device knows the lengths, they are drawn from a counter in the workspace.
void choose_walkers(std::int64_t slots, PlanData* plan) {
  AttentionPlan& attention = plan->attention();
  const Attention& a = attention.problem;
  const std::int64_t items = plan->items * attention.splits;
  if (plan->backend != Backend::sm90 || items == 0) return;
  const bool known = !a.packed && !features_of(a, Pass::forward).has(Feature::lengths);
  const bool same_length = known && a.band.left < 0 && a.band.right < 0;
  // How many tiles a packed problem has is known at run time; its hints may say too little.
  attention.walkers = static_cast<int>(a.packed ? slots : std::min(items, slots));
  attention.counted = !same_length && attention.splits == 1 && (a.packed || items > slots);
  if (attention.counted) plan->workspace = gpu::kTileCounterBytes;
}

/// Whether CTAs may start while the previous kernel in the stream still runs, which costs the host half a microsecond
/// less. But if several CTAs share an SM, a grid that fits on the SMs at once would fill the SMs that are free first,
/// two CTAs on one and none on another. Such a grid waits.
bool may_start_early(const cuda::Device& device, const PlanData& plan, std::int64_t slots) {
  const bool alone = plan.variant->facts_as<gpu::AttentionFacts>().ctas == 1;  // a CTA has its SM for itself
  return device.sm >= 90 && (alone || plan.items * plan.attention().splits >= 2 * slots);
}

/// Where the partial results of the parts of the keys are; returns their bytes.
std::size_t place_parts(AttentionPlan* attention) {
  const Attention& a = attention->problem;
  const std::int64_t parts = attention->splits * a.b * a.s_q * a.h_q;
  attention->partial_m_l = static_cast<std::size_t>(ceil_div(parts * a.d_v, 4) * 4) * sizeof(float);
  return attention->partial_m_l + static_cast<std::size_t>(parts) * 2 * sizeof(float);
}

Status decide_grid(const cuda::Device& device, PlanData* plan) {
  AttentionPlan& attention = plan->attention();
  const Attention& a = attention.problem;
  const gpu::AttentionFacts& facts = plan->variant->facts_as<gpu::AttentionFacts>();
  set_device(device, plan);
  if (is_decode_of_hopper(*plan->variant)) {
    decide_decode_grid(device, rows_a_head(a), plan);
    if (a.split_keys > 0 && plan->items > 0) {
      attention.splits = choose_splits(a, *plan->variant, plan->items, device.sms);
      // A general variant that runs instead has the same parts.
      plan->workspace = std::max(decode_parts_bytes(*plan), attention.splits > 1 ? place_parts(&attention) : 0);
    }
    return {};
  }
  attention.group = choose_group(plan->backend, a, facts.rows);
  const std::int64_t heads = a.h_q / attention.group;
  attention.tiles = gpu_row_tiles(a, a.packed ? a.b * a.s_q : 0, attention.group, facts.rows);
  const std::int64_t items = attention.tiles * heads * (a.packed ? 1 : a.b);
  const std::int64_t slots = std::int64_t{device.sms} * plan->gpu.ctas;
  const std::int64_t likely =
      a.b * ceil_div(a.s_q * attention.group, facts.rows) * heads;  // items is a bound, if packed
  attention.splits = choose_splits(a, *plan->variant, std::min(items, likely), slots);
  plan->items = items;
  attention.rows = facts.rows;
  attention.keys = facts.keys;
  const std::int64_t rows = a.b * a.s_q * a.h_q;
  if (static_cast<double>(items) * attention.splits > INT32_MAX || (a.probabilities && rows > INT32_MAX)) {
    return {Code::unsupported,
            text("b * h_q * s_q: ", items, " row tiles (", rows, " rows) are over the grid's limit of ", INT32_MAX)};
  }
  choose_walkers(slots, plan);
  attention.early = may_start_early(device, *plan, slots);
  if (attention.splits > 1) plan->workspace = place_parts(&attention);
  if (is_halves(*plan->variant)) {
    attention.copies = aligned(plan->workspace);
    const sm90::HalvesRows of_halves{rows, a.b * a.s_k * a.h_k};
    plan->workspace = attention.copies + sm90::HalvesLayout::of(of_halves, facts.d).bytes;
  }
  if (is_fp8(*plan->variant)) {
    attention.copies = aligned(plan->workspace);
    plan->workspace = attention.copies + bytes_of_turned_v(a);
  }
  return {};
}

/// The kind of sm80 that takes operands of any layout.
VariantKind general_kind(const Attention& a) {
  if (is_8bit(a.dtype)) return VariantKind::eight;
  if (is_8bit(dtype_of_k(a))) return VariantKind::bytes;
  return a.page_size > 0 ? VariantKind::pages_general : VariantKind::general;
}

/// The conditions of a variant on a run's operands. The workspace of kinds halves and fp8 limits the packed rows.
Conditions needs_of(const Variant& variant, const Attention& a) {
  if (is_halves(variant)) return a.packed ? Conditions(Condition::room) : Conditions();
  if (variant.kind == general_kind(a)) return {};
  if (is_decode_of_hopper(variant)) return Condition::aligned;
  const Conditions of_hopper = Condition::aligned | Condition::tma;
  if (is_fp8(variant) && a.packed) return of_hopper | Condition::room;
  return variant.backend == Backend::sm90 ? of_hopper : Condition::aligned;
}

/// Whether the packed rows are within the hints of the problem.
bool rows_fit(const Attention& a, const Operands& x) noexcept {
  return !a.packed || (x.q.shape[1] <= a.b * a.s_q && x.k.shape[1] <= a.b * a.s_k);
}

/// new_keys: the kernel reads k_new and v_new by chunks, too.
bool aligned_to_16(const Attention& a, const Operands& x, bool new_keys) noexcept {
  const std::int64_t chunk = 16 / std::min(size_of(a.dtype), size_of(dtype_of_k(a)));
  return a.d_qk % chunk == 0 && a.d_v % chunk == 0 && rows_aligned(x.q) && rows_aligned(x.k) && rows_aligned(x.v) &&
         rows_aligned(x.o) && (!new_keys || (rows_aligned(x.k_new) && rows_aligned(x.v_new)));
}

}  // namespace

Layout layout_of(const PlanData& plan, const Operands& x) noexcept {
  const Attention& a = plan.attention().problem;
  Layout layout;
  layout.met.add_if(aligned_to_16(a, x, a.append && is_decode_of_hopper(*plan.variant)), Condition::aligned);
  layout.met.add_if(rows_fit(a, x), Condition::room);
  if (plan.variant->backend == Backend::sm90)
    layout.met.add_if(fits_tma(x.q) && fits_tma(x.k) && fits_tma(x.v), Condition::tma);
  return layout;
}

std::int64_t gpu_row_tiles(const Attention& a, std::int64_t total_q, int group, int rows) {
  return a.packed ? ceil_div(total_q * group, rows) + a.b : ceil_div(a.s_q * group, rows);
}

std::int64_t gpu_section(const Attention& a, std::int64_t total_k, int group, std::int64_t most_bytes) {
  const std::int64_t row = a.d_qk * size_of(dtype_of_k(a)) + a.d_v * size_of(dtype_of_v(a));
  const std::int64_t keys = a.packed ? total_k : a.s_k, bytes = keys * row;
  const std::int64_t heads_k = std::max<std::int64_t>(1, most_bytes / std::max<std::int64_t>(1, bytes));
  return heads_k * (a.h_q / a.h_k / group);
}

Status plan_attention_gpu(Backend backend, PlanData* plan) {
  cuda::Device device;
  if (Status status = device_for(backend, plan, &device); !status) return status;

  const Attention& a = plan->attention().problem;
  const bool named = plan->target.backend == backend;
  const VariantTile best = best_tile(backend, a, device);
  const bool few = rows_a_head(a) <= sm90::kDecodeMostRows;
  const GpuWish wish{
      .d = std::max(a.d_qk, a.d_v),
      .dtype = is_8bit(a.dtype) && !is_8bit(dtype_of_v(a)) ? dtype_of_v(a) : a.dtype,
      .none = is_8bit(a.dtype) ? "no kernel of this back end takes q of 8 bits" : kNoVariant,
      .concerns =
          [&](const Variant& listed) {
            return is_for_bytes_of_q(listed) == is_8bit(a.dtype) && (listed.tile != VariantTile::mla || is_mla(a)) &&
                   (!is_decode_of_hopper(listed) || few) && (!is_for_pages(listed) || a.page_size > 0) &&
                   (!is_for_bytes(listed) || is_8bit(dtype_of_k(a)));
          },
      .why_not = [&](const Variant& listed) { return why_not(listed, a, named); },
      .why_another_tile = [&](const Variant& listed) { return why_another_tile(listed.tile, best, a, device); }};
  if (Status status = take_gpu_variant(backend, device, wish, plan); !status) return status;

  choose_or_general(needs_of(*plan->variant, a), device, wish, plan, general_kind(a));
  if (Status status = decide_grid(device, plan); !status) return status;
  plan->attention().rotated = aligned(plan->workspace);  // for a general variant where the plan's own needs none
  if (a.rotary_dim > 0) plan->workspace = plan->attention().rotated + rotated_bytes(a);
  return {};
}

}  // namespace falchion
