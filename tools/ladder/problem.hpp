// tools/ladder/problem.hpp: the problem of the steps of `falchion ladder attention`, and its exact result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ladder/attention/step.hpp"
#include "ladder/ladder.hpp"
#include "ladder/sample.hpp"
#include "problem/errors.hpp"

namespace falchion::tools {

/// The problem with its tensors, and the exact result of a sample of its rows.
class LadderProblem {
 public:
  /// eight_bits: all numbers are of e4m3, in the memory of dtype(), and the result is judged as that of 8 bits.
  LadderProblem(Side side, const ladder::Problem& problem, std::uint64_t seed, bool eight_bits = false);

  const ladder::Problem& sizes() const { return problem_; }
  Side side() const { return side_; }
  DType dtype() const { return side_ == Side::gpu ? DType::bf16 : DType::f32; }
  Attention attention() const { return attention_of(problem_, dtype()); }
  Operands operands() const;  ///< for the library
  ladder::Tensors tensors(void* workspace) const;

  void poison() const { o_.poison(); }
  /// Checks the current O: every element written, the sampled rows by the tolerance rule.
  ErrorReport check() const;
  std::string what_is_checked() const;

 private:
  Side side_;
  ladder::Problem problem_;
  HostTensor host_q_, host_k_, host_v_;
  SideMemory q_, k_, v_, o_;
  Sample sample_;
  Instance sampled_;
  std::unique_ptr<Reference> reference_;
};

}  // namespace falchion::tools
