// src/cpu/blocks/activation.hpp: the activations of a GEMM, for vectors of f32. The relative error of each result is a
// few units of f32, also far below 0, where it is tiny.
#pragma once

#include "cpu/blocks/exp2.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// A number as the sum of two of f32: high is rounded, low is the rounding error. The exponent of a power needs it: an
/// exponent of 100 that is rounded to f32 has an error of 2^-18, which changes the power by 3e-6 of itself.
struct Twice {
  Floats high, low;
};

FALCHION_INLINE Twice product(Floats x, Floats y) {
  const Floats high = hn::Mul(x, y);
#if HWY_TARGET == HWY_SCALAR  // its multiply-add may round twice
  const double exact = static_cast<double>(hn::GetLane(x)) * hn::GetLane(y);
  return {high, splat(static_cast<float>(exact - hn::GetLane(high)))};
#else
  return {high, hn::MulSub(x, y, high)};
#endif
}
FALCHION_INLINE Twice product(Twice x, Floats y) {
  const Twice out = product(x.high, y);
  return {out.high, hn::MulAdd(x.low, y, out.low)};
}
FALCHION_INLINE Twice product(Twice x, Twice y) {
  const Twice out = product(x, y.high);
  return {out.high, hn::MulAdd(x.high, y.low, out.low)};
}
/// Knuth's exact sum of two numbers.
FALCHION_INLINE Twice sum(Twice x, Twice y) {
  const Floats high = hn::Add(x.high, y.high), of_y = hn::Sub(high, x.high);
  const Floats lost = hn::Add(hn::Sub(x.high, hn::Sub(high, of_y)), hn::Sub(y.high, of_y));
  return {high, hn::Add(lost, hn::Add(x.low, y.low))};
}
FALCHION_INLINE Twice constant(double x) {
  const auto high = static_cast<float>(x);
  return {splat(high), splat(static_cast<float>(x - high))};
}

/// 2^-y for y >= 0. 2^(a + b) is 2^a (1 + b ln 2) where b is tiny.
FALCHION_INLINE Floats exp2_minus(Twice y) {
  const Floats e = exp2<6>(hn::Neg(y.high));
  return hn::NegMulAdd(hn::Mul(e, y.low), splat(kLn2), e);
}

/// x / (1 + 2^-y) for x >= 0 and x 2^-y / (1 + 2^-y) below 0, with 2^-y given. A NaN of x stays.
FALCHION_INLINE Floats times_sigmoid(Floats x, Floats e) {
  return hn::Div(hn::Mul(x, hn::IfThenElse(hn::Lt(x, splat(0.f)), e, splat(1.f))), hn::Add(splat(1.f), e));
}

/// min(|x|, most): for larger values 2^-y is 0 in f32.
FALCHION_INLINE Floats size_up_to(Floats x, float most) { return hn::Min(hn::Abs(x), splat(most)); }

/// x sigmoid(x), computed from e^-|x|, which cannot overflow.
FALCHION_INLINE Floats silu(Floats x) {
  return times_sigmoid(x, exp2_minus(product(constant(1.4426950408889634), size_up_to(x, 128.f))));
}

/// The approximation with tanh, as x sigmoid(2u): computed as 1 + tanh it would lose most bits near -3. 2u log2 e is
/// |x| (2.3 + 0.1 x^2).
FALCHION_INLINE Floats gelu_tanh(Floats x) {
  constexpr double kLinear = 2.302208198144325;  // 2 sqrt(2 / pi) log2 e
  const Floats size = size_up_to(x, 12.f);
  const Twice cubic = product(product(size, size), constant(kLinear * 0.044715));
  return times_sigmoid(x, exp2_minus(product(sum(constant(kLinear), cubic), size)));
}

/// x erfc(-x / sqrt 2) / 2. With z = |x| / sqrt 2 and t = 1 / (1 + z / 2), erfc(z) is t P(t) e^(-z^2), where P is the
/// minimax polynomial of degree 8 in relative error up to z = 10.5, beyond which e^(-z^2) is 0 in f32. Its relative
/// error is 4e-8.
FALCHION_INLINE Floats gelu_erf(Floats x) {
  const Floats size = size_up_to(x, 16.f);
  const Floats t = hn::Div(splat(1.f), hn::MulAdd(splat(0.35355339059f), size, splat(1.f)));
  Floats p = hn::MulAdd(splat(-0.05919356644f), t, splat(0.2851839364f));
  p = hn::MulAdd(p, t, splat(-0.488463074f));
  p = hn::MulAdd(p, t, splat(0.2795149684f));
  p = hn::MulAdd(p, t, splat(-0.02762497216f));
  p = hn::MulAdd(p, t, splat(0.203110531f));
  p = hn::MulAdd(p, t, splat(0.2429964691f));
  p = hn::MulAdd(p, t, splat(0.2823900878f));
  p = hn::MulAdd(p, t, splat(0.2820855677f));
  const Floats e = exp2_minus(product(product(size, size), constant(1.4426950408889634 / 2)));
  const Floats half_erfc = hn::Mul(hn::Mul(hn::Mul(p, t), e), splat(0.5f));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, splat(0.f)), half_erfc, hn::Sub(splat(1.f), half_erfc)));
}

/// relu, which keeps NaN.
FALCHION_INLINE Floats relu(Floats x) { return hn::IfThenElse(hn::Lt(x, splat(0.f)), splat(0.f), x); }

}  // namespace falchion::cpu::FALCHION_LEVEL
