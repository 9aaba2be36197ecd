// src/plan/launch.hpp: common helpers for a kernel's arguments: views, the pool, places in the workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "args/attention_call.hpp"
#include "args/number.hpp"
#include "base/size.hpp"
#include "cpu/threads.hpp"
#include "falchion/falchion.hpp"
#include "plan/constants.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"

namespace falchion {

/// An axis of one element may have any stride: as a broadcast it is 0, and the last axis stays contiguous.
inline View view_of(const Tensor& x) {
  View view{x.data, {}};
  for (int axis = 0; axis < 4; ++axis) view.stride[axis] = x.shape[axis] != 1 ? x.stride[axis] : axis == 3 ? 1 : 0;
  return view;
}

inline Number number_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return Number::f32;
    case DType::f16: return Number::f16;
    case DType::e4m3: return Number::e4m3;
    case DType::i8: return Number::i8;
    default: return Number::bf16;
  }
}

/// The caller's pool, else the library's own.
inline cpu::Pool pool_of(const PlanData& plan) {
  const Executor& executor = plan.target.executor;
  return executor.parallel_for != nullptr ? cpu::Pool{executor.parallel_for, executor.self}
                                          : cpu::default_pool(plan.threads);
}

/// Whether rows begin at multiples of 16 bytes, as copies of 16 bytes at a time require.
inline bool rows_aligned(const Tensor& x) {
  bool aligned = reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
  for (std::size_t axis = 0; axis < 3; ++axis)
    aligned = aligned && (x.shape[axis] <= 1 || x.stride[axis] * size_of(x.dtype) % 16 == 0);
  return aligned;
}

/// Whether all of these tensors are aligned and contiguous, as moves of 16 bytes at a time require. Those that are null
/// or have no elements are not moved; the strides of the latter are arbitrary.
inline Conditions conditions_of(std::initializer_list<const Tensor*> tensors) {
  Conditions met = Condition::aligned | Condition::contiguous;
  for (const Tensor* x : tensors) {
    if (x == nullptr || is_empty(*x)) continue;
    if (!rows_aligned(*x)) met = met - Condition::aligned;
    if (x->stride[3] != 1 && x->shape[3] != 1) met = met - Condition::contiguous;
  }
  return met;
}

/// The further limits of a tensor map: strides of at least a row of elements, below 2^40 bytes; extents up to 2^31 - 1.
inline bool fits_tma(const Tensor& x) {
  const std::int64_t most = (std::int64_t{1} << 40) / size_of(x.dtype) - 1;
  bool fits = true;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    fits = fits && x.shape[axis] <= INT32_MAX &&
           (x.shape[axis] <= 1 || (x.stride[axis] >= x.shape[3] && x.stride[axis] <= most));
  }
  return fits;
}

/// Bytes rounded up, so that the next part of a workspace starts aligned.
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + tiles::kAlign - 1) / tiles::kAlign * tiles::kAlign; }

}  // namespace falchion
