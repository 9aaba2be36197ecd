// src/policy/cache_bytes.hpp: the numbers of an 8-bit cache, e4m3 or i8. A number of K stands for itself times K's
// scale at its key and head, one of V for itself times V's. This is the definition; every path asks it.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"
#include "policy/dtype.hpp"

namespace falchion {

/// A number of a new key, as the cache keeps it: divided by the scale of its slot in f32, and rounded once, to nearest
/// even. Beyond 448 it is 448, an Inf becomes NaN as in every conversion to e4m3, and a NaN stays one.
FALCHION_HD std::uint8_t cached_e4m3(float x, float scale) { return e4m3_from_f32(x / scale); }
/// The same in i8, whose range is used whole, -128 to 127, as Gemm's outputs use it: the kernels multiply signed bytes,
/// to which -128 is a number like others. A NaN becomes 0, since i8 has none.
FALCHION_HD std::int8_t cached_i8(float x, float scale) { return i8_from_f32(x / scale); }

}  // namespace falchion
