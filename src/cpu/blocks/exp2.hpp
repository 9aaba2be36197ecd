// src/cpu/blocks/exp2.hpp: 2^y and tanh for vectors of f32, with the accuracy that the element type needs.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

// These are minimax polynomials for 2^f in relative error (Remez), which are exactly 1 at 0. Their largest errors on
// [0, 1) are 8.6e-5 (degree 3), 2.9e-6 (4), 8.2e-8 (5) and 2.0e-9 (6). P is rounded to 2^-9 for bf16 and to 2^-11 for
// f16, so with degrees 3 and 4 there is no visible difference in O; the LSE of bf16 is exact to 1e-4.
template <int kDegree>
FALCHION_INLINE Floats exp2_on_unit_interval(Floats f) {
  static_assert(kDegree >= 3 && kDegree <= 6);
  Floats p;
  if constexpr (kDegree == 3) {
    p = hn::MulAdd(splat(0.07706704199f), f, splat(0.2276449912f));
    p = hn::MulAdd(p, f, splat(0.6951167864f));
  } else if constexpr (kDegree == 4) {
    p = hn::MulAdd(splat(0.01342668427f), f, splat(0.05224247422f));
    p = hn::MulAdd(p, f, splat(0.2412802048f));
    p = hn::MulAdd(p, f, splat(0.6930448449f));
  } else if constexpr (kDegree == 5) {
    p = hn::MulAdd(splat(0.00186713007f), f, splat(0.009017030323f));
    p = hn::MulAdd(p, f, splat(0.0557999131f));
    p = hn::MulAdd(p, f, splat(0.2401644502f));
    p = hn::MulAdd(p, f, splat(0.6931513118f));
  } else {
    p = hn::MulAdd(splat(0.0002161291495f), f, splat(0.001246784645f));
    p = hn::MulAdd(p, f, splat(0.009675451567f));
    p = hn::MulAdd(p, f, splat(0.05548528062f));
    p = hn::MulAdd(p, f, splat(0.2402293056f));
    p = hn::MulAdd(p, f, splat(0.6931470444f));
  }
  return hn::MulAdd(p, f, splat(1.f));
}

/// 2^y. -inf gives 0, NaN stays NaN, and for y below -126 the result may be too small, down to 0.
template <int kDegree>
FALCHION_INLINE Floats exp2(Floats y) {
#if FALCHION_AVX512
  // vreduceps gives y - floor(y), and vscalefps multiplies by 2^floor(y). So -inf, NaN and underflow are correct
  // without a clamp, and the whole takes kDegree + 2 instructions.
  const Floats f{_mm512_reduce_ps(y.raw, _MM_FROUND_TO_NEG_INF)};
  return Floats{_mm512_scalef_ps(exp2_on_unit_interval<kDegree>(f).raw, y.raw)};
#else
  // Adding 1.5 * 2^23 rounds y to an integer in the low bits of the sum. These bits are shifted to the exponent field
  // and so scale the polynomial. At y = -127 the polynomial is exactly 1, and scaled by 2^-127 its bits are those of 0.
  // So a masked score (-inf) gives a true 0.
  const Floats magic = splat(12582912.f), clamped = hn::Max(splat(-127.f), y);
  const Floats shifted = hn::Add(clamped, magic);
  const Floats f = hn::Sub(clamped, hn::Sub(shifted, magic));  // [-0.5, 0.5]
  Floats p;
  if constexpr (kDegree <= 4) {  // largest error 3.6e-6, exactly 1 at 0
    p = hn::MulAdd(splat(0.009782912562f), f, splat(0.05597688363f));
    p = hn::MulAdd(p, f, splat(0.2402071108f));
    p = hn::MulAdd(p, f, splat(0.6931136044f));
  } else {  // largest error 2.6e-9
    p = hn::MulAdd(splat(0.0001559467753f), f, splat(0.00134066439f));
    p = hn::MulAdd(p, f, splat(0.009617692975f));
    p = hn::MulAdd(p, f, splat(0.05550310551f));
    p = hn::MulAdd(p, f, splat(0.2402265278f));
    p = hn::MulAdd(p, f, splat(0.693147215f));
  }
  p = hn::MulAdd(p, f, splat(1.f));
  const Int32s exponent = hn::ShiftLeft<23>(hn::BitCast(Int32Tag(), shifted));
  const Floats scaled = hn::BitCast(kFloats, hn::Add(hn::BitCast(Int32Tag(), p), exponent));
  return hn::IfThenElse(hn::Eq(y, y), scaled, y);  // a NaN whose bits are shifted may become a number
#endif
}

/// tanh(x) to 2 ulp. Near 0 it is an odd polynomial (Cephes tanhf), beyond that 1 - 2 / (e^2x + 1).
FALCHION_INLINE Floats tanh(Floats x) {
  const Floats size = hn::Min(hn::Abs(x), splat(40.f)), z = hn::Mul(x, x);
  Floats p = hn::MulAdd(splat(-5.70498872745e-3f), z, splat(2.06390887954e-2f));
  p = hn::MulAdd(p, z, splat(-5.37397155531e-2f));
  p = hn::MulAdd(p, z, splat(1.33314422036e-1f));
  p = hn::MulAdd(p, z, splat(-3.33332819422e-1f));
  const Floats small = hn::MulAdd(hn::Mul(p, z), x, x);
  const Floats e = exp2<5>(hn::Mul(size, splat(2 * kLog2e)));
  const Floats large = hn::CopySign(hn::Sub(splat(1.f), hn::Div(splat(2.f), hn::Add(e, splat(1.f)))), x);
  const Floats y = hn::IfThenElse(hn::Lt(size, splat(0.625f)), small, large);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

}  // namespace falchion::cpu::FALCHION_LEVEL
