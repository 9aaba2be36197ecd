// src/tiles/attention_forward/facts.hpp: what each forward variant of attention needs, by its line in variants.def.
// src/variant_gpu.in asserts of each variant that is built that its code has these facts.
#pragma once

#include <string_view>

#include "tiles/attention_forward/sm80.hpp"
#include "tiles/attention_forward/sm90.hpp"

namespace falchion::facts_of {

struct attention_forward {
  static constexpr gpu::AttentionFacts sm80(std::string_view kind, VariantType type, int d) {
    return sm80::attention_forward_facts(sm80_kind(kind, type), d);
  }
  static constexpr gpu::AttentionFacts sm90(std::string_view kind, VariantType, int d) {
    return sm90::attention_forward_facts(sm90_kind(kind), d);
  }

 private:
  static constexpr sm80::Kind sm80_kind(std::string_view kind, VariantType type) {
    if (type == VariantType::f32) return sm80::Kind::f32;
    if (kind == "few") return sm80::Kind::few;
    if (kind == "general") return sm80::Kind::general;
    return sm80::Kind::plain;
  }
  static constexpr sm90::Kind sm90_kind(std::string_view kind) {
    if (kind == "brief") return sm90::Kind::brief;
    if (kind == "mla") return sm90::Kind::mla;
    if (kind == "score") return sm90::Kind::score;
    if (kind == "halves") return sm90::Kind::halves;
    return sm90::Kind::plain;
  }
};

}  // namespace falchion::facts_of
