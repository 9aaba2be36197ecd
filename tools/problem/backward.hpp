// tools/problem/backward.hpp: the inputs and outputs of attention's backward pass besides the inputs of the forward
// pass, and their check.
#pragma once

#include <array>
#include <cstdint>

#include "judge/attention_backward.hpp"
#include "problem/errors.hpp"
#include "problem/instance.hpp"

namespace falchion::tools {

/// o, lse, grad_o and grad_lse.
struct BackwardInputs : OperandTensors {};

/// o and lse of the forward pass, computed by the best path of this machine.
void make_state(const Instance& instance, Layout layout, BackwardInputs* out);
/// The forward operands plus a random grad_o, and a random grad_lse where the problem has one.
BackwardInputs make_backward_inputs(const Instance& instance, std::uint64_t seed, Layout layout = Layout::bshd);

/// The outputs of one run, in the order of judge::Gradient; a gradient that is not requested is empty. All are filled
/// with NaN before the run, or with 0 if the run accumulates. grad_bias has the extents of the bias; grad_alibi
/// and grad_sinks are summed over b.
struct GradientOutputs {
  std::array<HostTensor, judge::kGradients> all;

  explicit GradientOutputs(const Instance& instance, Layout layout = Layout::bshd);
  void attach(Operands* operands) const;
  void clear() const;  ///< fills with zeros instead, for files, since a run leaves rows of no sequence as they are
};

/// The exact gradients of an instance.
class BackwardReference {
 public:
  BackwardReference(const Instance& instance, const BackwardInputs& inputs);
  /// Runs one path and checks each gradient.
  Verdict verify(const Target& target) const;

 private:
  Operands operands() const;
  const Instance& instance_;
  const BackwardInputs& inputs_;
  judge::GradientReference judge_;
};

}  // namespace falchion::tools
