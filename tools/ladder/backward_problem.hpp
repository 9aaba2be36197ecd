// tools/ladder/backward_problem.hpp: the problem of the steps of `falchion ladder backward`, and its exact result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "judge/attention_backward.hpp"
#include "ladder/backward/step.hpp"
#include "ladder/ladder.hpp"
#include "ladder/sample.hpp"
#include "problem/backward.hpp"
#include "problem/work.hpp"

namespace falchion::tools {

/// The problem with its tensors, including o and lse of a forward pass, and the exact gradients of a sample: dQ of some
/// rows, and dK and dV of some keys.
class BackwardLadderProblem {
 public:
  BackwardLadderProblem(Side side, const ladder::Problem& problem, std::uint64_t seed);

  const ladder::Problem& sizes() const { return problem_; }
  Side side() const { return side_; }
  DType dtype() const { return side_ == Side::gpu ? DType::bf16 : DType::f32; }
  BackwardProblem attention() const { return {attention_of(problem_, dtype())}; }
  Operands operands() const;  ///< for the library
  ladder::backward::Tensors tensors(void* workspace) const;

  void poison() const;
  /// Checks the current gradients: every element written, the sampled ones by the tolerance rule.
  Verdict check() const;
  std::string what_is_checked() const;

 private:
  /// A sample with its exact gradients. Its rows have the o and lse of all keys, so its keys have exact gradients, too.
  struct Part {
    Sample sample;
    Instance inputs;
    BackwardInputs given;
    std::unique_ptr<judge::GradientReference> reference;
  };
  Part part_of(const Sample& sample, std::uint8_t frozen) const;

  Side side_;
  ladder::Problem problem_;
  Instance inputs_;
  BackwardInputs given_;
  SideMemory q_, k_, v_, o_, grad_o_, lse_, grad_q_, grad_k_, grad_v_;
  Part rows_, keys_;
};

}  // namespace falchion::tools
