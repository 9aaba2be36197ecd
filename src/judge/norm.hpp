// src/judge/norm.hpp: judges the outputs of a norm by the definition in double (see rule.hpp), each row separately, so
// that rows of large numbers excuse no errors in rows of small ones. The naive computation is the textbook's two passes
// in f32, in the order of d, on numbers that are first scaled to about 1, so that it has no overflow or underflow of
// squares that would excuse others. Its error may be unusually small, so an error also passes that a few roundings of
// f32 can cause: of the sum x + residual, of the deviations and of rstd.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"

namespace falchion::judge {

class NormReference {
 public:
  /// x are operands in the host's memory, in the problem's types or f32, which must not change while this object lives.
  /// Of the outputs only the shapes are read.
  NormReference(const Norm& problem, const NormOperands& x);

  /// got: the outputs of the problem, anywhere in the host's memory. Returns "" if all are right, else the first error.
  std::string check(const NormOperands& got) const;

 private:
  /// The outputs in f32: y, residual_out, mean, rstd.
  struct Result {
    std::vector<float> memory[4];
    NormOperands view;
  };
  Result empty() const;
  void make_naive();
  /// `output` counts as Result::memory does; `first` is the row's first element.
  std::string check_row(std::size_t output, const Tensor& got, const std::array<std::int64_t, 4>& first) const;

  Norm problem_;
  NormOperands inputs_;
  Result exact_, naive_, granted_;  // granted: for each element
};

}  // namespace falchion::judge
