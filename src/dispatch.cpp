// src/dispatch.cpp: the table of kernel instances. falchion_variants.inc (written by cmake/variants.cmake) has the rows
// of variants.def that this build has, variants.def all of them.
#include <cstring>

#include "plan/plan_data.hpp"

namespace falchion {
namespace sm80 {
using gpu::AttentionKernel;  // NOLINT(misc-unused-using-decls): the rows below, if there are any
}
namespace sm90 {
using gpu::AttentionKernel;  // NOLINT(misc-unused-using-decls)
}
#define ROW(op, backend, level, dtype, d)                    \
  namespace backend {                                        \
  extern const AttentionKernel op##_##level##_##dtype##_##d; \
  }
#include "falchion_variants.inc"
#undef ROW

namespace {
constexpr Variant variant(const char* op, Backend backend, const char* level, DType dtype, int d,
                          const cpu::AttentionKernel* kernel) {
  return {op, backend, level, dtype, d, kernel, nullptr};
}
constexpr Variant variant(const char* op, Backend backend, const char* level, DType dtype, int d,
                          const gpu::AttentionKernel* kernel) {
  return {op, backend, level, dtype, d, nullptr, kernel};
}
}  // namespace

std::span<const Variant> variants() {
  static constexpr Variant kBuilt[] = {
#define ROW(op, backend, level, dtype, d) \
  variant(#op, Backend::backend, #level, DType::dtype, d, &backend::op##_##level##_##dtype##_##d),
#include "falchion_variants.inc"
#undef ROW
      Variant{}};  // an array has at least one element; not part of the table
  return {kBuilt, std::size(kBuilt) - 1};
}

std::span<const Variant> listed_variants() {
  static constexpr Variant kListed[] = {
#define VARIANT(op, backend, level, dtype, d) {#op, Backend::backend, #level, DType::dtype, d, nullptr, nullptr},
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
