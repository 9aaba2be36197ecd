// src/policy/mask.hpp: which query sees which key. Full, causal and window bands and a ragged tail are all one type
// with run-time numbers.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion {

struct Range {
  std::int64_t begin, end;  // [begin, end); empty when end <= begin
  FALCHION_HD bool empty() const { return end <= begin; }
};

/// The band of one sequence. Its bounds are clamped to kOpen, which is past any length, so that no sum overflows.
struct BandMask {
  static constexpr std::int64_t kOpen = std::int64_t{1} << 60;
  std::int64_t s_k, shift, left, right;

  /// left and right are >= 0, or below 0 for unbounded. shift is s_k - s_q for bottom-right and 0 for top-left.
  static FALCHION_HD BandMask make(std::int64_t s_k, std::int64_t shift, std::int64_t left, std::int64_t right) {
    return {s_k, shift, left < 0 || left > kOpen ? kOpen : left, right < 0 || right > kOpen ? kOpen : right};
  }

  /// Whether query q sees key k. This is the definition; the functions below only say where it need not be asked.
  FALCHION_HD bool keep(std::int64_t q, std::int64_t k) const {
    const std::int64_t x = k - q - shift;
    return 0 <= k && k < s_k && -left <= x && x <= right;
  }
  /// The keys that one query sees.
  FALCHION_HD Range keys(std::int64_t q) const { return clip(q + shift - left, q + shift + right + 1); }
  /// The keys that at least one query in [q0, q1) sees. Other keys need not be visited.
  FALCHION_HD Range visible(std::int64_t q0, std::int64_t q1) const {
    return clip(q0 + shift - left, q1 + shift + right);
  }
  /// The keys that every query in [q0, q1) sees. They need no test.
  FALCHION_HD Range unmasked(std::int64_t q0, std::int64_t q1) const {
    return clip(q1 - 1 + shift - left, q0 + shift + right + 1);
  }

 private:
  FALCHION_HD Range clip(std::int64_t begin, std::int64_t end) const {
    return {begin > 0 ? begin : 0, end < s_k ? end : s_k};
  }
};

}  // namespace falchion
