// tests/support/norm_backward.hpp: the backward pass of a norm with its memory, and what its results are compared with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "falchion/falchion.hpp"
#include "support/paths.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {

inline constexpr const char* kNormBackward = "norm_backward";

/// What grad_x may be in the place of.
enum class Over { nothing, x, grad_y, grad_residual_out };

/// What the problem leaves open of its tensors.
struct NormGradientCase {
  const char* name;
  std::int64_t b, s, h, d;
  Norm terms{};                          // kind, eps and flags; a type that is not as_q stays
  Layout layout = Layout::dense;         // of x, grad_y, grad_residual_out and grad_x
  Shape weight{1, 1, 1}, bias{1, 1, 1};  // extents that are not 1 are those of x
  DType factors = DType::as_q;           // the type of weight, grad_weight and grad_bias; as_q: as x
  Over over = Over::nothing;
};

/// Inputs are random, and whatever lies between rows is poison, as outputs are.
struct NormGradients {
  Norm problem;
  HostTensor x, weight, grad_y, grad_residual_out, grad_x, grad_weight, grad_bias;
  Over over = Over::nothing;

  NormOperands operands() const;
};
NormGradients make_norm_gradients(const NormGradientCase& row, DType dtype, std::uint64_t seed = 1);
/// The same with inputs of its own memory, for a run in place.
NormGradients copy_of(const NormGradients& x);

/// Plans and runs on one path; on a GPU on copies of the whole allocations.
Status run(const Target& target, const NormGradients& x);
Status run(const Plan& plan, const NormGradients& x);

/// Checks that the elements of the outputs were written and no others, and that they are right by the rule of
/// src/judge. `fresh` is the same instance before the run: where an output is the memory of an input, that input is
/// read there.
::testing::AssertionResult matches(const NormGradients& x, const NormGradients& fresh);

}  // namespace falchion::testing
