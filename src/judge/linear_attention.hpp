// src/judge/linear_attention.hpp: what results of linear attention are held against: the recurrence in double. The rule
// (docs/contract.md): the RMS of the error over the RMS of the exact values is at most a number for each type and
// output, and no element is off by more than ten times that. What must be Inf or NaN must not be finite, and the other
// way round. Where sums cancel, the limit is twice what the definition moves by when its inputs are nudged by the
// roundings that these types are granted.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/rule.hpp"

namespace falchion::judge {

/// o, final_state, final_z of the forward pass; the others of the backward pass.
enum class LinearOutput : std::uint8_t {
  o,
  final_state,
  final_z,
  grad_q,
  grad_k,
  grad_v,
  grad_decay,
  grad_initial_state,
  grad_initial_z
};
inline constexpr std::size_t kLinearOutputs = 9;
const char* name(LinearOutput which);
Tensor& tensor_of(LinearOutput which, LinearOperands* x);

/// RMS of the error over RMS of the exact values, at most.
double linear_limit(DType dtype, Decay decay, LinearOutput which);

/// What one tensor's comparison found.
struct LinearReport {
  double error = 0;   // RMS of the error over RMS of the exact values
  double limit = 0;   // of error
  std::string why{};  // empty when it passed
  bool passed() const { return why.empty(); }
};

class LinearReference {
 public:
  /// x: operands of the host. Their inputs stay as they are while this lives; of their outputs only the shapes count.
  LinearReference(const LinearAttention& problem, Pass pass, const LinearOperands& x);

  bool has(LinearOutput which) const;
  /// Token `row` belongs to a sequence: packed rows behind the last length do not.
  bool is_row(std::int64_t row) const { return row < tokens_; }
  /// Does axis 1 of this output count tokens?
  bool by_token(LinearOutput which) const;
  LinearReport check(LinearOutput which, const Tensor& got) const;
  const Tensor& exact(LinearOutput which) const { return exact_.views[static_cast<std::size_t>(which)]; }

 private:
  struct Outputs {
    std::array<std::vector<float>, kLinearOutputs> memory;
    std::array<Tensor, kLinearOutputs> views{};
  };
  struct Moved {
    double rms = 0, largest = 0;
  };

  void compute(const LinearAttention& problem, const LinearOperands& inputs, Outputs* out) const;
  double typical_divisor() const;
  double error_of_all_tokens() const;
  void nudge() const;
  bool v_may_reach(LinearOutput which, const std::array<std::int64_t, 4>& at) const;
  template <class F>
  void each(LinearOutput which, const Tensor& got, const F& f) const;

  LinearAttention problem_;
  Pass pass_;
  LinearOperands inputs_;
  std::int64_t tokens_ = 0;
  Outputs exact_;
  mutable std::array<Moved, kLinearOutputs> moved_{};  // by nudging; computed once, when first asked for
  mutable bool nudged_ = false;
};

}  // namespace falchion::judge
