// src/ref/query.hpp: one query row of the definition of attention, with all inputs of its scores. The forward and the
// backward pass share it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "policy/cache.hpp"
#include "policy/dropout.hpp"
#include "policy/mask.hpp"
#include "policy/score.hpp"
#include "ref/attention_forward.hpp"
#include "ref/cache_pages.hpp"
#include "ref/dropout_origin.hpp"
#include "ref/elements.hpp"

namespace falchion::ref {

inline constexpr int kMaxHeadDim = 256;

/// Has q 8 bits?
inline bool is_of_bytes(const Attention& a) { return a.dtype == DType::e4m3 || a.dtype == DType::i8; }

/// ALiBi's slope or the sink of one query head of one sequence.
inline float of_head(const Tensor& x, std::int64_t b, std::int64_t h) { return load(x, at(x, b, 0, h, 0)); }

inline DropoutMask dropout_of(const Attention& a, const Rng& rng) {
  const bool elsewhere = a.dropout > 0 && rng.at != nullptr;
  return DropoutMask::make(a.dropout, rng.seed + (elsewhere ? rng.at[0] : 0), rng.offset + (elsewhere ? rng.at[1] : 0),
                           origin_of(a, rng));
}

/// The queries of sequence b.
inline Rows queries_of(const Operands& x, std::int64_t b) { return rows_of(b, x.cu_seqlens_q, x.used_q, x.q.shape[1]); }

/// The most keys that sequence b of a cache may have.
inline std::int64_t room_of_cache(const Attention& a, const Operands& x, std::int64_t b) {
  return a.page_size == 0 ? a.s_k : std::min(a.s_k, pages_of(a, x).room(b));
}

/// The keys of sequence b. In a cache with pages `begin` counts keys, not rows of k.
inline Rows keys_of(const Attention& a, const Operands& x, std::int64_t b) {
  if (a.page_size == 0) return rows_of(b, x.cu_seqlens_k, x.used_k, x.k.shape[1], x.first_k);
  return rows_of(b, nullptr, x.used_k, room_of_cache(a, x, b), x.first_k);
}

/// The keys of sequence b of a cache that its q_length query rows bring along.
inline NewKeys new_keys_of(const Attention& a, const Operands& x, std::int64_t b, std::int64_t q_length) {
  return NewKeys::of(KeyRows::of(pages_of(a, x), b, b, 0), room_of_cache(a, x, b), x.used_k[b], q_length,
                     x.first_k == nullptr ? 0 : x.first_k[b]);
}

/// One query row with all inputs of its scores.
template <class Real>
struct Query {
  const Attention& a;
  const Operands& x;
  ScoreMod<Real> mod;
  BandMask mask;
  DropoutMask dropout;
  std::int64_t b, h;
  Rows q_rows, k_rows;
  KeyRows keys;
  std::int64_t i = 0;
  Rounding rounding = {};
  Real q[kMaxHeadDim] = {};

  static Query of(const Attention& a, const Operands& x, std::int64_t b, std::int64_t h, const Rounding& rounding) {
    const float scale =
        a.score.scale != 0 ? a.score.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(a.d_qk)));
    const Rows q_rows = queries_of(x, b);
    const Rows k_rows = keys_of(a, x, b);
    const std::int64_t shift = a.band.shift(q_rows.length, k_rows.length);
    return {.a = a,
            .x = x,
            .mod = {scale, a.score.softcap, a.alibi ? of_head(x.alibi, b, h) : 0},
            .mask = BandMask::make(k_rows.length, shift, a.band.left, a.band.right),
            .dropout = dropout_of(a, x.rng),
            .b = b,
            .h = h,
            .q_rows = q_rows,
            .k_rows = k_rows,
            .keys = KeyRows::of(pages_of(a, x), b, k_rows.batch, k_rows.begin),
            .rounding = rounding};
  }

  std::int64_t column(std::int64_t j) const { return k_rows.first + j; }  // key j's in bias, mask and probabilities
  std::int64_t h_kv() const { return h / (a.h_q / a.h_k); }               // g query heads share a K/V head

  void load_q(std::int64_t row) {
    i = row;
    const std::int64_t offset = at(x.q, q_rows.batch, q_rows.begin + i, h, 0);
    for (std::int64_t d = 0; d < a.d_qk; ++d) q[d] = load(x.q, offset + at(x.q, 3, d));
    if (a.rotary_dim > 0) rotate_q();
  }
  /// Rotated numbers are rounded to the type of q.
  void rotate_q() {
    const RotaryTable rotation = rotation_of(a, x);
    const std::int64_t position = new_keys_of(a, x, b, q_rows.length).position(i);
    for (std::int64_t pair = 0; pair < rotation.dim / 2; ++pair) {
      Real &one = q[rotation.first_column(pair)], &other = q[rotation.second_column(pair)];
      const RotaryTable::Turn turn = rotation.at(position, pair);
      const Real first = turn.first(one, other), second = turn.second(one, other);
      one = static_cast<Real>(round_as(a.dtype, first));
      other = static_cast<Real>(round_as(a.dtype, second));
    }
  }
  bool sees(std::int64_t j) const {
    if (!mask.keep(i, j) || !keys.at(j).exists()) return false;
    if (a.mask && static_cast<const unsigned char*>(x.mask.data)[at(x.mask, b, h, i, column(j))] == 0) return false;
    return !a.bias || load(x.bias, at(x.bias, b, h, i, column(j))) != -std::numeric_limits<float>::infinity();
  }
  /// Where key j begins in k or v.
  std::int64_t key_offset(const Tensor& of, std::int64_t j) const {
    const KeyPlace place = keys.at(j);
    return at(of, place.batch, place.row, h_kv(), 0);
  }
  /// The scale of key j in an 8-bit cache; 1 without scales.
  Real scale_of(const Tensor& scales, std::int64_t j) const {
    return scales.data == nullptr ? Real{1} : static_cast<Real>(load(scales, key_offset(scales, j)));
  }
  /// q_i . k_j
  Real dot(std::int64_t j) const {
    if (is_of_bytes(a)) return dot(q, x.k, j, a.d_qk, 3) * q_scale() * k_scale(j);
    return dot(q, x.k, j, a.d_qk, 3) * scale_of(x.k_scale, j);
  }
  /// Of q of 8 bits. A scale that is negative or infinite is NaN.
  static Real valid_scale(float scale) {
    return scale >= 0 && !std::isinf(scale) ? static_cast<Real>(scale) : std::numeric_limits<Real>::quiet_NaN();
  }
  Real q_scale() const {
    if (x.q_scale.data == nullptr) return 1;
    return valid_scale(load(x.q_scale, at(x.q_scale, q_rows.batch, q_rows.begin + i, h, 0)));
  }
  Real k_scale(std::int64_t j) const {
    if (x.k_scale.data == nullptr) return 1;
    if (a.k_scale_rows <= 1) return valid_scale(load(x.k_scale, key_offset(x.k_scale, j)));
    const std::int64_t first = a.packed ? k_rows.begin / a.k_scale_rows + b : 0;
    return valid_scale(load(x.k_scale, at(x.k_scale, k_rows.batch, first + j / a.k_scale_rows, h_kv(), 0)));
  }
  /// The scale of V that all keys share.
  Real v_factor() const {
    if (x.v_scale.data == nullptr) return 1;
    return static_cast<Real>(load(x.v_scale, at(x.v_scale, k_rows.batch, 0, h_kv(), 0)));
  }
  /// The dot product of a row of this query and row j of k or v. which: the number of its sign, if it is moved.
  Real dot(const Real* row, const Tensor& of, std::int64_t j, std::int64_t n, std::uint64_t which) const {
    const std::int64_t offset = key_offset(of, j);
    Real sum = 0;
    double squares = 0;
    for (std::int64_t d = 0; d < n; ++d) {
      sum += row[d] * static_cast<Real>(load(of, offset + at(of, 3, d)));
      if (rounding.sum_step != 0 && d % 4 == 3) squares += static_cast<double>(sum) * static_cast<double>(sum);
    }
    if (!(squares > 0) || std::isinf(squares)) return sum;
    return sum + static_cast<Real>(sign_of(which, j) * rounding.sum_step * std::sqrt(squares));
  }
  /// +1 or -1 for one of the numbers of this query and key j.
  double sign_of(std::uint64_t which, std::int64_t j) const {
    return DropoutMask::make(0.5F, rounding.draw, which).keep(0, b * a.h_q + h, i, j) ? 1 : -1;
  }
  /// How far key j is from the diagonal: i + shift - j.
  Real distance(std::int64_t j) const { return static_cast<Real>(i + mask.shift - j); }
  Real score(std::int64_t j) const { return score(j, dot(j)); }
  Real score(std::int64_t j, Real dot) const {
    const Real s = mod.apply(dot, distance(j));
    return a.bias ? s + static_cast<Real>(load(x.bias, at(x.bias, b, h, i, column(j)))) : s;
  }
  /// The score of the head's sink, which is one more key without a row of V; -inf without sinks.
  Real sink() const { return a.sinks ? of_head(x.sinks, b, h) : -std::numeric_limits<Real>::infinity(); }
  /// The factor of key j's probability from dropout: 0 or 1 / (1 - p).
  Real kept(std::int64_t j) const {
    if (!(a.dropout > 0)) return 1;
    return dropout.keep(b, h, i, j) ? static_cast<Real>(dropout.keep_scale) : 0;
  }
};

}  // namespace falchion::ref
