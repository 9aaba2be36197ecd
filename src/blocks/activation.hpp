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

/// x erfc(-x / sqrt 2) / 2. With z = |x| / sqrt 2 and t = 1 / (1 + z / 2), erfc(z) is t P(t) e^(-z^2), where P is the
/// minimax polynomial of degree 8 in relative error up to z = 10.5, beyond which e^(-z^2) is 0 in f32. It is off by
/// 4e-8 of itself, by 1.6e-7 in f32, also where x is far below 0 and the result is tiny.
FALCHION_INLINE Floats gelu_erf(Floats x) {
  const Floats z = hn::Mul(hn::Abs(x), splat(0.70710678119f));
  const Floats t = hn::Div(splat(1.f), hn::MulAdd(splat(0.5f), z, splat(1.f)));
  Floats p = hn::MulAdd(splat(-0.05919356644f), t, splat(0.2851839364f));
  p = hn::MulAdd(p, t, splat(-0.488463074f));
  p = hn::MulAdd(p, t, splat(0.2795149684f));
  p = hn::MulAdd(p, t, splat(-0.02762497216f));
  p = hn::MulAdd(p, t, splat(0.203110531f));
  p = hn::MulAdd(p, t, splat(0.2429964691f));
  p = hn::MulAdd(p, t, splat(0.2823900878f));
  p = hn::MulAdd(p, t, splat(0.2820855677f));
  const Floats e = exp2<6>(hn::Mul(hn::Mul(z, z), splat(-kLog2e)));
  const Floats half_erfc = hn::Mul(hn::Mul(hn::Mul(p, t), e), splat(0.5f));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, splat(0.f)), half_erfc, hn::Sub(splat(1.f), half_erfc)));
}

/// NaN stays NaN.
FALCHION_INLINE Floats relu(Floats x) { return hn::IfThenElse(hn::Lt(x, splat(0.f)), splat(0.f), x); }

}  // namespace falchion::cpu::FALCHION_LEVEL
