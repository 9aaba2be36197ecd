// src/api/operand_checks.hpp: what every operand is asked, whatever the operation: is it there, its type, its shape,
// its strides, and does an output share memory with anything?
#pragma once

#include <cstdint>
#include <span>

#include "api/check.hpp"
#include "falchion/falchion.hpp"

namespace falchion {

inline constexpr std::int64_t kAnyExtent = -1;  // an extent that is the caller's to say

/// One operand: what the problem says of it and what was given.
struct Operand {
  const char* name;
  const char* flag = "";  // what to set when it is given and not wanted: "Attention::lse"
  const Tensor* x;
  bool wanted = true, output = false, broadcast = false, contiguous = false;
  const Tensor* in_place = nullptr;  // an output that may be the very same view as this input
};

/// An array: lengths, slopes. Elements of 4 bytes.
struct Array {
  const char* name;
  const void* data;
  std::int64_t length;
};

/// name and field: "q", ".data"; an array has no field.
void check_aligned(const char* name, const char* field, const void* data, std::int64_t bytes, Check* check);

/// What its type and shape do not say: memory there (unless it is empty), aligned, strides that will do.
bool check_memory(const Operand& operand, Check* check);

/// Is it there just when it is wanted, of that type and shape, aligned to its elements, and do its strides do?
void check_tensor(const Operand& operand, DType dtype, const std::array<std::int64_t, 4>& shape, Check* check);

/// The same for an array. owner: "Attention"; flag: the problem's field that asks for it.
template <class T>
void check_array(const char* name, const char* owner, const char* flag, bool wanted, const T* data, std::int64_t length,
                 Check* check) {
  if (wanted) {
    check->require(data != nullptr || length == 0, name, " is null, but the problem was planned with ", flag);
    check_aligned(name, "", data, sizeof(T), check);
  } else {
    check->require(data == nullptr, name, " is given, but the problem was planned without it: set ", owner, "::", flag);
  }
}

/// Packed with b = 0, as it is when b was forgotten: then there are no rows either.
inline void check_rows_without_sequence(const char* name, bool packed, std::int64_t b, std::int64_t rows,
                                        Check* check) {
  check->require(!packed || b != 0 || rows == 0, name, ".shape[1] = ", rows,
                 " with b = 0: b is the number of packed sequences, and was not set");
}

/// No output shares a byte with another operand.
void check_overlaps(std::span<const Operand> tensors, std::span<const Array> arrays, Check* check);

}  // namespace falchion
