// src/dispatch.cpp: the table of kernel instances. falchion_variants.inc (written by cmake/variants.cmake) has the rows
// of variants.def that this build has, variants.def all of them.
#include <string_view>

#include "plan/facts.hpp"
#include "plan/plan_data.hpp"

namespace falchion {
namespace sm80 {
using gpu::AttentionKernel, gpu::LinearAttentionKernel;  // NOLINT(misc-unused-using-decls): the rows, if there are any
}
namespace sm90 {
using gpu::AttentionKernel, gpu::LinearAttentionKernel;  // NOLINT(misc-unused-using-decls)
}
// What kind of kernel the rows of an operation are.
#define KERNEL_OF_attention_forward AttentionKernel
#define KERNEL_OF_linear_attention_forward LinearAttentionKernel
#define KERNEL_OF_linear_attention_backward LinearAttentionKernel
#define ROW(op, backend, level, dtype, d)                   \
  namespace backend {                                       \
  extern const KERNEL_OF_##op op##_##level##_##dtype##_##d; \
  }
#include "falchion_variants.inc"
#undef ROW

namespace {

constexpr Variant listed(const char* op, Backend backend, const char* level, DType dtype, int d) {
  Variant row{.op = op, .backend = backend, .level = level, .dtype = dtype, .d = d};
  if (!is_gpu(backend)) return row;
  if (op == std::string_view("attention_forward")) {
    row.facts = attention_forward_facts(backend, level, dtype, d);
  } else if (op == std::string_view("linear_attention_forward")) {
    row.linear = linear_attention_forward_facts(backend, level, dtype, d);
    row.linear_workspace = linear_workspace_of<false>(backend, level, dtype, d);
  } else {
    row.linear = linear_attention_backward_facts(backend, level, dtype, d);
    row.linear_workspace = linear_workspace_of<true>(backend, level, dtype, d);
  }
  return row;
}

constexpr Variant with(Variant row, const cpu::AttentionKernel* kernel) { return row.cpu = kernel, row; }
constexpr Variant with(Variant row, const gpu::AttentionKernel* kernel) { return row.gpu = kernel, row; }
constexpr Variant with(Variant row, const cpu::LinearAttentionKernel* kernel) { return row.linear_cpu = kernel, row; }
constexpr Variant with(Variant row, const gpu::LinearAttentionKernel* kernel) { return row.linear_gpu = kernel, row; }

}  // namespace

std::span<const Variant> variants() {
  static constexpr Variant kBuilt[] = {
#define ROW(op, backend, level, dtype, d) \
  with(listed(#op, Backend::backend, #level, DType::dtype, d), &backend::op##_##level##_##dtype##_##d),
#include "falchion_variants.inc"
#undef ROW
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
