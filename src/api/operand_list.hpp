// src/api/operand_list.hpp: the operands of one run, by name. Each operation lists its operands once (operands_of); the
// checks of shapes, overlaps and places then walk over the list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "api/check.hpp"
#include "base/fields.hpp"
#include "falchion/falchion.hpp"

namespace falchion {

using Shape = std::array<std::int64_t, 4>;

inline constexpr std::int64_t kAnyExtent = -1;  // an extent that is the caller's to say

/// A tensor: what the problem requires, and what was given.
struct Operand {
  const char* name;
  const char* flag = "";  // what to set when it is given and not wanted: "Attention::lse"
  const Tensor* x;
  DType dtype = DType::f32;
  Shape shape{};
  bool wanted = true;  // whether the problem has such an operand
  bool output = false;
  std::size_t broadcast = 0;                // along how many of the first axes an extent may be 1 instead
  bool contiguous = false;                  // the last axis has stride 1
  bool moved = false;                       // kernels move its rows 16 bytes at a time where they can
  std::array<const Tensor*, 3> in_place{};  // inputs whose very view this output may be
  const char* like = "";                    // whose last two extents it has, where the problem leaves them open
};

/// An array: lengths, random numbers.
struct Array {
  const char* name;
  const char* flag;      // the problem's field that asks for it: "packed"
  bool wanted = true;    // whether the problem has such an array
  bool required = true;  // whether it must not be null if wanted
  const void* data;
  std::int64_t length;   // elements
  std::int64_t element;  // bytes of one
};

class OperandList {
 public:
  /// For messages. owner: the type that has the flags, "Attention". expected: "o.shape[1] = 5, but the problem's is 4".
  explicit OperandList(const char* owner, const char* expected = "but the problem's is")
      : owner_(owner), expected_(expected) {}

  void add(const Operand& operand) { tensors_[tensor_count_++] = operand; }
  void add(const Array& array) { arrays_[array_count_++] = array; }
  std::span<const Operand> tensors() const { return {tensors_.data(), tensor_count_}; }
  std::span<const Array> arrays() const { return {arrays_.data(), array_count_}; }
  const char* owner() const { return owner_; }
  const char* expected() const { return expected_; }

 private:
  const char* owner_;
  const char* expected_;
  std::array<Operand, 32> tensors_{};
  std::array<Array, 8> arrays_{};
  std::size_t tensor_count_ = 0;
  std::size_t array_count_ = 0;
};

/// The shape of an operand of attention. Packed rows are as many as those of q and k in x, pages as many as those of k.
Shape shape_of(const Attention& problem, const Operands& x, const OperandField& of);

/// Those of the pass; the tensors of the other one are not looked at. Of a tensor's shape only what the problem leaves
/// open is taken from the operands: packed rows.
OperandList operands_of(const Attention& problem, Pass pass, const Operands& x);
OperandList operands_of(const LinearAttention& problem, Pass pass, const LinearOperands& x);
OperandList operands_of(const Gemm& problem, Pass pass, const GemmOperands& x);
OperandList operands_of(const Norm& problem, Pass pass, const NormOperands& x);
OperandList operands_of(const Quantise& problem, Pass pass, const QuantiseOperands& x);

/// Checks that each operand is given if and only if it is wanted, with its type and shape, aligned to its elements,
/// with valid strides. Reads no element.
void check_operands(const OperandList& list, Check* check);
/// Checks that no output shares a byte with another operand. Only for operands that check_operands() has accepted.
void check_overlaps(const OperandList& list, Check* check);

}  // namespace falchion
