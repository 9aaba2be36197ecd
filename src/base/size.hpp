// src/base/size.hpp: the bytes of an element of a type, and whether a tensor has any element.
#pragma once

#include <cstdint>

#include "falchion/falchion.hpp"

namespace falchion {

constexpr std::int64_t size_of(DType x) {
  switch (x) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::as_q:
    case DType::boolean:
    case DType::e4m3:
    case DType::e5m2:
    case DType::i8: return 1;
  }
  return 1;
}

/// The types whose numbers have 8 bits.
constexpr bool is_8bit(DType x) { return x == DType::e4m3 || x == DType::e5m2 || x == DType::i8; }

constexpr bool is_empty(const Tensor& x) {
  return x.shape[0] == 0 || x.shape[1] == 0 || x.shape[2] == 0 || x.shape[3] == 0;
}

}  // namespace falchion
