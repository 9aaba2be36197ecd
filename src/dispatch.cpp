// src/dispatch.cpp: the table of kernel instances. falchion_variants.inc (written by cmake/variants.cmake) has the
// variants of this build, variants.def all of them.
#include <iterator>
#include <type_traits>

#include "plan/facts.hpp"
#include "plan/kinds.hpp"
#include "plan/plan_data.hpp"

namespace falchion {

template <Backend backend, class Operation>
using KernelOf =
    std::conditional_t<backend == Backend::cpu, typename Operation::CpuKernel, typename Operation::GpuKernel>;

// The object that CMake writes for a line.
#define OBJECT(op, level, dtype, d, ...) op##_##level##_##dtype##_##d##__VA_OPT__(_##__VA_ARGS__)

#define VARIANT(op, backend, level, dtype, d, ...)                                                                \
  namespace backend {                                                                                             \
  extern const KernelOf<Backend::backend, variants_of::op> OBJECT(op, level, dtype, d __VA_OPT__(, __VA_ARGS__)); \
  }
#include "falchion_variants.inc"
#undef VARIANT

namespace {

/// The words of a line of variants.def.
struct Line {
  const char* op;
  Backend backend;
  const char* level;
  VariantKind kind;
  DType dtype;
  VariantType type;
  int d;
  VariantTile tile;
  const char* tile_name;
};
#define LINE(op, backend, level, dtype, d, ...)                                             \
  {                                                                                         \
    #op, Backend::backend, #level, VariantKind::level, DType::dtype, VariantType::dtype, d, \
        VariantTile{__VA_OPT__(VariantTile::__VA_ARGS__) }, #__VA_ARGS__                    \
  }

/// Most operations have one tile for a kind and head dim, and are not asked for another.
template <class Operation>
constexpr Facts facts_for(const Line& x) {
  if (x.backend == Backend::cpu) return {};
  if constexpr (requires { Operation::sm80(x.kind, x.type, x.d, x.tile); }) {
    return x.backend == Backend::sm90 ? Facts(Operation::sm90(x.kind, x.type, x.d, x.tile))
                                      : Facts(Operation::sm80(x.kind, x.type, x.d, x.tile));
  } else {
    if (x.tile != VariantTile::usual) there_is_no_such_kind<void>();
    if constexpr (requires { Operation::sm90(x.kind, x.type, x.d); }) {
      if (x.backend == Backend::sm90) return Operation::sm90(x.kind, x.type, x.d);
    }
    return Operation::sm80(x.kind, x.type, x.d);
  }
}

template <class Operation>
constexpr Variant variant_of(const Line& x, Kernel kernel = {}) {
  return {.op = x.op,
          .backend = x.backend,
          .level = x.level,
          .kind = x.kind,
          .dtype = x.dtype,
          .d = x.d,
          .tile = x.tile,
          .tile_name = x.tile_name,
          .features = is_gpu(x.backend) ? features_of_kind(x.op, x.backend, x.kind) : Features(),
          .facts = facts_for<Operation>(x),
          .kernel = kernel};
}

}  // namespace

std::span<const Variant> variants() {
  static constexpr Variant kBuilt[] = {
#define VARIANT(op, backend, level, dtype, d, ...)                                          \
  variant_of<variants_of::op>(LINE(op, backend, level, dtype, d __VA_OPT__(, __VA_ARGS__)), \
                              &backend::OBJECT(op, level, dtype, d __VA_OPT__(, __VA_ARGS__))),
#include "falchion_variants.inc"
#undef VARIANT
      Variant{}};  // an array has at least one element; not part of the table
  return {kBuilt, std::size(kBuilt) - 1};
}

std::span<const Variant> listed_variants() {
  static constexpr Variant kListed[] = {
#define VARIANT(op, backend, level, dtype, d, ...) \
  variant_of<variants_of::op>(LINE(op, backend, level, dtype, d __VA_OPT__(, __VA_ARGS__))),
#include "variants.def"
  };
  return kListed;
}

const Variant* built(const Variant& listed) {
  for (const Variant& variant : variants()) {
    if (variant.backend == listed.backend && variant.dtype == listed.dtype && variant.d == listed.d &&
        variant.kind == listed.kind && variant.tile == listed.tile && same(variant.op, listed.op)) {
      return &variant;
    }
  }
  return nullptr;
}

}  // namespace falchion
