// src/judge/norm_backward.hpp: judges the gradients of a norm by the definition in double (see rule.hpp): each row of
// grad_x, and what shares the first three indices in grad_weight and grad_bias, separately. The naive computation is
// the textbook's in f32, in the order of d and of the rows, on rows that are first scaled to about 1, as in
// judge/norm.hpp. Its error may be unusually small, so an error also passes that a few roundings of f32 can cause: of
// the magnitudes of the terms of grad_x, and of the sums over rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"

namespace falchion::judge {

class NormBackwardReference {
 public:
  /// x are operands in the host's memory, in the problem's types or f32, which must not change while this object lives.
  /// Of the outputs only the shapes are read.
  NormBackwardReference(const Norm& problem, const NormOperands& x);

  /// got: the outputs of the problem, anywhere in the host's memory. Returns "" if all are right, else the first error.
  std::string check(const NormOperands& got) const;

 private:
  /// The outputs in f32: grad_x, grad_weight, grad_bias.
  struct Result {
    std::vector<float> memory[3];
    NormOperands view;
  };
  Result empty() const;
  bool wants(std::size_t output) const;
  void make_naive();
  /// `output` counts as Result::memory does; `first` is the row's first element.
  std::string check_row(std::size_t output, const Tensor& got, const std::array<std::int64_t, 4>& first) const;

  Norm problem_;
  NormOperands inputs_;
  Result exact_, naive_, granted_;  // granted: for each element
};

}  // namespace falchion::judge
