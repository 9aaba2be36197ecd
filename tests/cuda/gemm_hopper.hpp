// tests/cuda/gemm_hopper.hpp: which of Hopper's GEMM kernels are here, for tests that run them by name.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"

namespace falchion::testing {

/// A kind, or the tile of one: "plain wide".
using KindNames = std::initializer_list<const char*>;

/// Those of these kinds that are built, of one type.
inline std::vector<const Variant*> built_kinds_of_hopper(KindNames kinds, DType dtype) {
  std::vector<const Variant*> out;
  for (const Variant& variant : variants()) {
    const bool named = std::any_of(kinds.begin(), kinds.end(), [&](const char* x) { return variant.name() == x; });
    if (named && variant.is("gemm") && variant.backend == Backend::sm90 && variant.dtype == dtype)
      out.push_back(&variant);
  }
  return out;
}

/// Why none of these kinds can run here, or "" when one can.
inline std::string why_no_kind_of_hopper(KindNames kinds) {
  const cuda::Device device = cuda::current_device();
  if (device.sm == 0) return device.why_not;
  if (device.sm != 90) return device.name + " is no Hopper";
  for (const DType dtype : {DType::bf16, DType::f16, DType::e4m3, DType::i8})
    if (!built_kinds_of_hopper(kinds, dtype).empty()) return "";
  return "this build has none of these kernels of Hopper";
}

}  // namespace falchion::testing
