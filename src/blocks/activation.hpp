// src/blocks/activation.hpp: what follows the sums of a GEMM, for vectors of f32.
#pragma once

#include "blocks/exp2.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// 1 / (1 + e^-x) with e^-|x| alone, which cannot overflow. NaN stays NaN.
FALCHION_INLINE Floats sigmoid(Floats x) {
  const Floats e = exp2<6>(hn::Mul(hn::Abs(x), splat(-kLog2e)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, splat(0.f)), e, splat(1.f)), hn::Add(splat(1.f), e));
}

FALCHION_INLINE Floats silu(Floats x) { return hn::Mul(x, sigmoid(x)); }

/// The approximation with tanh, as x sigmoid(2u): near -3, 1 + tanh would leave few bits.
FALCHION_INLINE Floats gelu_tanh(Floats x) {
  const Floats cubic = hn::MulAdd(hn::Mul(x, x), splat(0.044715f), splat(1.f));
  return hn::Mul(x, sigmoid(hn::Mul(hn::Mul(x, cubic), splat(1.5957691216f))));
}

/// x erfc(-x / sqrt 2) / 2. erfc of |x| / sqrt 2 is a polynomial times e^(-x^2 / 2) (Abramowitz and Stegun 7.1.26, off
/// by 1.5e-7), so that it keeps its digits where x is far below 0.
FALCHION_INLINE Floats gelu_erf(Floats x) {
  const Floats size = hn::Mul(hn::Abs(x), splat(0.70710678119f));
  const Floats t = hn::Div(splat(1.f), hn::MulAdd(splat(0.3275911f), size, splat(1.f)));
  Floats p = hn::MulAdd(splat(1.061405429f), t, splat(-1.453152027f));
  p = hn::MulAdd(p, t, splat(1.421413741f));
  p = hn::MulAdd(p, t, splat(-0.284496736f));
  p = hn::MulAdd(p, t, splat(0.254829592f));
  const Floats e = exp2<6>(hn::Mul(hn::Mul(size, size), splat(-kLog2e)));
  const Floats half_erfc = hn::Mul(hn::Mul(hn::Mul(p, t), e), splat(0.5f));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, splat(0.f)), half_erfc, hn::Sub(splat(1.f), half_erfc)));
}

/// NaN stays NaN.
FALCHION_INLINE Floats relu(Floats x) { return hn::IfThenElse(hn::Lt(x, splat(0.f)), splat(0.f), x); }

}  // namespace falchion::cpu::FALCHION_LEVEL
