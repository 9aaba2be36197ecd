// src/api/operand_checks.hpp: the checks of one operand of any operation: presence, type, shape, strides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "api/operand_list.hpp"
#include "falchion/falchion.hpp"

namespace falchion {

/// name and field: "q", ".data"; an array has no field.
void check_aligned(const char* name, const char* field, const void* data, std::int64_t bytes, Check* check);

/// Packed with b = 0, as it is when b was forgotten: then there are no rows either.
inline void check_rows_without_sequence(const char* name, bool packed, std::int64_t b, std::int64_t rows,
                                        Check* check) {
  check->require(!packed || b != 0 || rows == 0, name, ".shape[1] = ", rows,
                 " with b = 0: b is the number of packed sequences, and was not set");
}

/// Whether the operand is given; the only place that decides it. An empty tensor may have no memory, so the shape and
/// the strides count as well: only a tensor of zeroes is absent.
inline bool is_given(const Tensor& x) {
  std::int64_t any = 0;  // without a branch: a one-call form asks thirty times, which took 250 ns by comparisons
  for (std::size_t axis = 0; axis < 4; ++axis) any |= x.shape[axis] | x.stride[axis];
  return x.data != nullptr || any != 0;
}
inline bool is_any_given(std::initializer_list<const Tensor*> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor* x) { return is_given(*x); });
}

}  // namespace falchion
