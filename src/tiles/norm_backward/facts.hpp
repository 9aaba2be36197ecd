// src/tiles/norm_backward/facts.hpp: the facts of the variants of a norm's backward pass, by their lines in
// variants.def. src/variant_gpu.in asserts for each built variant that its code has these facts.
#pragma once

#include "tiles/norm_backward/sm80.hpp"
#include "tiles/tile_of.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion::facts_of {

struct norm_backward {
  static constexpr gpu::NormBackwardFacts sm80(VariantKind, VariantType, int) { return sm80::norm_backward_facts(); }
};

}  // namespace falchion::facts_of
