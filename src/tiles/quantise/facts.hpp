// src/tiles/quantise/facts.hpp: the facts of the variants of Quantise, by their lines in variants.def.
// src/variant_gpu.in asserts for each built variant that its code has these facts.
#pragma once

#include "tiles/quantise/sm80.hpp"
#include "tiles/tile_of.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion::facts_of {

struct quantise {
  static constexpr gpu::QuantiseFacts sm80(VariantKind, VariantType, int) { return sm80::quantise_facts(); }
};

}  // namespace falchion::facts_of
