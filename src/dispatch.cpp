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

#define VARIANT(op, backend, level, dtype, d)                                            \
  namespace backend {                                                                    \
  extern const KernelOf<Backend::backend, variants_of::op> op##_##level##_##dtype##_##d; \
  }
#include "falchion_variants.inc"
#undef VARIANT

namespace {

template <class Operation>
constexpr Facts facts_of_variant(Backend backend, VariantKind kind, VariantType type, int d) {
  if constexpr (requires { Operation::sm90(kind, type, d); }) {
    if (backend == Backend::sm90) return Operation::sm90(kind, type, d);
  }
  return backend == Backend::sm80 ? Facts(Operation::sm80(kind, type, d)) : Facts();
}

template <class Operation>
constexpr Variant variant_of(const char* op, Backend backend, const char* level, VariantKind kind, DType dtype,
                             VariantType type, int d, Kernel kernel = {}) {
  return {.op = op,
          .backend = backend,
          .level = level,
          .kind = kind,
          .dtype = dtype,
          .d = d,
          .features = is_gpu(backend) ? features_of_kind(op, backend, kind) : Features(),
          .facts = facts_of_variant<Operation>(backend, kind, type, d),
          .kernel = kernel};
}

}  // namespace

std::span<const Variant> variants() {
  static constexpr Variant kBuilt[] = {
#define VARIANT(op, backend, level, dtype, d)                                                                         \
  variant_of<variants_of::op>(#op, Backend::backend, #level, VariantKind::level, DType::dtype, VariantType::dtype, d, \
                              &backend::op##_##level##_##dtype##_##d),
#include "falchion_variants.inc"
#undef VARIANT
      Variant{}};  // an array has at least one element; not part of the table
  return {kBuilt, std::size(kBuilt) - 1};
}

std::span<const Variant> listed_variants() {
  static constexpr Variant kListed[] = {
#define VARIANT(op, backend, level, dtype, d) \
  variant_of<variants_of::op>(#op, Backend::backend, #level, VariantKind::level, DType::dtype, VariantType::dtype, d),
#include "variants.def"
  };
  return kListed;
}

const Variant* built(const Variant& listed) {
  for (const Variant& variant : variants()) {
    if (variant.backend == listed.backend && variant.dtype == listed.dtype && variant.d == listed.d &&
        variant.kind == listed.kind && same(variant.op, listed.op)) {
      return &variant;
    }
  }
  return nullptr;
}

}  // namespace falchion
