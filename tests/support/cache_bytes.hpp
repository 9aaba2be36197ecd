// tests/support/cache_bytes.hpp: an instance whose K and V are an 8-bit cache: those of another one, divided by scales
// and rounded.
#pragma once

#include <cstdint>

#include "support/instance.hpp"

namespace falchion::testing {

/// Who shares a scale. no: there are none.
enum class Scales : std::uint8_t { no, tensor, head, page, key };
inline constexpr Scales kAllScales[] = {Scales::no, Scales::tensor, Scales::head, Scales::page, Scales::key};
const char* name(Scales x);

/// The instance, a cache in rows or in pages, with K and V in 8 bits. Where a slot is NaN it is one in e4m3, and -128
/// in i8, and its scale is NaN where a key has its own.
Instance in_bytes(const Instance& x, DType dtype, Scales scales);

/// The instance with K and V in the type of its q again: numbers times their scales. Scales and e4m3 are such that f32
/// holds the products.
Instance out_of_bytes(const Instance& x);

}  // namespace falchion::testing
