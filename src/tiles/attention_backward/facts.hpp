// src/tiles/attention_backward/facts.hpp: the facts of each backward variant of attention, by its line in variants.def.
// src/variant_gpu.in asserts for each built variant that its code has these facts.
#pragma once

#include "tiles/attention_backward/sm80.hpp"
#include "tiles/attention_backward/sm90.hpp"
#include "tiles/attention_backward/sm90_wide.hpp"
#include "tiles/attention_backward/workspace.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion::facts_of {

struct attention_backward {
  static constexpr gpu::BackwardVariantFacts sm80(VariantKind kind, VariantType type, int d) {
    if (kind == VariantKind::once)
      return {sm80::attention_backward_facts(sm80::BackwardKind::once, d), workspace_of_sums(d)};
    const bool f32 = type == VariantType::f32;
    return {sm80::attention_backward_facts(f32 ? sm80::BackwardKind::bits32 : sm80::BackwardKind::bits16, d),
            of_slopes};
  }
  static constexpr gpu::BackwardVariantFacts sm90(VariantKind kind, VariantType, int d) {
    if (kind == VariantKind::wide) return {sm90::attention_backward_wide_facts(d), of_statistics};
    return {sm90::attention_backward_facts(d), workspace_of_sums(d, sm90::attention_backward_tiles(d).goes_on)};
  }

 private:
  /// drawn: CTAs draw their tiles of keys from a counter.
  static constexpr auto workspace_of_sums(int d, bool drawn = false) -> decltype(gpu::BackwardVariantFacts::workspace) {
    if (drawn) return d <= 64 ? with_counter<64> : with_counter<128>;
    return d <= 64 ? with_sums<64> : with_sums<128>;
  }
  static std::size_t of_statistics(const gpu::AttentionBackwardArgs& a) {
    return gpu::BackwardLayout::of(a).statistics_bytes(a);
  }
  static std::size_t of_slopes(const gpu::AttentionBackwardArgs& a) {
    const gpu::BackwardLayout layout = gpu::BackwardLayout::of(a);
    return layout.statistics_bytes(a) + layout.slope_sums_bytes(a);
  }
  template <int d>
  static std::size_t with_sums(const gpu::AttentionBackwardArgs& a) {
    const gpu::BackwardLayout layout = gpu::BackwardLayout::of(a);
    return layout.statistics_bytes(a) + layout.grad_q_sums_bytes(a, d) + layout.turns_bytes(a);
  }
  template <int d>
  static std::size_t with_counter(const gpu::AttentionBackwardArgs& a) {
    return with_sums<d>(a) + sizeof(*gpu::BackwardLayout::of(a).tile_counter(a, d));
  }
};

}  // namespace falchion::facts_of
