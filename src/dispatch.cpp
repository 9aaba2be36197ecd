// src/dispatch.cpp: the table of kernel instances. falchion_variants.inc (written by cmake/variants.cmake) has the
// variants that this build has, variants.def all of them.
#include <string_view>

#include "plan/facts.hpp"
#include "plan/plan_data.hpp"

namespace falchion {
namespace sm80 {
using gpu::AttentionKernel, gpu::LinearAttentionKernel;  // NOLINT(misc-unused-using-decls): variants, if there are any
}
namespace sm90 {
using gpu::AttentionKernel, gpu::LinearAttentionKernel;  // NOLINT(misc-unused-using-decls)
}
// What kind of kernel the variants of an operation have.
#define KERNEL_OF_attention_forward AttentionKernel
#define KERNEL_OF_linear_attention_forward LinearAttentionKernel
#define KERNEL_OF_linear_attention_backward LinearAttentionKernel
#define VARIANT(op, backend, level, dtype, d)               \
  namespace backend {                                       \
  extern const KERNEL_OF_##op op##_##level##_##dtype##_##d; \
  }
#include "falchion_variants.inc"
#undef VARIANT

namespace {

constexpr Variant listed(const char* op, Backend backend, const char* level, DType dtype, int d) {
  Variant variant{.op = op, .backend = backend, .level = level, .dtype = dtype, .d = d};
  if (!is_gpu(backend)) return variant;
  if (op == std::string_view("attention_forward")) {
    variant.facts = attention_forward_facts(backend, level, dtype, d);
  } else if (op == std::string_view("linear_attention_forward")) {
    variant.linear = linear_attention_forward_facts(backend, level, dtype, d);
    variant.linear_workspace = linear_workspace_of<false>(backend, level, dtype, d);
  } else {
    variant.linear = linear_attention_backward_facts(backend, level, dtype, d);
    variant.linear_workspace = linear_workspace_of<true>(backend, level, dtype, d);
  }
  return variant;
}

constexpr Variant with(Variant variant, const cpu::AttentionKernel* kernel) { return variant.cpu = kernel, variant; }
constexpr Variant with(Variant variant, const gpu::AttentionKernel* kernel) { return variant.gpu = kernel, variant; }
constexpr Variant with(Variant variant, const cpu::LinearAttentionKernel* kernel) {
  return variant.linear_cpu = kernel, variant;
}
constexpr Variant with(Variant variant, const gpu::LinearAttentionKernel* kernel) {
  return variant.linear_gpu = kernel, variant;
}

}  // namespace

std::span<const Variant> variants() {
  static constexpr Variant kBuilt[] = {
#define VARIANT(op, backend, level, dtype, d) \
  with(listed(#op, Backend::backend, #level, DType::dtype, d), &backend::op##_##level##_##dtype##_##d),
#include "falchion_variants.inc"
#undef VARIANT
      Variant{}};  // an array has at least one element; not part of the table
  return {kBuilt, std::size(kBuilt) - 1};
}

std::span<const Variant> listed_variants() {
  static constexpr Variant kListed[] = {
#define VARIANT(op, backend, level, dtype, d) listed(#op, Backend::backend, #level, DType::dtype, d),
#include "variants.def"
  };
  return kListed;
}

const Variant* built(const Variant& listed) {
  for (const Variant& variant : variants()) {
    if (variant.backend == listed.backend && variant.dtype == listed.dtype && variant.d == listed.d &&
        same(variant.op, listed.op) && same(variant.level, listed.level)) {
      return &variant;
    }
  }
  return nullptr;
}

}  // namespace falchion
