// src/api/sizes.hpp: the limits of every problem's sizes, and the texts of who is over them.
#pragma once

#include <cstdint>
#include <limits>

#include "api/check.hpp"

namespace falchion {

inline constexpr std::int64_t kMaxHeadDim = 256;
// Kernels hold a row's index in 32 bits, rounded up to tiles.
inline constexpr std::int64_t kMaxSequence = std::int64_t{1} << 30;
// b * h is a 32-bit number: a counter of Philox, a grid.
inline constexpr std::int64_t kMaxHeads = std::numeric_limits<std::int32_t>::max();

inline void check_size(const char* name, std::int64_t value, std::int64_t limit, Check* check) {
  check->require(value >= 0, name, " = ", value, ": a size is 0 or more");
  check->require(value <= limit, name, " = ", value, " is over the limit of ", limit);
}

inline void check_head_dim(const char* name, std::int64_t value, Check* check) {
  check->require(value >= 1, name, " = ", value, ": a head dim is 1 to ", kMaxHeadDim);
  check->supported(value <= kMaxHeadDim, name, " = ", value, " is over the limit of ", kMaxHeadDim);
}

inline void check_pass_and_dtype(Pass pass, DType dtype, Check* check) {
  check->require(pass <= Pass::backward, "pass = ", static_cast<int>(pass), " is no Pass");
  check->require(dtype <= DType::boolean, "dtype = ", static_cast<int>(dtype), " is no DType");
  check->require(dtype != DType::boolean, "dtype = boolean: q, k, v are f32, f16 or bf16");
}

}  // namespace falchion
