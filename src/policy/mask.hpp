// src/policy/mask.hpp: who sees whom. Full, causal, window and ragged tail are one type with run-time numbers.
#pragma once

#include <cstdint>

#include "policy/host_device.hpp"

namespace falchion {

struct Range {
  std::int64_t begin, end;  // [begin, end); empty when end <= begin
  FALCHION_HD bool empty() const { return end <= begin; }
};

/// One sequence's band, ready to ask. Bounds are clamped so that no sum overflows: kOpen is past any length.
struct BandMask {
  static constexpr std::int64_t kOpen = std::int64_t{1} << 60;
  std::int64_t s_k, shift, left, right;

  /// left, right: >= 0, or below 0 for unbounded. shift is s_k - s_q for bottom-right, 0 for top-left.
  static FALCHION_HD BandMask make(std::int64_t s_k, std::int64_t shift, std::int64_t left, std::int64_t right) {
    return {s_k, shift, left < 0 || left > kOpen ? kOpen : left, right < 0 || right > kOpen ? kOpen : right};
  }

  /// May query q see key k? THE definition; the two below only say where it needs no asking.
  FALCHION_HD bool keep(std::int64_t q, std::int64_t k) const {
    const std::int64_t x = k - q - shift;
    return 0 <= k && k < s_k && -left <= x && x <= right;
  }
  /// The keys that one query sees.
  FALCHION_HD Range keys(std::int64_t q) const { return clip(q + shift - left, q + shift + right + 1); }
  /// The keys that some query in [q0, q1) sees: the tiles to visit.
  FALCHION_HD Range visible(std::int64_t q0, std::int64_t q1) const {
    return clip(q0 + shift - left, q1 + shift + right);
  }
  /// The keys that every query in [q0, q1) sees: the tiles that need no test.
  FALCHION_HD Range unmasked(std::int64_t q0, std::int64_t q1) const {
    return clip(q1 - 1 + shift - left, q0 + shift + right + 1);
  }

 private:
  FALCHION_HD Range clip(std::int64_t begin, std::int64_t end) const {
    return {begin > 0 ? begin : 0, end < s_k ? end : s_k};
  }
};

}  // namespace falchion
