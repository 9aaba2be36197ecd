// src/judge/norm.hpp: judges the outputs of a norm by the definition in double (see rule.hpp), each row separately, so
// that rows of large numbers excuse no errors in rows of small ones. The naive computation is the textbook's two passes
// in f32, in the order of d, on numbers that are first scaled to about 1, so that it has no overflow or underflow of
// squares that would excuse others. Its error may be unusually small, so an error also passes that a few roundings of
// f32 can cause: of the sum x + residual, of the deviations and of rstd.
#pragma once

#include "judge/norm_rows.hpp"

namespace falchion::judge {

class NormReference : public NormRowsReference {
 public:
  /// x are operands in the host's memory, in the problem's types or f32, which must not change while this object lives.
  /// Of the outputs only the shapes are read.
  NormReference(const Norm& problem, const NormOperands& x);

 private:
  void make_naive();
};

}  // namespace falchion::judge
