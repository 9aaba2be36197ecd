// src/layout/kernels.cpp: the table of layout/kernels.inc.
#include "layout/kernels.hpp"

#include <algorithm>

namespace falchion::layout {
namespace {

constexpr Kernel kKernels[] = {
#define KERNEL(name, rows, keys, d, d_v, threads, stages, ctas, bytes) \
  {name, rows, keys, d, d_v, threads, stages, ctas, bytes},
#define ITEM(kernel, name, what, print, bytes)
#include "layout/kernels.inc"
};

constexpr KernelLayout kLayouts[] = {
#define KERNEL(name, rows, keys, d, d_v, threads, stages, ctas, bytes)
#define ITEM(kernel, name, what, print, bytes) {kernel, name, what, print, bytes},
#include "layout/kernels.inc"
};

}  // namespace

std::span<const Kernel> kernels() { return kKernels; }

const Kernel* find_kernel(std::string_view name) {
  const auto* at =
      std::find_if(std::begin(kKernels), std::end(kKernels), [&](const Kernel& k) { return k.name == name; });
  return at == std::end(kKernels) ? nullptr : at;
}

std::span<const KernelLayout> kernel_layouts() { return kLayouts; }

std::span<const KernelLayout> kernel_layouts(std::string_view kernel) {
  const auto of = [&](const KernelLayout& l) { return l.kernel == kernel; };
  const auto* first = std::find_if(std::begin(kLayouts), std::end(kLayouts), of);
  return {first, std::find_if_not(first, std::end(kLayouts), of)};
}

}  // namespace falchion::layout
