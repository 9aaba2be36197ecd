// src/dispatch.cpp: the table of kernel instances. falchion_variants.inc (written by cmake/variants.cmake) has the rows
// of variants.def that this build has, variants.def all of them.
#include <cstring>

#include "plan/plan_data.hpp"

namespace falchion {
namespace cpu {
#define ROW(op, backend, level, dtype, d) extern const AttentionKernel op##_##level##_##dtype;
#include "falchion_variants.inc"
#undef ROW
}  // namespace cpu

std::span<const Variant> variants() {
  static constexpr Variant kBuilt[] = {
#define ROW(op, backend, level, dtype, d) \
  {#op, Backend::backend, #level, DType::dtype, d, &cpu::op##_##level##_##dtype},
#include "falchion_variants.inc"
#undef ROW
      {"", Backend::ref, "", DType::f32, 0, nullptr}};  // an array has at least one element; not part of the table
  return {kBuilt, std::size(kBuilt) - 1};
}

std::span<const Variant> listed_variants() {
  static constexpr Variant kListed[] = {
#define VARIANT(op, backend, level, dtype, d) {#op, Backend::backend, #level, DType::dtype, d, nullptr},
#include "variants.def"
  };
  return kListed;
}

const Variant* built(const Variant& listed) {
  for (const Variant& variant : variants()) {
    if (variant.backend == listed.backend && variant.dtype == listed.dtype && variant.d == listed.d &&
        std::strcmp(variant.op, listed.op) == 0 && std::strcmp(variant.level, listed.level) == 0) {
      return &variant;
    }
  }
  return nullptr;
}

}  // namespace falchion
