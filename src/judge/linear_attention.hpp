// src/judge/linear_attention.hpp: judges results of linear attention by the recurrence in double. The rule is that of
// docs/contract.md: the RMS of the error, divided by the RMS of the exact values, is at most a number for each type and
// output, and no element has an error of more than ten times that. Inf and NaN must be where the recurrence has them.
// Where sums cancel, an error also passes if any computation may have it, which follows from the definition
// (linear_granted.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/rule.hpp"
#include "ref/elements.hpp"

namespace falchion::judge {

/// o, final_state and final_z are outputs of the forward pass, the others of the backward pass.
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

/// The limit of the RMS of the error, divided by the RMS of the exact values.
double linear_limit(DType dtype, Decay decay, LinearOutput which);

/// The result of the comparison of one tensor.
struct LinearReport {
  double error = 0;   // RMS of the error, divided by the RMS of the exact values
  double limit = 0;   // the largest error that passes
  std::string why{};  // empty when it passed
  bool passed() const { return why.empty(); }
};

/// Whether the definition is computed, or the given outputs already hold its result, in f32.
enum class Exact : std::uint8_t { wanted, given };

class LinearReference {
 public:
  using Index = std::array<std::int64_t, 4>;

  /// x are operands in the host's memory. Their inputs must not change while this object lives; of their outputs only
  /// the shapes are read, except with Exact::given.
  LinearReference(const LinearAttention& problem, Pass pass, const LinearOperands& x, Exact exact = Exact::wanted);

  bool has(LinearOutput which) const;
  /// Whether token `row` belongs to a sequence. Packed rows behind the last sequence do not.
  bool is_row(std::int64_t row) const { return row < tokens_; }
  /// Whether axis 1 of this output counts tokens.
  bool by_token(LinearOutput which) const;
  /// Checks one output. chunks: the kernel processes tokens in chunks, so that NaN and Inf of v may reach earlier
  /// tokens.
  LinearReport check(LinearOutput which, const Tensor& got, bool chunks) const;
  const Tensor& exact(LinearOutput which) const { return exact_.views[static_cast<std::size_t>(which)]; }

 private:
  struct Outputs {
    std::array<std::vector<float>, kLinearOutputs> memory;
    std::array<Tensor, kLinearOutputs> views{};
  };
  /// Errors of this size pass, whatever the values are.
  struct Granted {
    double rms = 0, largest = 0;
    void include(double of_rms, double of_largest) {
      rms = std::max(rms, of_rms);
      largest = std::max(largest, of_largest);
    }
  };

  void take(const LinearOperands& given);
  void compute(const LinearAttention& problem, const LinearOperands& inputs, Outputs* out,
               double* decay_terms = nullptr) const;
  bool may_share_chunk(std::int64_t row, std::int64_t j) const;
  bool v_may_reach(const Index& at) const;
  bool has_infinities() const;
  bool excused(LinearOutput which, double value, double wanted, const Index& at, bool chunks) const;

  // In linear_granted.cpp: the errors that any computation in these types is granted.
  double typical_divisor() const;
  struct DecaySums {
    std::vector<float> gradients;
    std::vector<double> terms;
  };
  DecaySums decay_sums() const;
  double error_of_decay() const;
  void grant_what_fades() const;
  void add_movement(const Outputs& moved) const;
  void nudge() const;
  Granted granted(LinearOutput which) const;

  /// Calls f(value, wanted, place in the dense tensors, index) for each element that must be written.
  template <class F>
  void each(LinearOutput which, const Tensor& got, const F& f) const;

  LinearAttention problem_;
  Pass pass_;
  LinearOperands inputs_;
  std::int64_t tokens_ = 0;
  Outputs exact_;
  mutable std::array<Granted, kLinearOutputs> granted_{};  // computed once, when first needed
  mutable bool nudged_ = false;
};

template <class F>
void LinearReference::each(LinearOutput which, const Tensor& got, const F& f) const {
  const Tensor& exact = this->exact(which);
  const bool tokens = by_token(which);
  if (problem_.b == 0) return;  // then nothing is written, not even the gradient of a decay by head
  for (std::int64_t i = 0; i < got.shape[0]; ++i)
    for (std::int64_t j = 0; j < got.shape[1]; ++j) {
      if (tokens && !is_row(j)) continue;
      for (std::int64_t k = 0; k < got.shape[2]; ++k)
        for (std::int64_t l = 0; l < got.shape[3]; ++l) {
          const std::int64_t at = ref::at(exact, i, j, k, l);
          f(ref::load(got, ref::at(got, i, j, k, l)), ref::load(exact, at), at, Index{i, j, k, l});
        }
    }
}

}  // namespace falchion::judge
