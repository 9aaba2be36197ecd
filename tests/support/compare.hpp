// tests/support/compare.hpp: the tolerance rule. First NaN and Inf must be in the same places; then the error against
// double is at most twice that of the naive computation in the same types, plus one unit of the output type.
#pragma once

#include <gtest/gtest.h>

#include "support/instance.hpp"

namespace falchion::testing {

/// What a result is held against.
struct Reference {
  Instance exact;  // the definition in double; o in f32
  Instance naive;  // f32 arithmetic, P and O rounded to the problem's type
  explicit Reference(const Instance& x);
};

/// Checks every output of x: each row of each sequence written and within the rule, everything else untouched.
::testing::AssertionResult matches(const Instance& x, const Reference& reference);

/// True where a NaN in o[b, i, h, d] is allowed whatever the definition says: x ran on a tensor-core path, and that
/// column of V holds a NaN or Inf in some key while x hides keys (Instance::shares_tiles cites the rule).
bool masked_v_may_reach(const Instance& x, const Shape& index);

/// Distance of neighbouring numbers of the type at this magnitude.
double unit_at(DType dtype, double magnitude);

}  // namespace falchion::testing
