// src/judge/norm_backward.hpp: judges the gradients of a norm by the definition in double (see rule.hpp): each row of
// grad_x, and what shares the first three indices in grad_weight and grad_bias, separately. The naive computation is
// the textbook's in f32, in the order of d and of the rows, on rows that are first scaled to about 1, as in
// judge/norm.hpp. Its error may be unusually small, so an error also passes that a few roundings of f32 can cause: of
// the magnitudes of the terms of grad_x, and of the sums over rows.
#pragma once

#include "judge/norm_rows.hpp"

namespace falchion::judge {

class NormBackwardReference : public NormRowsReference {
 public:
  /// x are operands in the host's memory, in the problem's types or f32, which must not change while this object lives.
  /// Of the outputs only the shapes are read.
  NormBackwardReference(const Norm& problem, const NormOperands& x);

 private:
  void make_naive();
};

}  // namespace falchion::judge
