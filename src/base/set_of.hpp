// src/base/set_of.hpp: a set of the values of an enum, a bit each.
#pragma once

#include <cstdint>

namespace falchion {

/// A set of values of an enum that has at most 64 of them, counted from 0.
template <class Value>
class SetOf {
 public:
  constexpr SetOf() = default;
  constexpr SetOf(Value x) : bits_(std::uint64_t{1} << static_cast<int>(x)) {}  // NOLINT: a value is a set
  constexpr SetOf operator|(SetOf x) const { return SetOf(bits_ | x.bits_); }
  constexpr SetOf operator&(SetOf x) const { return SetOf(bits_ & x.bits_); }
  constexpr SetOf operator-(SetOf x) const { return SetOf(bits_ & ~x.bits_); }
  constexpr bool has(Value x) const { return (bits_ & SetOf(x).bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  /// Adds a value if there is reason to.
  constexpr void add_if(bool reason, Value x) {
    if (reason) bits_ |= SetOf(x).bits_;
  }
  /// The first of a set that is not empty.
  constexpr Value first() const {
    int x = 0;
    while (!has(static_cast<Value>(x))) ++x;
    return static_cast<Value>(x);
  }
  constexpr bool operator==(const SetOf&) const = default;

 private:
  constexpr explicit SetOf(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_ = 0;
};

}  // namespace falchion
