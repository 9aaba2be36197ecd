// src/args/attention_call.hpp: one call of attention as every kernel sees it. It is plain data, because a kernel is
// compiled once for each CPU level and GPU. If two of these used the same out-of-line inline function (std::string and
// std::vector have some), the linker would keep only one copy of it, which may be one that this CPU cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/number.hpp"
#include "args/view.hpp"
#include "policy/cache.hpp"
#include "policy/dropout.hpp"
#include "policy/rotary.hpp"

namespace falchion {

/// Tensors have axes (b, s, h, d). Bias, mask and probabilities have axes (b, h, s_q, s_k) instead, lse and row_max
/// have (b, h, s_q, 1), alibi and sinks have (b, 1, h, 1), and q_scale, k_scale and v_scale have (b, s, h, 1).
struct AttentionCall {
  View q, k, v, o, lse, row_max, probabilities, bias, mask, alibi, sinks;
  bool bias_f32 = false;                                                      // else bias has the input type
  std::int64_t b = 0, s_q = 0, s_k = 0, h_q = 0, h_k = 0, d_qk = 0, d_v = 0;  // s: capacity of one sequence
  bool packed = false;                                                        // q, k, v, o are (1, total, h, d)
  const std::int32_t *cu_q = nullptr, *cu_k = nullptr;                        // (b + 1) when packed
  std::int64_t total_q = 0, total_k = 0;                                      // packed: the number of rows
  const std::int32_t *used_q = nullptr, *used_k = nullptr;                    // (b) or null
  const std::int32_t* first_k = nullptr;                                      // (b) or null
  std::int64_t left = -1, right = -1;                                         // the band; below 0: unbounded
  bool bottom_right = true;  // the last query is at the last key; else query 0 is at key `diagonal`
  std::int64_t diagonal = 0;
  float scale = 1, softcap = 0;  // the plan has filled in the default scale
  float dropout = 0;
  std::uint64_t seed = 0, offset = 0;
  const std::uint64_t* rng_at = nullptr;  // null, or two numbers that are added to seed and offset
  DropoutOrigin origin;
  bool cache = false;              // k and v are a cache: `packed` is of q and o alone
  CachePages pages{};              // of a cache
  View k_new, v_new;               // rows that a run appends to a cache
  View q_scale, k_scale, v_scale;  // of numbers of 8 bits, or null: 1
  /// Above 1: keys that share a scale of k. Those of sequence b begin at k_scale's row cu_k[b] / k_scale_rows + b where
  /// keys are packed, else at its row 0.
  std::int64_t k_scale_rows = 1;
  Number type_q{}, type_k{}, type_v{}, type_o{};
  bool append = false;
  RotaryTable rotation{};       // of q and k_new
  std::int64_t split_keys = 0;  // parts of the keys begin at its multiples; 0: anywhere
};

/// Are k and v rows of all sequences, one behind the other?
FALCHION_HD bool has_packed_keys(const AttentionCall& a) { return a.packed && !a.cache; }

/// The most keys that sequence b of a cache may have.
FALCHION_HD std::int64_t room_of_cache(const AttentionCall& a, std::int64_t b) {
  if (a.pages.size == 0) return a.s_k;
  const std::int64_t room = a.pages.room(b);
  return room < a.s_k ? room : a.s_k;
}

/// The keys of sequence b of a cache that its q_length query rows bring along.
FALCHION_HD NewKeys new_keys_of(const AttentionCall& a, std::int64_t b, std::int64_t q_length) {
  return NewKeys::of(KeyRows::of(a.pages, b, b, 0), room_of_cache(a, b), a.used_k[b], q_length,
                     a.first_k == nullptr ? 0 : a.first_k[b]);
}

/// The rotated q in the workspace, dense.
FALCHION_HD View rotated_q(const AttentionCall& a, void* at) {
  return {at, {a.s_q * a.h_q * a.d_qk, a.h_q * a.d_qk, a.d_qk, 1}};
}

/// Query i of a sequence of these lengths is at key i + shift.
FALCHION_HD std::int64_t shift_of(const AttentionCall& a, std::int64_t q_length, std::int64_t k_length) {
  return a.bottom_right ? k_length - q_length : a.diagonal;
}

/// A number of one query head of one sequence, or `without` where there are none.
FALCHION_HD float number_of_head(const View& x, std::int64_t b, std::int64_t h, float without) {
  return x.data == nullptr ? without : static_cast<const float*>(x.data)[b * x.stride[0] + h * x.stride[2]];
}
/// ALiBi's slope.
FALCHION_HD float slope_of(const AttentionCall& a, std::int64_t b, std::int64_t h) {
  return number_of_head(a.alibi, b, h, 0.F);
}
/// The score of the sink, one more key without a row of V.
FALCHION_HD float sink_of(const AttentionCall& a, std::int64_t b, std::int64_t h) {
  return number_of_head(a.sinks, b, h, -__builtin_huge_valf());
}

FALCHION_HD DropoutMask dropout_of(const AttentionCall& a) {
  const bool elsewhere = a.dropout > 0 && a.rng_at != nullptr;
  return DropoutMask::make(a.dropout, a.seed + (elsewhere ? a.rng_at[0] : 0), a.offset + (elsewhere ? a.rng_at[1] : 0),
                           a.origin);
}

}  // namespace falchion
