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

enum class Gradient : std::uint8_t { q, k, v, bias, alibi };
inline constexpr std::size_t kGradients = 5;
inline constexpr const char* kGradientNames[kGradients] = {"grad_q", "grad_k", "grad_v", "grad_bias", "grad_alibi"};

class GradientReference {
 public:
  /// x are operands in the host's memory, with o and lse. Its inputs must not change while this object lives. Of its
  /// outputs only the shapes count and, where gradients are added to what is there, what they hold now.
  GradientReference(const Attention& problem, const Operands& x);

  bool has(Gradient which) const;
  /// Whether a row of grad_q, or one of grad_k and grad_v, belongs to a sequence, so that it is written. When packed,
  /// batch is 0. Each element of the other gradients is written.
  bool is_row(Gradient which, std::int64_t batch, std::int64_t row) const;
  /// Checks one gradient. Rows that belong to no sequence are not looked at, unless they must be 0 (zero_unused). NaN
  /// and Inf must be where the definition has them: what docs/contract.md excuses on a GPU is not known here yet.
  ErrorReport check(Gradient which, const Tensor& got) const;
  /// The definition's result, dense and in f32.
  const Tensor& exact(Gradient which) const { return exact_.of(which); }

 private:
  /// What one computation writes, dense and in f32.
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
  DType type_of(Gradient which) const;

  Attention problem_;
  Operands inputs_;
  Outputs before_;  // where gradients are added: what was there
  Outputs exact_, naive_;
  std::vector<std::uint8_t> rows_, keys_;
  mutable std::array<double, kGradients> moved_{};  // how far nudging moves each; computed once, when first needed
  mutable bool nudged_ = false;
};

}  // namespace falchion::judge
