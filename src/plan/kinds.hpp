// src/plan/kinds.hpp: the kinds of GPU variants and their features and types: the lines KIND of variants.def.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "falchion/falchion.hpp"
#include "plan/features.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion {

struct KindOfVariant {
  std::string_view op;  // "attention_forward"
  Backend backend;
  VariantKind kind;
  const char* name;
  Features features;
  std::uint32_t types;  // of its variants, a bit for each DType

  constexpr bool has(DType dtype) const { return (types >> static_cast<int>(dtype) & 1U) != 0; }
};

namespace kinds {
using enum Feature;

constexpr std::uint32_t types_of(std::string_view op, Backend backend, VariantKind kind) {
  struct Line {
    std::string_view op;
    Backend backend;
    VariantKind kind;
    DType dtype;
  };
  constexpr Line kLines[] = {
#define VARIANT(op, backend, level, dtype, d, ...) {#op, Backend::backend, VariantKind::level, DType::dtype},
#include "variants.def"
#undef VARIANT
  };
  std::uint32_t out = 0;
  for (const Line& x : kLines)
    if (x.backend == backend && x.kind == kind && x.op == op) out |= 1U << static_cast<int>(x.dtype);
  return out;
}

// Each types_of is a constant of its own: a compiler limits the steps of one constant expression.
inline constexpr KindOfVariant kAll[] = {
#define KIND(op, backend, kind, features)                                             \
  {#op,                                                                               \
   Backend::backend,                                                                  \
   VariantKind::kind,                                                                 \
   #kind,                                                                             \
   [] {                                                                               \
     [[maybe_unused]] constexpr Features every = features_of_operation(#op), nothing; \
     return Features(features);                                                       \
   }(),                                                                               \
   std::integral_constant<std::uint32_t, types_of(#op, Backend::backend, VariantKind::kind)>::value},
#include "variants.def"
};
}  // namespace kinds

void there_is_no_line_KIND_of_it();  // declared but not defined: calling it is a compile error

/// The features of a kind. Without a line KIND in variants.def this does not compile.
constexpr Features features_of_kind(std::string_view op, Backend backend, VariantKind kind) {
  for (const KindOfVariant& x : kinds::kAll)
    if (x.backend == backend && x.kind == kind && x.op == op) return x.features;
  there_is_no_line_KIND_of_it();
  return {};
}

}  // namespace falchion
