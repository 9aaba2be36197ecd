// src/plan/attention_gpu_decode.cpp: what Hopper's forward kernel for few query rows takes, and its grid. Which CTA has
// which keys is decided on the device, from the lengths that only the device knows
// (src/sm90/attention_forward/decode/schedule.hpp).
#include "plan/attention_gpu_decode.hpp"

#include <algorithm>
#include <cstdint>

#include "base/divide.hpp"
#include "plan/constants.hpp"
#include "plan/text.hpp"
#include "tiles/attention_forward/sm90_decode.hpp"

namespace falchion {
namespace {

/// Query rows of a tile, row tiles and tiles of keys of a sequence. A packed problem has them by its hints.
struct DecodeTiles {
  std::int64_t rows, row_tiles, key_tiles;

  static DecodeTiles of(const Variant& variant, const Attention& a, std::int64_t rows_a_head) {
    const sm90::DecodeTile tile = sm90::decode_tile(variant.kind, variant.d);
    const int rows = sm90::decode_rows(rows_a_head);
    return {rows, ceil_div(rows_a_head, rows), std::max<std::int64_t>(ceil_div(a.s_k, tile.keys), 1)};
  }
};

/// The K/V heads that CTAs side by side have: as many as divide h_k and leave at most a sixteenth of the SMs idle. With
/// all 8 heads side by side 128 of 132 SMs work, and 16 sequences of one length are one group each, with nothing to
/// exchange (H200, 1024 keys: 18.2 us, and 21.2 us with one list for each head).
int heads_side_by_side(std::int64_t h_k, int sms) {
  for (std::int64_t width = std::min<std::int64_t>(h_k, sms); width > 1; --width) {
    if (h_k % width == 0 && sms % width <= sms / 16) return static_cast<int>(width);
  }
  return 1;
}

/// The CTA that loads the slot of a new key writes it. So every new key has to be seen by some query, and queries stand
/// at the last keys.
std::string why_not_append(const Attention& a) {
  if (!a.append && a.rotary_dim == 0) return "";
  if (a.first_k) return text("it has no ", a.append ? "append" : "rotary embedding", " with first_k");
  const bool bounded = a.band.left >= 0 || a.band.right >= 0;
  const bool elsewhere = a.band.align == Align::top_left || a.band.align == Align::at;
  return a.append && bounded && elsewhere ? "it has append only in a band from the bottom right" : "";
}

/// With 17 to 64 rows tile brief of kind plain is faster, if all of them are one of its tiles and no kernel has to run
/// before it. Neither question may decide with split_keys, where s_k is the length of the longest sequence.
bool is_for_brief(const Attention& a, std::int64_t rows) {
  if (rows <= tiles::kFewRows || a.packed || a.split_keys > 0 || a.page_size > 0 || a.append || a.rotary_dim > 0)
    return false;
  const std::int64_t d = std::max(a.d_qk, a.d_v);
  return 96 < d && d <= 128 && tiles::kBriefRowsOfWide % (a.h_q / a.h_k) == 0;
}

}  // namespace

bool is_decode_of_hopper(const Variant& variant) {
  return variant.backend == Backend::sm90 && sm90::is_decode(variant.kind);
}

std::string why_not_decode(const Variant& listed, const Attention& a, std::int64_t rows) {
  if (std::string why = why_not_append(a); !why.empty()) return why;
  const int most = sm90::decode_tile(listed.kind, listed.d).rows;
  if (rows > most) return text("it is for at most ", most, " rows for each K/V head, but here are ", rows);
  const bool others = listed.kind == VariantKind::decode;  // no other kind of Hopper takes 8-bit caches
  if (others && rows > tiles::kFewRows && a.s_k < tiles::kDecodeKeys && a.split_keys == 0) {
    return text("with more than ", tiles::kFewRows, " rows for each K/V head it is for at least ", tiles::kDecodeKeys,
                " keys, but here are ", a.s_k);
  }
  if (others && is_for_brief(a, rows))
    return text("with more than ", tiles::kFewRows, " rows for each K/V head tile brief is faster, and here are ",
                rows);
  if (const std::int64_t s = std::max(a.s_q, a.s_k); s > sm90::kDecodeMostLength)
    return text("it is for lengths up to ", sm90::kDecodeMostLength, ", but here are ", s);
  const DecodeTiles list = DecodeTiles::of(listed, a, rows);
  const double all = static_cast<double>(a.b * a.h_k) * static_cast<double>(list.row_tiles * list.key_tiles);
  return all <= INT32_MAX ? "" : text("it is for at most ", INT32_MAX, " tiles of keys, but here are ", all);
}

void decide_decode_grid(const cuda::Device& device, std::int64_t rows_a_head, PlanData* plan) {
  AttentionPlan& attention = plan->attention();
  const Attention& a = attention.problem;
  const DecodeTiles list = DecodeTiles::of(*plan->variant, a, rows_a_head);
  attention.group = a.h_k == 0 ? 1 : static_cast<int>(a.h_q / a.h_k);
  attention.rows = static_cast<int>(list.rows);
  attention.keys = plan->variant->facts_as<gpu::AttentionFacts>().keys;
  attention.tiles = list.row_tiles;
  attention.early = true;
  plan->items = a.b * a.h_k * list.row_tiles;
  if (plan->items == 0) return;
  attention.width = heads_side_by_side(a.h_k, device.sms);
  const std::int64_t most = plan->items / attention.width * list.key_tiles, groups = device.sms / attention.width;
  attention.walkers = attention.width * static_cast<int>(a.packed ? groups : std::min(groups, most));
  plan->workspace = sm90::DecodeWorkspace::bytes(attention.walkers, attention.rows, plan->variant->d);
}

std::size_t decode_parts_bytes(const PlanData& plan) {
  const AttentionPlan& attention = plan.attention();
  return attention.splits == 1
             ? 0
             : sm90::DecodeWorkspace::bytes(plan.items * attention.splits, attention.rows, plan.variant->d);
}

gpu::AttentionFacts decode_facts(const PlanData& plan) {
  gpu::AttentionFacts facts = plan.variant->facts_as<gpu::AttentionFacts>();
  facts.rows = plan.attention().rows;
  facts.shared_bytes = sm90::decode_tile(plan.variant->kind, facts.d).shared_bytes(facts.rows);
  return facts;
}

}  // namespace falchion
