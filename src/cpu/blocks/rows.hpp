// src/cpu/blocks/rows.hpp: the query of a lane and the keys that it sees. The query heads of a GQA group are packed
// into rows: row r of K/V head hk is query r / g of head hk * g + r % g. So one K/V tile serves the whole group, and a
// decode step (s_q = 1) still fills lanes.
#pragma once

#include "args/attention_call.hpp"
#include "cpu/blocks/level.hpp"
#include "policy/mask.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// One sequence of the batch: its rows. Lengths are read from the caller's memory and clamped into the tensors, even if
/// they are invalid.
struct Sequence {
  std::int64_t q_batch, q_begin, q_len;  // query i is element [q_batch][q_begin + i] of q and o
  std::int64_t k_len;                    // of its keys
  std::int64_t k_first;                  // rows of k before key 0, where padding is on the left
  KeyRows keys;                          // where they lie

  static FALCHION_INLINE Sequence of(const AttentionCall& a, std::int64_t b) {
    Sequence s{b, 0, a.s_q, a.cache ? room_of_cache(a, b) : a.s_k, 0, {}};
    std::int64_t k_batch = b, k_begin = 0;
    if (a.packed && a.cu_q != nullptr) {
      s.q_batch = 0;
      s.q_begin = min(max(a.cu_q[b], 0), a.total_q);
      s.q_len = min(max(a.cu_q[b + 1], s.q_begin), a.total_q) - s.q_begin;
    }
    if (a.packed && a.cu_k != nullptr) {
      k_batch = 0;
      k_begin = min(max(a.cu_k[b], 0), a.total_k);
      s.k_len = min(max(a.cu_k[b + 1], k_begin), a.total_k) - k_begin;
    }
    if (a.used_q != nullptr) s.q_len = min(s.q_len, max(a.used_q[b], 0));
    if (a.used_k != nullptr) s.k_len = min(s.k_len, max(a.used_k[b], 0));
    if (a.first_k != nullptr) {
      s.k_first = min(s.k_len, max(a.first_k[b], 0));
      k_begin += s.k_first;
      s.k_len -= s.k_first;
    }
    s.keys = KeyRows::of(a.pages, b, k_batch, k_begin);
    return s;
  }
  FALCHION_INLINE std::int64_t shift(const AttentionCall& a) const { return shift_of(a, q_len, k_len); }
  FALCHION_INLINE BandMask mask(const AttentionCall& a) const {
    return BandMask::make(k_len, shift(a), a.left, a.right);
  }
};

/// The query rows [first, first + count) of one tile, where count <= kM. Lanes past count see no key.
struct TileRows {
  std::int64_t b, hk, g, first;
  int count;
  Range visible, unmasked;          // the keys that some row sees; those that every row sees
  std::int32_t begin[kM], end[kM];  // lane i sees the keys [begin[i], end[i])
  Sequence sequence;

  static FALCHION_INLINE TileRows of(const AttentionCall& a, const Sequence& s, std::int64_t b, std::int64_t hk,
                                     std::int64_t first, std::int64_t rows) {
    TileRows t;
    t.b = b;
    t.hk = hk;
    t.g = a.h_q / a.h_k;
    t.first = first;
    t.sequence = s;
    t.count = static_cast<int>(max(0, min(kM, rows - first)));
    const BandMask mask = s.mask(a);
    const std::int64_t q0 = first / t.g, q1 = (first + t.count - 1) / t.g + 1;
    t.visible = mask.visible(q0, q1);
    t.unmasked = mask.unmasked(q0, q1);
    for (int i = 0; i < kM; ++i) {
      const Range keys = i < t.count ? mask.keys(t.query(i)) : Range{0, 0};
      t.begin[i] = static_cast<std::int32_t>(keys.begin);
      t.end[i] = static_cast<std::int32_t>(keys.end);
    }
    return t;
  }
  FALCHION_INLINE std::int64_t query(int lane) const { return (first + lane) / g; }
  FALCHION_INLINE std::int64_t head(int lane) const { return hk * g + (first + lane) % g; }

  /// The element of row `lane` in q or o (axes b, s, h, d).
  template <class T>
  FALCHION_INLINE T* row(const View& x, int lane) const {
    return static_cast<T*>(x.data) + sequence.q_batch * x.stride[0] + (sequence.q_begin + query(lane)) * x.stride[1] +
           head(lane) * x.stride[2];
  }
  /// The element of row `lane` in lse or row_max (axes b, h, s, 1).
  FALCHION_INLINE float* statistic(const View& x, int lane) const {
    return static_cast<float*>(x.data) + sequence.q_batch * x.stride[0] + head(lane) * x.stride[1] +
           (sequence.q_begin + query(lane)) * x.stride[2];
  }
  /// The element of row `lane` and the sequence's key 0 in bias, mask or probabilities (axes
  /// b, h, s_q, s_k; they are never packed).
  template <class T>
  FALCHION_INLINE T* scores(const View& x, int lane) const {
    return static_cast<T*>(x.data) + b * x.stride[0] + head(lane) * x.stride[1] + query(lane) * x.stride[2] +
           sequence.k_first * x.stride[3];
  }
  /// Row `key` of K or V (axes b, s, h, d), or null where it lies in a page that is not there.
  template <class T>
  FALCHION_INLINE const T* key_row(const View& x, std::int64_t key) const {
    const KeyPlace place = sequence.keys.at(key);
    if (!place.exists()) return nullptr;
    return static_cast<const T*>(x.data) + place.batch * x.stride[0] + place.row * x.stride[1] + hk * x.stride[2];
  }
  /// The scale of key `key` of an 8-bit cache: 1 without scales, and in a page that is not there.
  FALCHION_INLINE float key_scale(const View& x, std::int64_t key) const {
    const float* scale = x.data == nullptr ? nullptr : key_row<float>(x, key);
    return scale == nullptr ? 1.F : *scale;
  }
};

}  // namespace falchion::cpu::FALCHION_LEVEL
