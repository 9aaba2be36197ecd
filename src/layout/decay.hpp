// src/layout/decay.hpp: a swizzled tensor that is sliced: where what remains does not meet the swizzle, CuTe makes a
// plain layout of it.
#pragma once

#include "layout/atoms.hpp"

namespace falchion::layout {

/// tensor: whole; consumed: the modes of its layout whose coordinate was given while a kernel runs; slice: what is
/// left.
Partition decayed(const Composed& tensor, const Layout& consumed, const Slice& slice);

}  // namespace falchion::layout
