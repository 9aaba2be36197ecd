// src/cpu/blocks/gradients_simd.hpp: the five products of attention's backward pass with fused multiply-adds, for any
// vector width and any input type. With queries as lanes these are
//   S^T = K Q^T    dP^T = V dO^T    dV += P^T dO    dK += dS^T Q    dQ^T += K^T dS^T
// and each multiplies a vector by one element that is broadcast to all lanes. So nothing but Q and dO is transposed.
#pragma once

#include <type_traits>

#include "cpu/blocks/gradient_operands.hpp"
#include "cpu/blocks/multiply_tile.hpp"
#include "cpu/blocks/transpose.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

template <class T>
class SimdGradients : public GradientOperands<T, 1> {
  using Base = GradientOperands<T, 1>;
  using Base::a_, Base::k_, Base::v_, Base::dk_, Base::dv_, Base::q_, Base::do_;

 public:
  using Scope = int;  // nothing to set up in a thread
  /// The most keys of a step: P and dS of it take 32 KB, and stay in L1 from the products that make them to those that
  /// read them.
  static constexpr int kStepKeys = 128, kChunkKeys = 128;
  /// In f32 the sums over all queries and keys add 32 queries (dV, dK) or a step's keys (dQ) as a whole, because each
  /// addition to a running sum rounds at its magnitude.
  static constexpr Into kSum = std::is_same_v<T, f32> ? Into::sum : Into::running_sum;

  SimdGradients(const AttentionBackwardArgs& a, Arena& arena) : Base(a, arena) {
    q_turned_ = arena.take<float>(round_up(a.d_qk, 16) * kM);
    do_turned_ = arena.take<float>(round_up(a.d_v, 16) * kM);
  }
  static FALCHION_INLINE std::int64_t query_rows(const AttentionBackwardArgs& a) { return round_up(a.d_qk, 16); }

  void load_keys(const TileRows& of, const KeyBlock& block) { this->load_key_rows(of, block); }
  void load_queries(int slot, const GradientTile& t) {
    this->load_query_rows(slot, t);
    turn(q_[slot], a_.d_qk, q_turned_);
    turn(do_[slot], a_.d_v, do_turned_);
  }
  /// S^T = K Q^T and dP^T = V dO^T, both (keys, kM), for n keys of the block from `first` on.
  void scores(int, int first, int n, float* S, float* dP) {
    multiply<Into::nothing>(k_.row(first), k_.ld, 1, q_turned_, kM, n, kM, a_.d_qk, S, kM);
    multiply<Into::nothing>(v_.row(first), v_.ld, 1, do_turned_, kM, n, kM, a_.d_v, dP, kM);
  }
  void repair(int, int, int, float*, float*) {}
  void start_step(int) {}  // a step begins with this key of the block
  /// Call it when all tiles of a group are loaded. Returns whether P and dS of the group are read in f32 after put().
  bool finish_queries(int, const GradientTile*) { return true; }
  /// Accepts P and dS of two keys of a chunk and one vector of rows. This engine reads them where they were made.
  struct Put {
    FALCHION_INLINE void operator()(int, int, Floats, Floats, Floats, Floats) const {}
  };
  FALCHION_INLINE Put put(int, int) { return {}; }
  static constexpr bool kPuts = false;
  /// Call it if no row of a tile sees any of these keys.
  void put_nothing(int, int, int) {}

  /// The products over one step: the keys [first, end) of the block and the rows of the group's tiles. P(slot) and
  /// dS(slot) are (keys, kM), and dQ(slot) is dQ^T. masked: the step has masked pairs; dropped: there is dropout.
  /// seen(slot, lane, key): whether the row sees the key; kept(slot, lane, key): whether the pair contributes to dV. If
  /// NaN or Inf would reach a masked pair, the product is computed pair by pair.
  template <class Buffers, class Seen, class Kept>
  void products(int, int first, int end, bool masked, bool dropped, const Buffers& x, const Seen& seen,
                const Kept& kept) {
    const int n = end - first;
    if (a_.wants_kv) {
      if (this->do_spoiled_[0] && (masked || dropped)) {
        this->add_seen_rows(x.P(0, first), do_[0], first, end, a_.d_v, dv_,
                            [&](int i, int key) { return kept(0, i, key); });
      } else {
        multiply<kSum>(x.P(0, first), kM, 1, do_[0].data, do_[0].ld, n, a_.d_v, kM, dv_.row(first), dv_.ld);
      }
      if (this->q_spoiled_[0] && masked) {
        this->add_seen_rows(x.dS(0, first), q_[0], first, end, a_.d_qk, dk_,
                            [&](int i, int key) { return seen(0, i, key); });
      } else {
        multiply<kSum>(x.dS(0, first), kM, 1, q_[0].data, q_[0].ld, n, a_.d_qk, kM, dk_.row(first), dk_.ld);
      }
    }
    if (!a_.wants_q) return;
    if (this->k_spoiled_ && masked) {
      this->add_seen_queries(x.dS(0, first), first, end, x.dQ(0), [&](int i, int key) { return seen(0, i, key); });
    } else {
      multiply<kSum>(k_.row(first), 1, k_.ld, x.dS(0, first), kM, a_.d_qk, kM, n, x.dQ(0), kM);
    }
  }

 private:
  /// C (rows, cols) = or += A B. Up to kR - 1 rows and kU vectors past its end may be overwritten.
  template <Into kInto>
  static void multiply(const float* a, std::int64_t a_row, std::int64_t a_step, const float* b, std::int64_t b_row,
                       std::int64_t rows, std::int64_t cols, std::int64_t depth, float* c, std::int64_t c_row) {
    for (std::int64_t u = 0; u < cols; u += kU * kLanes) {
      for (std::int64_t r = 0; r < rows; r += kR)
        multiply_tile<kInto>(a + r * a_row, a_row, a_step, b + u, b_row, depth, c + r * c_row + u, c_row);
    }
  }
  static void turn(Matrix rows, std::int64_t d, float* out) {
    for (int half = 0; half < kM; half += 16) {
      for (std::int64_t c = 0; c < d; c += 16) transpose_16x16(rows.row(half) + c, rows.ld, out + c * kM + half, kM);
    }
  }

  float *q_turned_, *do_turned_;  // Q^T (d_qk, kM), dO^T (d_v, kM)
};

}  // namespace falchion::cpu::FALCHION_LEVEL
