// src/sm90/attention_forward/decode/new_keys.cuh: the keys that a run appends to a cache, and rotary embedding. The CTA
// that would load the slot of a new key writes it instead: into its stage and into the cache. So nobody reads a new key
// from the cache, and no kernel runs before.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"
#include "gpu/blocks/mma.cuh"
#include "policy/cache_bytes.hpp"
#include "policy/rotary.hpp"
#include "sm90/attention_forward/decode/walk.cuh"

namespace falchion::sm90 {

/// Column `column` of a row of q or k_new at a position, in f32.
template <class Element>
FALCHION_DEVICE float rotated(const Element* row, int column, const RotaryTable& rotation, std::int64_t position) {
  const auto x = static_cast<float>(row[column]);
  const int dim = static_cast<int>(rotation.dim);
  if (column >= dim) return x;
  const bool second = rotation.pairs ? column % 2 != 0 : column >= dim / 2;
  const int away = rotation.pairs ? 1 : dim / 2;
  const auto other = static_cast<float>(row[second ? column - away : column + away]);
  const int pair = rotation.pairs ? column / 2 : second ? column - away : column;
  const RotaryTable::Turn turn = rotation.at(position, pair);
  return second ? turn.second(other, x) : turn.first(x, other);
}

/// Columns `column` and the next one, rounded.
template <class Element>
FALCHION_DEVICE std::uint32_t rotated_pair(const Element* row, int column, const RotaryTable& rotation,
                                           std::int64_t position) {
  return round_pair<Element>(rotated(row, column, rotation, position), rotated(row, column + 1, rotation, position));
}

/// 16 columns from `column` on, divided by the scale of their slot and rounded to 8 bits. position: where the row
/// stands, or -1 where it does not turn.
template <class Cached, class Element>
FALCHION_DEVICE uint4 cached_chunk(const Element* row, int column, const RotaryTable& rotation, int position,
                                   float scale) {
  const auto code = [&](int i) -> std::uint32_t {
    const float x = position >= 0 ? rotated(row, column + i, rotation, position) : static_cast<float>(row[column + i]);
    if constexpr (std::is_same_v<Cached, std::int8_t>) return static_cast<std::uint8_t>(cached_i8(x, scale));
    return cached_e4m3(x, scale);
  };
  const auto word = [&](int i) { return code(i) | code(i + 1) << 8 | code(i + 2) << 16 | code(i + 3) << 24; };
  return {word(0), word(4), word(8), word(12)};
}

/// The rows of k_new and v_new that belong to a segment: key first + i is row i. It is NewKeys of policy/cache.hpp in
/// 32 bits, without left padding: why_not_append in src/plan/attention_gpu_decode.cpp refuses that, so a key's number
/// is its slot and its position.
struct DecodeNewKeys {
  static constexpr std::int64_t kFar = 1 << 30;
  int first = kFar;  // where nothing is appended, no key is as far

  /// Query row 0 of a sequence stands at this key. The number may be out of range, as used_k may.
  static FALCHION_DEVICE std::int64_t first_of(const DecodeSequence& x) { return std::int64_t{x.used} - x.q_length; }
  template <class Config>
  static FALCHION_DEVICE DecodeNewKeys of(const AttentionArgs& a, const DecodeWalk<Config>& walk) {
    if (!a.append) return {};
    const std::int64_t first = first_of(walk.sequence);
    return {static_cast<int>(first < -kFar ? -kFar : first > kFar ? kFar : first)};
  }
  FALCHION_DEVICE bool has(int key) const { return key >= first; }
};

}  // namespace falchion::sm90
