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

/// Distance of neighbouring numbers of the type at this magnitude.
double unit_at(DType dtype, double magnitude);

}  // namespace falchion::testing
