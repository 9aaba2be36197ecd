// src/judge/attention.hpp: judges results of attention. They are compared with the definition in double and with the
// naive computation in the problem's own types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/attention_eight.hpp"
#include "judge/rule.hpp"

namespace falchion::judge {

enum class AttentionOutput : std::uint8_t { o, lse, row_max, probabilities };
inline constexpr const char* kAttentionOutputs[] = {"o", "lse", "row_max", "probabilities"};

/// Whether NaN or Inf in V of a masked key may reach this element of o on tensor cores (docs/contract.md): if keys can
/// be masked at all and that column of V holds such a number in the row's sequence.
bool masked_v_may_reach(const Attention& problem, const Operands& x, const std::array<std::int64_t, 4>& at);

class AttentionReference {
 public:
  /// x are operands in the host's memory. Their inputs must not change while this object lives. Of their outputs only
  /// the shape of o is read. All outputs that the problem asks for are computed.
  AttentionReference(const Attention& problem, const Operands& x);

  bool has(AttentionOutput which) const;
  /// Whether row `row` of batch entry `batch` of q belongs to a sequence, so that
  /// it is written. When packed, batch is 0.
  bool is_row(std::int64_t batch, std::int64_t row) const {
    return rows_[static_cast<std::size_t>(batch * inputs_.q.shape[1] + row)] != 0;
  }
  /// Checks one output, without the rows outside of all sequences. shares_tiles: the result is from tensor cores, where
  /// NaN in a masked key's V may reach its column of o (docs/contract.md, "NaN or Inf in V of a masked key").
  ErrorReport check(AttentionOutput which, const Tensor& got, bool shares_tiles) const;
  /// The definition's result, dense and in f32.
  const Tensor& exact(AttentionOutput which) const { return exact_.of(which); }
  /// With append: what k and v hold after the run, by the definition; dense. The caller's are not written.
  const Tensor& cache_k() const { return inputs_.k; }
  const Tensor& cache_v() const { return inputs_.v; }
  /// With append: what is wrong with the cache after a run, or "". Slots that no new key goes to must be as they were.
  std::string check_cache(const Tensor& k, const Tensor& v) const;
  double exact_seconds() const { return exact_seconds_; }

 private:
  /// The outputs of one computation, dense and in f32.
  struct Outputs {
    std::array<std::vector<float>, 4> memory;
    std::array<Tensor, 4> views{};
    Outputs() = default;
    Outputs(const Attention& problem, const Operands& x);
    const Tensor& of(AttentionOutput which) const { return views[static_cast<std::size_t>(which)]; }
    void attach(Operands* x) const;
  };

  using Index = std::array<std::int64_t, 4>;
  bool inf_may_vanish(const Index& at) const;
  bool excused(AttentionOutput which, double value, double wanted, const Index& at, bool shares_tiles) const;
  double largest_sum() const;
  bool counts(AttentionOutput which, std::int64_t i, std::int64_t j, std::int64_t k) const;
  void nudge() const;
  DType dtype_of_p() const;
  DType unit_type(AttentionOutput which) const;
  const EightBounds& bounds() const;
  void hold_to_bounds(const Tensor& got, ErrorReport* report) const;

  Attention problem_;  // without append: the new keys are in inputs_
  Operands inputs_;
  std::array<std::vector<std::byte>, 2> cache_;  // with append: of k and v
  Outputs exact_, naive_;
  mutable Outputs vanishing_;  // the definition without probabilities that are too small; computed when first needed
  std::vector<std::uint8_t> rows_;
  double exact_seconds_ = 0;
  mutable std::array<double, 4> moved_{};  // how far nudging moves each output; computed once, when first needed
  mutable bool nudged_ = false;
  mutable std::optional<EightBounds> bounds_;  // with q of 8 bits, when first needed
};

}  // namespace falchion::judge
