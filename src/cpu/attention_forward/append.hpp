// src/cpu/attention_forward/append.hpp: what a run does before attention: it writes new keys into the cache, and the
// rotated q into the workspace.
#pragma once

#include "args/cpu_attention_args.hpp"
#include "cpu/blocks/rows.hpp"
#include "cpu/blocks/workers.hpp"
#include "policy/cache_bytes.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Copies a row of n numbers, and turns its first columns.
template <class T>
void turn_row(const RotaryTable& rotation, std::int64_t position, const typename T::Bits* from, std::int64_t n,
              typename T::Bits* to) {
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof *to);
  for (std::int64_t i = 0; i < rotation.dim / 2; ++i) {
    const std::int64_t one = rotation.first_column(i), other = rotation.second_column(i);
    const RotaryTable::Turn turn = rotation.at(position, i);
    const float x = T::to_float(from[one]), y = T::to_float(from[other]);
    to[one] = T::from_float(turn.first(x, y));
    to[other] = T::from_float(turn.second(x, y));
  }
}

/// A row of an 8-bit cache: divided by the scale and rounded. dim: so many columns turn before.
template <class T, class Cached>
void keep_row(const RotaryTable& rotation, std::int64_t dim, std::int64_t position, const typename T::Bits* from,
              std::int64_t n, float scale, typename Cached::Bits* to) {
  const auto code = [scale](float x) -> typename Cached::Bits {
    if constexpr (std::is_same_v<Cached, i8>) {
      return cached_i8(x, scale);
    } else {
      return cached_e4m3(x, scale);
    }
  };
  for (std::int64_t i = 0; i < n; ++i) to[i] = code(T::to_float(from[i]));
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const std::int64_t one = rotation.first_column(i), other = rotation.second_column(i);
    const RotaryTable::Turn turn = rotation.at(position, i);
    const float x = T::to_float(from[one]), y = T::to_float(from[other]);
    to[one] = code(turn.first(x, y));
    to[other] = code(turn.second(x, y));
  }
}

template <class Bits>
Bits* row_of(const View& x, std::int64_t batch, std::int64_t row, std::int64_t h) {
  return static_cast<Bits*>(x.data) + batch * x.stride[0] + row * x.stride[1] + h * x.stride[2];
}

inline float scale_at(const View& x, const KeyPlace& place, std::int64_t h) {
  return x.data == nullptr ? 1.F : *row_of<const float>(x, place.batch, place.row, h);
}

/// Of one query row: its new key goes into the cache, its q to `rotated`.
template <class T, class Cached>
void append_row(const AttentionArgs& a, const Sequence& s, const NewKeys& fresh, const View& rotated, std::int64_t i) {
  using Bits = typename T::Bits;
  const std::int64_t row = s.q_begin + i, position = fresh.position(i);
  for (std::int64_t h = 0; rotated.data != nullptr && h < a.h_q; ++h)
    turn_row<T>(a.rotation, position, row_of<Bits>(a.q, s.q_batch, row, h), a.d_qk,
                row_of<Bits>(rotated, s.q_batch, row, h));
  const KeyPlace place = a.append ? fresh.at(i) : KeyPlace{-1, 0};
  if (!place.exists()) return;
  for (std::int64_t h = 0; h < a.h_k; ++h) {
    const Bits *k = row_of<Bits>(a.k_new, s.q_batch, row, h), *v = row_of<Bits>(a.v_new, s.q_batch, row, h);
    auto* to_k = row_of<typename Cached::Bits>(a.k, place.batch, place.row, h);
    auto* to_v = row_of<typename Cached::Bits>(a.v, place.batch, place.row, h);
    if constexpr (std::is_same_v<T, Cached>) {
      turn_row<T>(a.rotation, position, k, a.d_qk, to_k);
      std::memcpy(to_v, v, static_cast<std::size_t>(a.d_v) * sizeof(Bits));
    } else {
      keep_row<T, Cached>(a.rotation, a.rotation.dim, position, k, a.d_qk, scale_at(a.k_scale, place, h), to_k);
      keep_row<T, Cached>(a.rotation, 0, position, v, a.d_v, scale_at(a.v_scale, place, h), to_v);
    }
  }
}

/// Does it for all rows. Returns the q that attention then reads.
template <class T, class Cached>
View append_rows(const AttentionArgs& a) {
  const View rotated = a.rotation.dim > 0 ? rotated_q(a, a.rotated) : View{};
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < a.b; ++b) longest = max(longest, Sequence::of(a, b).q_len);
  const std::int64_t tasks = a.b * longest;
  for_each_worker(a, tasks, [&](int, Counter& next) {
    for (std::int64_t task; (task = next.take()) < tasks;) {
      const std::int64_t b = task / longest, i = task % longest;
      const Sequence s = Sequence::of(a, b);
      if (i < s.q_len) append_row<T, Cached>(a, s, new_keys_of(a, b, s.q_len), rotated, i);
    }
  });
  return a.rotation.dim > 0 ? rotated : a.q;
}

}  // namespace falchion::cpu::FALCHION_LEVEL
