// src/tiles/gemm/facts.hpp: what each GEMM variant needs, by its line in variants.def. src/variant_gpu.in asserts of
// each variant that is built that its code has these facts.
#pragma once

#include <string_view>

#include "tiles/gemm/sm80.hpp"
#include "tiles/gemm/sm90.hpp"
#include "tiles/gemm/sm90_few.hpp"

namespace falchion::facts_of {

struct gemm {
  static constexpr gpu::GemmFacts sm80(std::string_view kind, VariantType type, int) {
    return sm80::gemm_facts(sm80_kind(kind, type));
  }
  static constexpr gpu::GemmFacts sm90(std::string_view kind, VariantType type, int) {
    return kind == "few" ? sm90::gemm_few_facts() : sm90::gemm_facts(sm90_kind(kind, type));
  }

 private:
  static constexpr sm80::GemmKind sm80_kind(std::string_view kind, VariantType type) {
    if (type == VariantType::e4m3) return sm80::GemmKind::e4m3;
    if (type == VariantType::i8) return sm80::GemmKind::i8;
    if (type != VariantType::f32) return sm80::GemmKind::bits16;
    return kind == "few" ? sm80::GemmKind::few32 : sm80::GemmKind::bits32;
  }
  static constexpr sm90::GemmKind sm90_kind(std::string_view kind, VariantType type) {
    if (kind == "bytes") return type == VariantType::i8 ? sm90::GemmKind::i8 : sm90::GemmKind::e4m3;
    if (kind == "slim") return sm90::GemmKind::slim;
    if (kind == "narrow") return sm90::GemmKind::narrow;
    return kind == "medium" ? sm90::GemmKind::medium : sm90::GemmKind::wide;
  }
};

}  // namespace falchion::facts_of
