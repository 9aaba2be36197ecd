// src/layout/checked.hpp: arithmetic of 64-bit integers that throws an Error where it would overflow.
#pragma once

#include <cstdint>
#include <string>

#include "layout/int_tuple.hpp"

namespace falchion::layout {

[[noreturn]] inline void overflow(const char* op, std::int64_t a, std::int64_t b) {
  throw Error(std::to_string(a) + " " + op + " " + std::to_string(b) + " does not fit into 64 bits");
}

inline std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) overflow("+", a, b);
  return out;
}

inline std::int64_t subtract(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_sub_overflow(a, b, &out)) overflow("-", a, b);
  return out;
}

inline std::int64_t multiply(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) overflow("*", a, b);
  return out;
}

}  // namespace falchion::layout
