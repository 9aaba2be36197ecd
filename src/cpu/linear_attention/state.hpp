// src/cpu/linear_attention/state.hpp: states in memory, and the exchange between the segments of one sequence. With few
// heads some workers would be idle, so a sequence is cut into segments. First each segment computes its own sum, then a
// prefix over the segments is computed, and then each segment is swept from its start state.
#pragma once

#include "cpu/linear_attention/items.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// A state S (d_qk, d_v) and z (d_qk) in the caller's memory or in a record. A null pointer means that it is absent and
/// counts as 0.
struct StateRef {
  float* s = nullptr;
  std::int64_t row = 0, col = 0;
  float* z = nullptr;
  std::int64_t z_row = 0;

  static StateRef of(const View& s, const View& z, std::int64_t b, std::int64_t h) {
    StateRef r{static_cast<float*>(s.data), s.stride[2], s.stride[3], static_cast<float*>(z.data), z.stride[2]};
    if (r.s != nullptr) r.s += b * s.stride[0] + h * s.stride[1];
    if (r.z != nullptr) r.z += b * z.stride[0] + h * z.stride[1];
    return r;
  }
  StateRef transposed() const { return {s, col, row, z, z_row}; }
  FALCHION_INLINE float& at(std::int64_t r, std::int64_t c) const { return s[r * row + c * col]; }

  void load(std::int64_t rows, std::int64_t cols, State* out) const {
    out->zero = s == nullptr;
    out->packed = false;
    for (std::int64_t r = 0; r < rows && s != nullptr; ++r) {
      float* to = out->m.row(r);
      if (col == 1) {
        std::memcpy(to, s + r * row, static_cast<std::size_t>(cols) * sizeof(float));
      } else {
        for (std::int64_t c = 0; c < cols; ++c) to[c] = at(r, c);
      }
      std::memset(to + cols, 0, static_cast<std::size_t>(round_up(cols, kBlock) - cols) * sizeof(float));
    }
  }
  void store(std::int64_t rows, std::int64_t cols, const State& in) const {
    for (std::int64_t r = 0; r < rows && s != nullptr; ++r) {
      const float* from = in.m.row(r);
      if (col == 1 && !in.zero) {
        std::memcpy(s + r * row, from, static_cast<std::size_t>(cols) * sizeof(float));
      } else {
        for (std::int64_t c = 0; c < cols; ++c) at(r, c) = in.zero ? 0 : from[c];
      }
    }
  }
  void load_z(std::int64_t n, float* out) const {  // fills the rest of the block with 0
    for (std::int64_t i = 0; i < round_up(n, kBlock); ++i) out[i] = z != nullptr && i < n ? z[i * z_row] : 0;
  }
  void store_z(std::int64_t n, const float* in) const {
    for (std::int64_t i = 0; i < n && z != nullptr; ++i) z[i * z_row] = in[i];
  }
};

/// Records (b, h_v, segments) of S, z and e^F. A record first holds its segment's own sum and, after the prefix, the
/// segment's start state.
struct Records {
  const LinearAttentionArgs& a;

  std::int64_t floats() const { return round_up(a.d_qk * a.d_v + a.d_qk + 1, 16); }
  std::int64_t total() const { return a.segments > 1 ? a.b * a.h_v * a.segments * floats() : 0; }
  StateRef at(std::int64_t b, std::int64_t h, std::int64_t segment) const {
    float* s = a.states + ((b * a.h_v + h) * a.segments + segment) * floats();
    return {s, a.d_v, 1, s + a.d_qk * a.d_v, 1};
  }
  float& fade(const StateRef& record) const { return record.z[a.d_qk]; }
  /// The start state of a sweep: the record of its segment, or the caller's tensor if there is one segment.
  StateRef start(const LinearItem& item, std::int64_t h, const View& s, const View& z) const {
    return a.segments > 1 ? at(item.b, h, item.segment) : StateRef::of(s, z, item.b, h);
  }
};

/// z = fade z + weight y.
FALCHION_INLINE void add_to_z(float* z, float fade, float weight, const float* y, std::int64_t n) {
  for (std::int64_t c = 0; c < n; c += kLanes)
    store(hn::MulAdd(splat(fade), load(z + c), hn::Mul(splat(weight), load(y + c))), z + c);
}
/// z over the tokens of a sequence. Tokens are added to a sum of their chunk first, because each addition to a running
/// sum rounds at its magnitude: over 8000 equal tokens the error of z was 9e-6.
class RunningZ {
 public:
  RunningZ(Arena& arena, std::int64_t n) : n_(n) {
    for (float** x : {&z_, &before_, &chunk_}) *x = arena.take<float>(round_up(n, kBlock));
  }
  float* data() const { return z_; }
  /// Begins a chunk from the current z.
  void start_chunk() {
    std::memcpy(before_, z_, static_cast<std::size_t>(round_up(n_, kBlock)) * sizeof(float));
    std::memset(chunk_, 0, static_cast<std::size_t>(round_up(n_, kBlock)) * sizeof(float));
    faded_ = 1;
  }
  /// z = fade z + k.
  FALCHION_INLINE void add(float fade, const float* k) {
    faded_ *= fade;
    for (std::int64_t c = 0; c < n_; c += kLanes) {
      const Floats chunk = hn::MulAdd(splat(fade), load(chunk_ + c), load(k + c));
      store(chunk, chunk_ + c);
      store(hn::MulAdd(splat(faded_), load(before_ + c), chunk), z_ + c);
    }
  }

 private:
  std::int64_t n_;
  float *z_, *before_, *chunk_;  // z; before the chunk; what the chunk has added
  float faded_ = 1;              // the factor of before_ within the chunk so far
};

FALCHION_INLINE float dot(const float* x, const float* y, std::int64_t n) {
  Floats sum = splat(0.f);
  for (std::int64_t c = 0; c < n; c += kLanes) sum = hn::MulAdd(load(x + c), load(y + c), sum);
  return sum_of_lanes(sum);
}

/// Replaces each segment's sum by the start state of the segment, in the order of the sweep. `s` and `z` are the start
/// state of the whole sequence.
inline void prefix_over_segments(const LinearAttentionArgs& a, const View& s, const View& z, bool backwards) {
  constexpr std::int64_t kRows = 16;
  const Records records{a};
  const std::int64_t parts = ceil_div(a.d_qk, kRows);
  const std::int64_t tasks = a.b * a.h_v * parts;
  for_each_worker(a, tasks, [&](int, Counter& next) {
    float carry[kRows][257];  // a row of S, and after its d_v columns the element of z
    for (std::int64_t i; (i = next.take()) < tasks;) {
      const std::int64_t b = i / parts / a.h_v, h = i / parts % a.h_v, e0 = i % parts * kRows;
      const std::int64_t rows = min(kRows, a.d_qk - e0);
      const auto exchange = [&](const StateRef& record, std::int64_t r, std::int64_t c) -> float& {
        return c == a.d_v ? record.z[(e0 + r) * record.z_row] : record.at(e0 + r, c);
      };
      const StateRef start = StateRef::of(s, z, b, h);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c <= a.d_v; ++c)
          carry[r][c] = (c == a.d_v ? start.z : start.s) == nullptr ? 0 : exchange(start, r, c);
      }
      for (std::int64_t j = 0; j < a.segments; ++j) {
        const LinearItem item = LinearItem::of(a, b, h, backwards ? a.segments - 1 - j : j);
        if (item.absent()) continue;
        const StateRef record = records.at(b, h, item.segment);
        const float fade = records.fade(record);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c <= a.d_v; ++c) {
            float& x = exchange(record, r, c);
            const float sum = x;
            x = carry[r][c];
            carry[r][c] = fade * carry[r][c] + sum;
          }
        }
      }
    }
  });
}

}  // namespace falchion::cpu::FALCHION_LEVEL
