// src/cpu/blocks/engine_simd.hpp: the two products of attention with fused multiply-adds, for any vector width and any
// input type. S^T = K Q^T and O^T += V^T P^T both multiply a vector of kM rows by one element of K or V, broadcast to
// all lanes. So neither K nor V is ever transposed: a block of each is converted to f32 once for all tiles of an item.
#pragma once

#include <type_traits>

#include "args/cpu_attention_args.hpp"
#include "cpu/blocks/any_type.hpp"
#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/elements.hpp"
#include "cpu/blocks/multiply_tile.hpp"
#include "cpu/blocks/rows.hpp"
#include "cpu/blocks/step.hpp"
#include "cpu/blocks/transpose.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// CachedT: the type of K and V, or Any where K has 8 bits.
template <class T, class CachedT = T>
class SimdEngine {
 public:
  using Cached = CachedT;
  using Scope = int;  // nothing to set up in a thread
  static constexpr bool kOverlap = false, kPacked = false;

  SimdEngine(const AttentionArgs& a, Arena& arena, int tiles)
      : a_(a), d_qk_(round_up(a.d_qk, 16)), d_v_(round_up(a.d_v, 16)) {
    q_ = arena.take<float>(tiles * d_qk_ * kM);   // Q^T (tiles, d_qk, kM)
    rows_ = arena.take<float>(16 * d_qk_);        // 16 rows of Q, to be transposed into Q^T
    k_ = arena.take<float>(a.keys * d_qk_);       // K (keys, d_qk) of the current block
    v_ = arena.take<float>(a.keys * d_v_);        // V (keys, d_v)
    spoiled_ = arena.take<std::uint8_t>(a.keys);  // rows of V with NaN or Inf
  }
  static Memory packed_memory(const AttentionArgs&) { return {}; }
  static void pack(const AttentionArgs&, const Sequence&, std::int64_t, std::int64_t, std::int64_t) {}
  static FALCHION_INLINE std::int64_t output_rows(const AttentionArgs& a) { return round_up(a.d_v, 16); }
  static FALCHION_INLINE std::int64_t p_floats(const AttentionArgs&) { return 0; }  // P overwrites S
  static FALCHION_INLINE int chunk_keys(const AttentionArgs& a) { return a.keys; }  // so a step is one chunk
  static FALCHION_INLINE int value_groups(const AttentionArgs&) { return 1; }

  void start_item(const TileRows* tiles) {
    tiles_ = tiles;
    k_block_ = v_block_ = -1;
  }
  void load_q(int tile) {
    const TileRows& t = tiles_[tile];
    float* out = q_ + tile * d_qk_ * kM;
    for (int half = 0; half < kM; half += 16) {
      std::memset(rows_, 0, static_cast<std::size_t>(16 * d_qk_) * sizeof(float));
      for (int i = 0; i < 16 && half + i < t.count; ++i)
        with_type<T, Cached>(a_.type_q, [&](auto type) {
          convert<decltype(type)>(t.row<const typename decltype(type)::Bits>(a_.q, half + i), a_.d_qk,
                                  rows_ + i * d_qk_);
        });
      for (std::int64_t c = 0; c < d_qk_; c += 16) transpose_16x16(rows_ + c, d_qk_, out + c * kM + half, kM);
    }
  }

  /// Starts S (keys, kM) = K Q^T. finish() does the work.
  void start_scores(const Chunk& chunk, float* S) {
    scores_ = chunk;
    S_ = S;
    has_scores_ = true;
  }
  /// Starts O^T (d_v, kM) += V^T P^T, for groups [first, end) of the value_groups() groups of rows of O^T.
  void start_values(const Step& step, const float* P, float* O, int first, int end) {
    values_ = step;
    P_ = P;
    O_ = O;
    has_values_ = first < end;
  }
  void start_prefetch(const Step&, int, int) {}
  int steps() const { return 0; }
  void step() {}
  void finish() {
    if (has_values_) values();  // before the scores, which overwrite P
    if (has_scores_) scores();
    has_scores_ = has_values_ = false;
  }
  void repair_scores(const Chunk&, float*) {}

  FALCHION_INLINE void put(const Step& step, float* P, int key, int v, Floats p0, Floats p1) const {
    float* p = P + (key - step.first) * kM + v * kLanes;
    store(p0, p);
    store(p1, p + kM);
  }
  float p_at(const Step& step, const float* P, int key, int lane) const { return P[(key - step.first) * kM + lane]; }
  /// Whether load_v() replaced this element of V by 0.
  static FALCHION_INLINE bool spoiled(float x) { return x - x != 0; }
  /// A flag for each key of the block whose values were added last, or null if all its V is finite.
  const std::uint8_t* spoiled_values(const Step&) const { return any_spoiled_ ? spoiled_ : nullptr; }

 protected:
  void values() {
    // In f32 each step is summed separately, because a running sum drifts (cpu/attention_forward/segments.hpp).
    constexpr Into kInto = std::is_same_v<T, f32> ? Into::sum : Into::running_sum;
    with_type<T, Cached>(a_.type_v, [&](auto type) { load_v<decltype(type)>(values_); });
    for (std::int64_t c = 0; c < d_v_; c += kR) {
      for (int u = 0; u < kM; u += kU * kLanes)
        multiply_tile<kInto>(v_ + values_.first * d_v_ + c, 1, d_v_, P_ + u, kM, values_.end - values_.first,
                             O_ + c * kM + u, kM);
    }
  }

  const AttentionArgs& a_;
  std::int64_t d_qk_, d_v_;  // padded
  float *q_, *rows_, *k_, *v_;
  std::uint8_t* spoiled_;
  bool any_spoiled_ = false, has_scores_ = false, has_values_ = false;
  const TileRows* tiles_ = nullptr;
  std::int64_t k_block_ = -1, v_block_ = -1;
  Chunk scores_{};
  Step values_{};
  float *S_ = nullptr, *O_ = nullptr;
  const float* P_ = nullptr;

 private:
  static constexpr bool kAsQ = std::is_same_v<T, Cached>;

  void scores() {
    with_type<T, Cached>(a_.type_k, [&](auto type) { load_k<decltype(type)>(scores_); });
    const float* q = q_ + scores_.tile * d_qk_ * kM;
    for (int key = scores_.begin; key < scores_.stop; key += kR) {
      for (int u = 0; u < kM; u += kU * kLanes)
        multiply_tile<Into::nothing>(k_ + key * d_qk_, d_qk_, 1, q + u, kM, a_.d_qk,
                                     S_ + (key - scores_.first) * kM + u, kM);
    }
  }
  template <class Row>
  void load_k(const Step& step) {
    if (step.block == k_block_) return;
    k_block_ = step.block;
    const TileRows& t = tiles_[step.tile];
    const std::int64_t key0 = step.block * a_.keys;
    for (int key = 0; key < a_.keys; ++key) {
      float* out = k_ + key * d_qk_;
      const auto* row = key0 + key < t.sequence.k_len ? t.key_row<typename Row::Bits>(a_.k, key0 + key) : nullptr;
      if (row != nullptr) {
        convert<Row>(row, a_.d_qk, out);
        if (!kAsQ && a_.cache) scale_row(out, a_.d_qk, t.key_scale(a_.k_scale, key0 + key));
      } else {
        std::memset(out, 0, static_cast<std::size_t>(d_qk_) * sizeof(float));
      }
    }
  }
  /// NaN and Inf of V count as 0 here, and the worker's add_spoiled_values() adds them, because 0 * NaN must not reach
  /// a row for which the key is masked.
  template <class Row>
  void load_v(const Step& step) {
    if (step.block == v_block_) return;
    v_block_ = step.block;
    any_spoiled_ = false;
    const TileRows& t = tiles_[step.tile];
    const std::int64_t key0 = step.block * a_.keys;
    for (int key = 0; key < a_.keys; ++key) {
      float* out = v_ + key * d_v_;
      std::memset(out + a_.d_v, 0, static_cast<std::size_t>(d_v_ - a_.d_v) * sizeof(float));
      spoiled_[key] = 0;
      const auto* row = key0 + key < t.sequence.k_len ? t.key_row<typename Row::Bits>(a_.v, key0 + key) : nullptr;
      if (row == nullptr) {
        std::memset(out, 0, static_cast<std::size_t>(d_v_) * sizeof(float));
        continue;
      }
      float nan = convert<Row>(row, a_.d_v, out);
      if (!kAsQ && a_.cache) nan += scale_row(out, a_.d_v, t.key_scale(a_.v_scale, key0 + key));
      if (nan != 0) {
        spoiled_[key] = 1;
        any_spoiled_ = true;
        for (std::int64_t c = 0; c < a_.d_v; ++c) out[c] = spoiled(out[c]) ? 0 : out[c];
      }
    }
  }
};

}  // namespace falchion::cpu::FALCHION_LEVEL
