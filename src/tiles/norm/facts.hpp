// src/tiles/norm/facts.hpp: the facts of the norm variants, by their lines in variants.def. src/variant_gpu.in asserts
// for each built variant that its code has these facts.
#pragma once

#include "tiles/norm/sm80.hpp"
#include "tiles/tile_of.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion::facts_of {

struct norm {
  static constexpr gpu::NormFacts sm80(VariantKind, VariantType, int) { return sm80::norm_facts(); }
};

}  // namespace falchion::facts_of
