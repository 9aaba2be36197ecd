// src/judge/norm.hpp: judges what a norm wrote by the definition in double (rule.hpp says how), each row by itself, so
// that rows of large numbers excuse nothing in those of small ones. The naive computation is the textbook's two passes
// in f32, in the order of d, on numbers that are first brought to about 1: squares past the range of f32, on either
// side, excuse nothing either. It may be lucky, so an error also passes that a few roundings of f32 can make: of the
// sum x + residual, of the deviations and of rstd.
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
  /// Of the outputs only the shapes count.
  NormReference(const Norm& problem, const NormOperands& x);

  /// got: the outputs of the problem, anywhere in the host's memory. "": each is right; else what is wrong first.
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
