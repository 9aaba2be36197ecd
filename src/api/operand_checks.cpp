// src/api/operand_checks.cpp: see operand_checks.hpp.
#include "api/operand_checks.hpp"

#include <algorithm>
#include <cstdint>

#include "api/overlap.hpp"
#include "base/size.hpp"

namespace falchion {
namespace {

constexpr const char* kAxis[] = {"[0]", "[1]", "[2]", "[3]"};

void check_shape(const Operand& operand, const char* expected, Check* check) {
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const std::int64_t extent = operand.x->shape[axis];
    if (operand.shape[axis] == kAnyExtent) {
      check->require(extent >= 0, operand.name, ".shape", kAxis[axis], " = ", extent, ": an extent must be 0 or more");
    } else {
      const bool fits = extent == operand.shape[axis] || (axis < operand.broadcast && extent == 1);
      const bool open = axis >= 2 && *operand.like != 0;
      check->require(fits, operand.name, ".shape", kAxis[axis], " = ", extent, ", ", open ? "but " : expected,
                     open ? operand.like : "", open ? "'s is " : " ", operand.shape[axis],
                     axis < operand.broadcast && operand.shape[axis] != 1 ? " (or 1)" : "");
    }
  }
}

void check_strides(const Operand& operand, Check* check) {
  const Tensor& x = *operand.x;
  if (!fits_address_space(x)) {
    const std::size_t axis = longest_axis(x);
    check->require(false, operand.name, ".stride", kAxis[axis], " = ", x.stride[axis], " with ", operand.name, ".shape",
                   kAxis[axis], " = ", x.shape[axis], ": a tensor must reach less than 2^60 bytes");
    return;
  }
  check->require(!operand.contiguous || x.stride[3] == 1 || x.shape[3] <= 1, operand.name, ".stride[3] = ", x.stride[3],
                 ": the last axis must be contiguous (stride 1)");
  if (!operand.output) return;
  bool positive = true;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    positive = check->require(x.shape[axis] <= 1 || x.stride[axis] > 0, operand.name, ".stride", kAxis[axis], " = ",
                              x.stride[axis], ": strides of an output must be above 0") &&
               positive;
  }
  if (!positive) return;
  check->require(!aliases_itself(x), operand.name, ".stride = ", x.stride, " with ", operand.name, ".shape = ", x.shape,
                 ": two elements of an output must not share memory");
}

}  // namespace

void check_aligned(const char* name, const char* field, const void* data, std::int64_t bytes, Check* check) {
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes);
  check->require(past == 0, name, field, " = ", data, " is ", past, " past a multiple of ", bytes,
                 ": it must be aligned to its elements");
}

namespace {

/// Checks the memory of an operand: present (unless it is empty), aligned, with valid strides.
void check_memory(const Operand& operand, Check* check) {
  const Tensor& x = *operand.x;
  if (is_empty(x)) return;
  check->require(x.data != nullptr, operand.name, ".data is null");
  check_aligned(operand.name, ".data", x.data, size_of(x.dtype), check);
  check_strides(operand, check);
}

void check_tensor(const Operand& operand, const char* expected, Check* check) {
  const Tensor& x = *operand.x;
  if (!operand.wanted) {
    check->require(!is_given(x), operand.name, " is given, but the problem was planned without it: set ", operand.flag);
    return;
  }
  check->require(x.dtype == operand.dtype, operand.name, ".dtype = ", x.dtype, ", ", expected, " ", operand.dtype);
  check_shape(operand, expected, check);
  if (check->ok()) check_memory(operand, check);
}

void check_array(const Array& array, const char* owner, Check* check) {
  if (!array.required && !array.wanted) return;
  if (!array.wanted) {
    check->require(array.data == nullptr, array.name, " is given, but the problem was planned without it: set ", owner,
                   "::", array.flag);
    return;
  }
  const bool there = array.data != nullptr || array.length == 0 || !array.required;
  check->require(there, array.name, " is null, but the problem was planned with ", array.flag);
  check_aligned(array.name, "", array.data, array.element, check);
}

/// An output may be the same view as an input if the list allows it.
void check_overlaps(const Operand& out, const OperandList& list, Check* check) {
  for (const Operand& other : list.tensors()) {
    if (!other.wanted || &other == &out || (other.output && &other < &out)) continue;  // a pair of outputs once
    const bool may_be = std::find(out.in_place.begin(), out.in_place.end(), other.x) != out.in_place.end();
    if (may_be && same_view(*out.x, *other.x)) continue;
    check->require(!overlap(*out.x, *other.x), out.name, " overlaps ", other.name);
  }
  for (const Array& array : list.arrays()) {
    if (!array.wanted || array.data == nullptr) continue;
    const std::int64_t words = array.length * array.element / 4;
    const Tensor view = Tensor::dense(const_cast<void*>(array.data), DType::f32, {1, 1, 1, words});
    check->require(!overlap(*out.x, view), out.name, " overlaps ", array.name);
  }
}

}  // namespace

void check_operands(const OperandList& list, Check* check) {
  for (const Operand& operand : list.tensors()) check_tensor(operand, list.expected(), check);
  for (const Array& array : list.arrays()) check_array(array, list.owner(), check);
}

void check_overlaps(const OperandList& list, Check* check) {
  if (!check->ok()) return;
  for (const Operand& operand : list.tensors()) {
    if (operand.output && operand.wanted) check_overlaps(operand, list, check);
  }
}

}  // namespace falchion
