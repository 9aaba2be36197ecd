// src/tiles/attention_forward/halves_workspace.hpp: the workspace of kind halves of Hopper's forward pass: q, k and v
// as two f16 parts, and the factor that undoes the scale of each row. It is plain C++, because the plan counts the
// bytes even if the code of the variants is not built. docs/design/sm90_forward.md, "f32 as two halves", describes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/attention_call.hpp"
#include "base/host_device.hpp"

namespace falchion::sm90 {

/// How many rows (b, s, h) q has, and k and v each.
struct HalvesRows {
  std::int64_t q, k;
  static FALCHION_HD HalvesRows of(const AttentionCall& a) {
    return {(a.packed ? a.total_q : a.b * a.s_q) * a.h_q, (a.packed ? a.total_k : a.b * a.s_k) * a.h_k};
  }
};

/// The factors of a row of k and of the row of v at the same place.
struct alignas(8) KeyFactors {
  float k, v;
};

/// The parts of the workspace, in bytes from its start. q, k and v are (b, s, h, 2, d): first the high parts of a row,
/// then the low ones. The factors are (b, h, s), so that those of neighbouring keys are contiguous.
struct HalvesLayout {
  std::size_t q, k, v, q_factors, key_factors, bytes;

  /// d: the head dim of the variant, up to which rows are filled with zeros.
  static FALCHION_HD HalvesLayout of(HalvesRows rows, int d) {
    const auto row_bytes = static_cast<std::size_t>(4 * d);
    const auto rows_q = static_cast<std::size_t>(rows.q), rows_k = static_cast<std::size_t>(rows.k);
    HalvesLayout at{};
    at.k = rows_q * row_bytes;
    at.v = at.k + rows_k * row_bytes;
    at.key_factors = at.v + rows_k * row_bytes;
    at.q_factors = at.key_factors + rows_k * sizeof(KeyFactors);
    at.bytes = at.q_factors + rows_q * sizeof(float);
    return at;
  }
};

}  // namespace falchion::sm90
