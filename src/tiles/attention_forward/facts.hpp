// src/tiles/attention_forward/facts.hpp: the facts of each forward variant of attention, by its line in variants.def.
// src/variant_gpu.in asserts for each built variant that its code has these facts.
#pragma once

#include "tiles/attention_forward/sm80.hpp"
#include "tiles/attention_forward/sm90.hpp"
#include "tiles/attention_forward/sm90_decode.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion::facts_of {

struct attention_forward {
  static constexpr gpu::AttentionFacts sm80(VariantKind kind, VariantType type, int d,
                                            VariantTile tile = VariantTile::usual) {
    gpu::AttentionFacts facts = sm80::attention_forward_facts(sm80_kind(kind, type), d, tile);
    if (kind == VariantKind::eight)
      facts.shared_bytes = sm80::shared_bytes_of_eight(sm80::attention_forward_tile(sm80::Kind::eight, d, tile), type);
    if (kind == VariantKind::pages || kind == VariantKind::pages_general) facts.ctas = sm80::ctas_of_pages(facts.ctas);
    return facts;
  }
  static constexpr gpu::AttentionFacts sm90(VariantKind kind, VariantType, int d,
                                            VariantTile tile = VariantTile::usual) {
    return sm90::is_decode(kind) ? sm90::attention_decode_facts(kind, d)
                                 : sm90::attention_forward_facts(sm90_kind(kind), d, tile);
  }

 private:
  static constexpr sm80::Kind sm80_kind(VariantKind kind, VariantType type) {
    if (type == VariantType::f32) return sm80::Kind::f32;
    switch (kind) {
      case VariantKind::plain:
      case VariantKind::pages: return sm80::Kind::plain;
      case VariantKind::general:
      case VariantKind::pages_general: return sm80::Kind::general;
      case VariantKind::bytes: return sm80::Kind::bytes;
      case VariantKind::eight: return sm80::Kind::eight;
      default: return there_is_no_such_kind<sm80::Kind>();
    }
  }
  static constexpr sm90::Kind sm90_kind(VariantKind kind) {
    switch (kind) {
      case VariantKind::plain: return sm90::Kind::plain;
      case VariantKind::score: return sm90::Kind::score;
      case VariantKind::halves: return sm90::Kind::halves;
      case VariantKind::pages: return sm90::Kind::pages;
      case VariantKind::fp8: return sm90::Kind::fp8;
      case VariantKind::int8_scores: return sm90::Kind::int8_scores;
      default: return there_is_no_such_kind<sm90::Kind>();
    }
  }
};

}  // namespace falchion::facts_of
