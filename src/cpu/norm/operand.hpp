// src/cpu/norm/operand.hpp: operands of a norm whose types are known at run time, as rows of f32.
#pragma once

#include "args/cpu_norm_args.hpp"
#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/elements.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Calls f with an element type of this level.
template <class F>
FALCHION_INLINE void with_type(Number type, const F& f) {
  switch (type) {
    case Number::f32: return f(f32{});
    case Number::f16: return f(f16{});
    case Number::bf16: return f(bf16{});
    case Number::e4m3:
    case Number::i8: return;  // no norm has 8 bits
  }
}

/// A part of a row of an input. A part that is requested again, like that of a weight for each row, is kept.
class NormInput {
 public:
  NormInput(const View& x, Number type, std::int64_t part, Arena& arena)
      : x_(x), type_(type), numbers_(arena.take<float>(round_up(part, kLanes))) {}

  bool is_there() const { return x_.data != nullptr; }
  const float* numbers() const { return numbers_; }
  void forget() { count_ = -1; }

  void fetch(const NormPlace& place, std::int64_t first, std::int64_t count) {
    const std::int64_t at = place.in(x_) + first * x_.stride[3];
    if (!is_there() || (at == at_ && count <= count_)) return;
    at_ = at;
    count_ = count;
    with_type(type_, [&](auto from) {
      using From = decltype(from);
      convert_row<From>(static_cast<const typename From::Bits*>(x_.data) + at, x_.stride[3], count, numbers_);
    });
  }

 private:
  const View x_;
  const Number type_;
  float* numbers_;
  std::int64_t at_ = 0, count_ = -1;  // what is held
};

/// Stores f32 numbers to a part of a row of an output, if there is one.
inline void store_part(const View& x, Number type, const NormPlace& place, std::int64_t first, std::int64_t count,
                       const float* numbers) {
  if (x.data == nullptr) return;
  with_type(type, [&](auto to) {
    using To = decltype(to);
    auto* out = static_cast<typename To::Bits*>(x.data) + place.in(x) + first * x.stride[3];
    if (x.stride[3] == 1) return store_row<To>(out, numbers, 1.f, count);
    for (std::int64_t c = 0; c < count; ++c) out[c * x.stride[3]] = To::from_float(numbers[c]);
  });
}

}  // namespace falchion::cpu::FALCHION_LEVEL
