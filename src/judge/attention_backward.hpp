// src/judge/attention_backward.hpp: judges gradients of attention. They are compared with the definition in double and
// with the naive computation in the problem's own types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/rule.hpp"
#include "ref/attention_backward.hpp"

namespace falchion::judge {

enum class Gradient : std::uint8_t { q, k, v, bias, alibi, sinks };
inline constexpr std::size_t kGradients = 6;
inline constexpr const char* kGradientNames[kGradients] = {"grad_q",    "grad_k",     "grad_v",
                                                           "grad_bias", "grad_alibi", "grad_sinks"};

/// Whether NaN or Inf of a masked pair may reach this element on tensor cores, as 0 times itself: a number of k in
/// grad_q, of q in grad_k, of grad_o in grad_v, each in its own column. A dropped pair does not contribute to grad_v,
/// and a row whose lse is -inf sees no key.
bool unseen_may_reach(const Attention& problem, const Operands& x, Gradient which,
                      const std::array<std::int64_t, 4>& at);

class GradientReference {
 public:
  /// x are operands in the host's memory, with o and lse. Its inputs must not change while this object lives. Of
  /// its outputs only the shapes are read and, with Grads::accumulate, their current contents.
  GradientReference(const Attention& problem, const Operands& x);

  bool has(Gradient which) const;
  /// Whether a row of grad_q, or one of grad_k and grad_v, belongs to a sequence, so that it is written. When packed,
  /// batch is 0. Each element of the other gradients is written.
  bool is_row(Gradient which, std::int64_t batch, std::int64_t row) const;
  /// Checks one gradient, without the rows outside of all sequences, unless they must be 0 (zero_unused). shares_tiles:
  /// the result is from tensor cores, where NaN or Inf in a masked pair may reach its column (docs/contract.md, "NaN,
  /// Inf in a pair that does not see each other").
  ErrorReport check(Gradient which, const Tensor& got, bool shares_tiles = false) const;
  /// The definition's result, dense and in f32.
  const Tensor& exact(Gradient which) const { return exact_.of(which); }

 private:
  /// The outputs of one computation, dense and in f32.
  struct Outputs {
    std::array<std::vector<float>, kGradients> memory;
    std::array<Tensor, kGradients> views{};
    Outputs() = default;
    Outputs(const Attention& problem, const Operands& x);
    const Tensor& of(Gradient which) const { return views[static_cast<std::size_t>(which)]; }
    void attach(Operands* x) const;
  };

  Outputs compute(const Attention& problem, Operands x, const ref::Rounding& rounding) const;
  void nudge() const;
  bool inf_may_vanish(Gradient which, const std::array<std::int64_t, 4>& at) const;
  bool ds_may_overflow(Gradient which, const std::array<std::int64_t, 4>& at) const;
  static bool is_nan_in(const Outputs& outputs, Gradient which, const std::array<std::int64_t, 4>& at);
  DType type_of(Gradient which) const;

  Attention problem_;
  Operands inputs_;
  Outputs before_;  // the old contents, if gradients are accumulated
  Outputs exact_, naive_;
  mutable Outputs overflowing_;  // the definition with NaN for a dS past f16; computed when first needed
  mutable Outputs vanishing_;    // the definition without probabilities that are too small; computed when first needed
  std::vector<std::uint8_t> rows_, keys_;
  mutable std::array<double, kGradients> moved_{};  // how far nudging moves each; computed once, when first needed
  mutable bool nudged_ = false;
};

}  // namespace falchion::judge
