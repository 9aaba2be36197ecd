// src/ref/elements.hpp: reads and writes one element of a tensor, and finds the rows of a sequence in it. The
// definitions share it, and it is naive on purpose.
#pragma once

#include <algorithm>
#include <cstdint>

#include "falchion/falchion.hpp"
#include "policy/dtype.hpp"

namespace falchion::ref {

/// The offset of index i on an axis that may be broadcast: if the extent is 1, its only element is used for every
/// index.
inline std::int64_t at(const Tensor& x, int axis, std::int64_t i) {
  return x.shape[axis] == 1 ? 0 : i * x.stride[axis];
}
inline std::int64_t at(const Tensor& x, std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) {
  return at(x, 0, i) + at(x, 1, j) + at(x, 2, k) + at(x, 3, l);
}

inline float load(const Tensor& x, std::int64_t offset) {
  if (x.dtype == DType::f32) return static_cast<const float*>(x.data)[offset];
  if (x.dtype == DType::e4m3) return f32_from_e4m3(static_cast<const std::uint8_t*>(x.data)[offset]);
  if (x.dtype == DType::i8) return static_cast<const std::int8_t*>(x.data)[offset];
  const std::uint16_t half = static_cast<const std::uint16_t*>(x.data)[offset];
  return x.dtype == DType::f16 ? f32_from_f16(half) : f32_from_bf16(half);
}

inline double round_as(DType dtype, double x) {
  if (dtype == DType::f16) return f32_from_f16(f16_from_f32(static_cast<float>(x)));
  if (dtype == DType::bf16) return f32_from_bf16(bf16_from_f32(static_cast<float>(x)));
  if (dtype == DType::e4m3) return f32_from_e4m3(e4m3_from_f32(static_cast<float>(x)));
  return x;
}

inline void store(const Tensor& x, std::int64_t offset, double value) {
  const float single = static_cast<float>(value);
  if (x.dtype == DType::f32) static_cast<float*>(x.data)[offset] = single;
  if (x.dtype == DType::i32) static_cast<std::int32_t*>(x.data)[offset] = static_cast<std::int32_t>(value);
  if (x.dtype == DType::e4m3) static_cast<std::uint8_t*>(x.data)[offset] = e4m3_from_f32(single);
  if (x.dtype == DType::i8) static_cast<std::int8_t*>(x.data)[offset] = i8_from_f32(single);
  if (x.dtype == DType::f16) static_cast<std::uint16_t*>(x.data)[offset] = f16_from_f32(single);
  if (x.dtype == DType::bf16) static_cast<std::uint16_t*>(x.data)[offset] = bf16_from_f32(single);
}

/// One sequence: rows [begin, begin + length) of batch entry `batch`.
struct Rows {
  std::int64_t batch, begin, length;
  std::int64_t first = 0;  // rows of padding before them, where padding is on the left
};

/// Each pointer may be null. `cu` holds the starts of packed sequences, `used` the used lengths, and `first` the first
/// rows that count. `capacity` is the number of rows of one batch entry or, when packed, of all of them.
inline Rows rows_of(std::int64_t b, const std::int32_t* cu, const std::int32_t* used, std::int64_t capacity,
                    const std::int32_t* first = nullptr) {
  Rows rows{b, 0, capacity};
  if (cu != nullptr) {
    const std::int64_t begin = std::clamp<std::int64_t>(cu[b], 0, capacity);
    const std::int64_t end = std::clamp<std::int64_t>(cu[b + 1], begin, capacity);
    rows = {0, begin, end - begin};
  }
  if (used != nullptr) rows.length = std::clamp<std::int64_t>(used[b], 0, rows.length);
  if (first != nullptr) {
    rows.first = std::clamp<std::int64_t>(first[b], 0, rows.length);
    rows.begin += rows.first;
    rows.length -= rows.first;
  }
  return rows;
}

}  // namespace falchion::ref
