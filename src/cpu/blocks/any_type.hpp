// src/cpu/blocks/any_type.hpp: element types that a kernel learns only when it runs: those of q, k and v, where k has 8
// bits. Code that reads a row asks for its type once, so that one kernel serves all mixtures of types.
#pragma once

#include <type_traits>

#include "args/number.hpp"
#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Stands for such a type: e4m3, i8, or the type of o.
struct Any {};

/// f(an object of the element type): Known, unless that is Any; then the one that x names, T if it has no 8 bits.
template <class T, class Known, class F>
FALCHION_INLINE void with_type(Number x, const F& f) {
  if constexpr (!std::is_same_v<Known, Any>) {
    f(Known{});
  } else if (x == Number::e4m3) {
    f(e4m3{});
  } else if (x == Number::i8) {
    f(i8{});
  } else {
    f(T{});
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL
