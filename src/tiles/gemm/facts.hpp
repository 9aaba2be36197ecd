// src/tiles/gemm/facts.hpp: the facts of each GEMM variant, by its line in variants.def. src/variant_gpu.in asserts for
// each built variant that its code has these facts.
#pragma once

#include "tiles/gemm/sm80.hpp"
#include "tiles/gemm/sm90.hpp"
#include "tiles/gemm/sm90_few.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion::facts_of {

struct gemm {
  static constexpr gpu::GemmFacts sm80(VariantKind, VariantType type, int, VariantTile tile = VariantTile::usual) {
    return sm80::gemm_facts(sm80_kind(type), tile);
  }
  static constexpr gpu::GemmFacts sm90(VariantKind kind, VariantType type, int, VariantTile tile = VariantTile::usual) {
    return kind == VariantKind::few ? sm90::gemm_few_facts() : sm90::gemm_facts(sm90_kind(type), tile);
  }

 private:
  static constexpr sm80::GemmKind sm80_kind(VariantType type) {
    switch (type) {
      case VariantType::e4m3: return sm80::GemmKind::e4m3;
      case VariantType::i8: return sm80::GemmKind::i8;
      case VariantType::f32: return sm80::GemmKind::bits32;
      default: return sm80::GemmKind::bits16;
    }
  }
  static constexpr sm90::GemmKind sm90_kind(VariantType type) {
    switch (type) {
      case VariantType::e4m3: return sm90::GemmKind::e4m3;
      case VariantType::i8: return sm90::GemmKind::i8;
      case VariantType::f32: return there_is_no_such_kind<sm90::GemmKind>();
      default: return sm90::GemmKind::bits16;
    }
  }
};

}  // namespace falchion::facts_of
