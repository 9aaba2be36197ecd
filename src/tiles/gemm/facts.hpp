// src/tiles/gemm/facts.hpp: the facts of each GEMM variant, by its line in variants.def. src/variant_gpu.in asserts for
// each built variant that its code has these facts.
#pragma once

#include "tiles/gemm/sm80.hpp"
#include "tiles/gemm/sm90.hpp"
#include "tiles/gemm/sm90_few.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion::facts_of {

struct gemm {
  static constexpr gpu::GemmFacts sm80(VariantKind kind, VariantType type, int) {
    return sm80::gemm_facts(sm80_kind(kind, type));
  }
  static constexpr gpu::GemmFacts sm90(VariantKind kind, VariantType type, int) {
    return kind == VariantKind::few ? sm90::gemm_few_facts() : sm90::gemm_facts(sm90_kind(kind, type));
  }

 private:
  static constexpr sm80::GemmKind sm80_kind(VariantKind kind, VariantType type) {
    if (type == VariantType::e4m3) return sm80::GemmKind::e4m3;
    if (type == VariantType::i8) return sm80::GemmKind::i8;
    if (type != VariantType::f32) return sm80::GemmKind::bits16;
    return kind == VariantKind::few ? sm80::GemmKind::few32 : sm80::GemmKind::bits32;
  }
  static constexpr sm90::GemmKind sm90_kind(VariantKind kind, VariantType type) {
    switch (kind) {
      case VariantKind::bytes: return type == VariantType::i8 ? sm90::GemmKind::i8 : sm90::GemmKind::e4m3;
      case VariantKind::wide: return sm90::GemmKind::wide;
      case VariantKind::medium: return sm90::GemmKind::medium;
      case VariantKind::slim: return sm90::GemmKind::slim;
      case VariantKind::narrow: return sm90::GemmKind::narrow;
      default: return there_is_no_such_kind<sm90::GemmKind>();
    }
  }
};

}  // namespace falchion::facts_of
