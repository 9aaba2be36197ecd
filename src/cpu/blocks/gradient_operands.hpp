// src/cpu/blocks/gradient_operands.hpp: the operands of the five products of attention's backward pass, in f32: a block
// of K and V with the sums of grad_k and grad_v, and some tiles of Q and grad_o. Each level's engine
// (gradients_simd.hpp, gradients_amx.hpp) holds these rows, and adds pair by pair where its products cannot be used
// (NaN, Inf).
#pragma once

#include "args/cpu_attention_backward_args.hpp"
#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/elements.hpp"
#include "cpu/blocks/products.hpp"
#include "cpu/blocks/rows.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Keys [key0, key0 + count) of one K/V head of one sequence.
struct KeyBlock {
  std::int64_t key0 = 0;
  int count = 0;
};

/// A tile of rows as the backward pass sees it: a row whose lse is -inf sees no key.
struct GradientTile : TileRows {
  const float* lse = nullptr;  // (kM)
  const float* d = nullptr;    // (kM): grad_o . o - grad_lse
  bool partial = false;        // some lane has no row, or a row that sees no key

  FALCHION_INLINE bool has_row(int i) const { return i < count && lse[i] != -__builtin_inff(); }
};

template <class T, int kTiles>
class GradientOperands {
 public:
  using Bits = typename T::Bits;
  static constexpr int kGroup = kTiles;  // tiles of query rows that are loaded at one time

  GradientOperands(const AttentionBackwardArgs& a, Arena& arena) : a_(a) {
    k_ = Matrix::take(arena, a.keys, a.d_qk);
    v_ = Matrix::take(arena, a.keys, a.d_v);
    if (a.wants_kv) dk_ = Matrix::take(arena, a.keys, a.d_qk);
    if (a.wants_kv) dv_ = Matrix::take(arena, a.keys, a.d_v);
    for (int i = 0; i < kTiles; ++i) {
      q_[i] = Matrix::take(arena, kM, a.d_qk);
      do_[i] = Matrix::take(arena, kM, a.d_v);
    }
  }
  Matrix grad_k() const { return dk_; }
  Matrix grad_v() const { return dv_; }

 protected:
  /// Loads the keys of a block, padded with 0 to a multiple of 32 keys and columns; clears the sums of their gradients.
  void load_key_rows(const TileRows& of, const KeyBlock& block) {
    float k_spoiled = 0;
    const int padded = static_cast<int>(round_up(block.count, kBlock));
    for (int key = 0; key < padded; ++key) {
      const bool there = key < block.count;
      k_spoiled += load_row(there ? of.key_row<Bits>(a_.k, block.key0 + key) : nullptr, 1, a_.d_qk, k_, key);
      load_row(there ? of.key_row<Bits>(a_.v, block.key0 + key) : nullptr, 1, a_.d_v, v_, key);
    }
    k_spoiled_ = k_spoiled != 0;
    if (!a_.wants_kv) return;
    std::memset(dk_.data, 0, static_cast<std::size_t>(padded * dk_.ld) * sizeof(float));
    std::memset(dv_.data, 0, static_cast<std::size_t>(padded * dv_.ld) * sizeof(float));
  }
  /// Loads the rows of one tile into place `slot`, in f32. Rows that see no key become 0, since they may hold NaN.
  void load_query_rows(int slot, const GradientTile& t) {
    float q_spoiled = 0, do_spoiled = 0;
    for (int i = 0; i < kM; ++i) {
      const bool there = t.has_row(i);
      q_spoiled += load_row(there ? t.row<const Bits>(a_.q, i) : nullptr, 1, a_.d_qk, q_[slot], i);
      do_spoiled +=
          load_row(there ? t.row<const Bits>(a_.grad_o, i) : nullptr, a_.grad_o.stride[3], a_.d_v, do_[slot], i);
    }
    q_spoiled_[slot] = q_spoiled != 0;
    do_spoiled_[slot] = do_spoiled != 0;
  }

  // ---- pair by pair ------------------------------------------------------------------------------------------------
  // These functions add the same as the products, but only for the pairs of a row and a key for which seen(lane, key)
  // holds: 0 * NaN must not reach the gradient of a masked pair. P and dS are (keys, kM), and their row 0 is that of
  // key `first` of the block.

  /// rows[key] += sum over the lanes of X(key, lane) Y(lane), for the keys [first, end).
  template <class Seen>
  void add_seen_rows(const float* X, Matrix y, int first, int end, std::int64_t width, Matrix rows, const Seen& seen) {
    for (int key = first; key < end; ++key) {
      for (int i = 0; i < kM; ++i) {
        if (!seen(i, key)) continue;
        const Floats x = splat(X[(key - first) * kM + i]);
        for (std::int64_t c = 0; c < width; c += kLanes)
          store(hn::MulAdd(x, load(y.row(i) + c), load(rows.row(key) + c)), rows.row(key) + c);
      }
    }
  }
  /// dQ^T (d_qk, kM) += K^T dS^T.
  template <class Seen>
  void add_seen_queries(const float* dS, int first, int end, float* dQ, const Seen& seen) {
    for (int key = first; key < end; ++key) {
      for (int i = 0; i < kM; ++i) {
        if (!seen(i, key)) continue;
        const float ds = dS[(key - first) * kM + i];
        for (std::int64_t c = 0; c < a_.d_qk; ++c) dQ[c * kM + i] += ds * k_.row(key)[c];
      }
    }
  }

  const AttentionBackwardArgs& a_;
  Matrix k_, v_, dk_, dv_;
  Matrix q_[kTiles], do_[kTiles];
  // Whether there is a NaN or an infinity among the numbers.
  bool k_spoiled_ = false, q_spoiled_[kTiles] = {}, do_spoiled_[kTiles] = {};

 private:
  /// Converts one row, or clears it if there is none. Returns 0, or NaN if an element is NaN or infinite.
  static float load_row(const Bits* from, std::int64_t stride, std::int64_t d, Matrix to, std::int64_t i) {
    float* row = to.row(i);
    const std::int64_t n = from == nullptr ? 0 : d;
    for (std::int64_t c = n; c < to.padded(); ++c) row[c] = 0;
    return n == 0 ? 0 : convert_row<T>(from, stride, n, row);
  }
};

}  // namespace falchion::cpu::FALCHION_LEVEL
