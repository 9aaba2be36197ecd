// tests/support/norm.hpp: a norm with its memory, and what its results are compared with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "falchion/falchion.hpp"
#include "support/paths.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {

inline constexpr const char* kNorm = "norm";

/// What the problem leaves open of its tensors.
struct NormCase {
  const char* name;
  std::int64_t b, s, h, d;
  Norm terms{};                          // kind, eps and flags; a type that is not as_q stays
  Layout layout = Layout::dense;         // of x, residual, y and residual_out
  Shape weight{1, 1, 1}, bias{1, 1, 1};  // extents that are not 1 are those of x
  DType factors = DType::as_q;           // the type of weight and bias; as_q: as x
  bool in_place = false;                 // y is x's memory, and residual_out the residual's
};

/// Inputs are random, and whatever lies between rows is poison, as outputs are.
struct NormInstance {
  Norm problem;
  HostTensor x, residual, weight, bias, y, residual_out, mean, rstd;
  bool in_place = false;

  NormOperands operands() const;
};
NormInstance make_norm_instance(const NormCase& row, DType dtype, std::uint64_t seed = 1);
/// The same with inputs of its own memory, for a run in place.
NormInstance copy_of(const NormInstance& x);

/// Plans and runs on one path; on a GPU on copies of the whole allocations.
Status run(const Target& target, const NormInstance& x);
Status run(const Plan& plan, const NormInstance& x);

/// Checks that the elements of the outputs were written and no others, and that they are right by the rule of
/// src/judge. `fresh` is the same instance before the run: where an output is the memory of an input, that input is
/// read there.
::testing::AssertionResult matches(const NormInstance& x, const NormInstance& fresh);

}  // namespace falchion::testing
