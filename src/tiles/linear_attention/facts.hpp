// src/tiles/linear_attention/facts.hpp: the facts of each variant of linear attention, by its line in variants.def.
// src/variant_gpu.in asserts for each built variant that its code has these facts.
#pragma once

#include "tiles/linear_attention/sm80.hpp"
#include "tiles/linear_attention/sm80_workspace.hpp"
#include "tiles/linear_attention/sm90.hpp"
#include "tiles/linear_attention/sm90_workspace.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion::facts_of {

template <bool kBackward>
struct linear_attention {
  static constexpr gpu::LinearVariantFacts sm80(VariantKind kind, VariantType type, int d) {
    // exact: nothing is rounded to 16 bits between two products.
    const bool exact = kind == VariantKind::exact || type == VariantType::f32;
    if (!exact) return {sm80::linear_attention_facts(d, kSweeps), sm80::linear_workspace<kBackward>};
    return {sm80::linear_exact_facts(kind != VariantKind::plain, d, kSweeps), sm80::linear_exact_workspace<kBackward>};
  }
  static constexpr gpu::LinearVariantFacts sm90(VariantKind, VariantType type, int d) {
    const bool halves = type == VariantType::f32;
    return {halves ? sm90::linear_halves_facts(d, kSweeps) : sm90::linear_attention_facts(d, kSweeps),
            d <= 64 ? sm90::linear_workspace<64, kBackward> : sm90::linear_workspace<128, kBackward>};
  }

 private:
  static constexpr int kSweeps = kBackward ? 3 : 1;
};
struct linear_attention_forward : linear_attention<false> {};
struct linear_attention_backward : linear_attention<true> {};

}  // namespace falchion::facts_of
