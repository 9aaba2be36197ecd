// src/cpu/blocks/products.hpp: the four small products of a chunk of linear attention (cpu/linear_attention/chunk.hpp)
// with fused multiply-adds. Everything is f32 and row-major. A transpose of the left operand costs nothing.
#pragma once

#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/multiply_tile.hpp"
#include "cpu/blocks/transpose.hpp"
#include "cpu/blocks/upcoming.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

inline constexpr int kChunk = 64;  // tokens
inline constexpr int kBlock = 32;  // rows and columns are allocated in whole blocks of this

/// Rows are ld floats apart, an odd number of cache lines, so that a column of vectors spreads over all sets of L1. The
/// memory past the last row or column, up to the next block, may be overwritten.
struct Matrix {
  float* data = nullptr;
  std::int64_t ld = 0;
  FALCHION_INLINE float* row(std::int64_t i) const { return data + i * ld; }
  FALCHION_INLINE std::int64_t padded() const { return ld - 16; }  // the columns, rounded up to blocks

  static Matrix take(Arena& arena, std::int64_t rows, std::int64_t cols) {
    const std::int64_t ld = round_up(cols, kBlock) + 16;
    return {arena.take<float>(round_up(rows, kBlock) * ld), ld};
  }
};

/// Rows of a chunk. The columns up to the next block and the rows up to the next 16 are 0.
struct Rows {
  Matrix m;
  std::int64_t width = 0;
  bool spoiled = false;  // whether some element is NaN or infinite
  // If not null, the rows are bf16 at this address, and m and spoiled are not set. Only products of bf16 (kBf16) accept
  // such rows.
  const std::uint16_t* in_place = nullptr;
  std::int64_t in_place_row = 0;  // elements from one row to the next
};

struct State {
  Matrix m;             // (width of y, width of w)
  bool zero = true;     // the state is 0, and m is not valid
  bool packed = false;  // update() has packed it into tiles, and it has not changed since
};

class SimdProducts {
 public:
  using Scope = int;                                             // nothing to set up in a thread
  static constexpr bool kFetches = kSteps;                       // whether they fetch upcoming() while they multiply
  static constexpr int kAhead = 1;                               // how many chunks ahead rows are fetched
  static constexpr bool kBf16 = false;                           // whether operands are rounded to bf16
  static FALCHION_INLINE Floats rounded(Floats x) { return x; }  // x rounded as an operand is

  /// `widest` is the largest width of X, Y and W.
  SimdProducts(Arena& arena, std::int64_t widest)
      : turned_(Matrix::take(arena, widest, kChunk)),
        scores_(Matrix::take(arena, kChunk, kChunk)),
        out_(Matrix::take(arena, kChunk, widest)) {}

  /// Call it when X, Y and W hold new numbers.
  void start() {}
  Upcoming& upcoming() { return upcoming_; }

  /// Out (n, w) = P W + X_s S, where P (n, n) = X Y^T at columns c <= r. keep(r, end, c, end_c, p) is called to modify
  /// rows [r, end) and columns [c, end_c) of P, which p holds; it must leave 0 where c > r. done(r, end, c, cols, out)
  /// is called when rows [r, end) and `cols` columns from c on of Out are computed; `out` holds them.
  template <class Keep, class Done>
  FALCHION_INLINE void outputs(std::int64_t n, const Rows& x, const Rows& y, const Rows& w, const Rows& x_s,
                               const State& s, const Keep& keep, const Done& done) {
    scores(n, x, y, scores_);                     // P = X Y^T
    keep(0, n, 0, round_up(n, kBlock), scores_);  // P = 0 for later tokens
    // The zeros of P may not be multiplied by NaN or Inf of W, so then each row is summed only up to its diagonal.
    w.spoiled ? multiply_causal<1>(n, scores_, w, out_) : multiply_causal<kR>(n, scores_, w, out_);  // Out = P W
    if (!s.zero)
      multiply<Into::running_sum>(x_s.m.data, x_s.m.ld, 1, s.m, n, w.width, x_s.width, out_);  // Out += X_s S
    done(0, n, 0, w.width, out_);
  }
  /// Adds Y^T W over n rows to S (y, w), summed separately first, since a running sum over all rows would drift.
  void update(std::int64_t n, const Rows& y, const Rows& w, State* s) {
    s->zero ? multiply<Into::nothing>(y.m.data, 1, y.m.ld, w.m, y.width, w.width, n, s->m)
            : multiply<Into::sum>(y.m.data, 1, y.m.ld, w.m, y.width, w.width, n, s->m);
    s->zero = s->packed = false;
  }

 private:
  /// P (n, n) = X Y^T where c <= r. The rest of P is undefined.
  void scores(std::int64_t n, const Rows& x, const Rows& y, Matrix p) {
    constexpr int kWide = kU * kLanes;
    for (std::int64_t i = 0; i < n; i += 16) {
      for (std::int64_t c = 0; c < y.width; c += 16)
        transpose_16x16(y.m.row(i) + c, y.m.ld, turned_.row(c) + i, turned_.ld);
    }
    for (std::int64_t u = 0; u < n; u += kWide) {
      // For the first rows only the first half of the columns is needed; skipping the rest saves 2 % of a sweep.
      for (std::int64_t r = u; r < u + kWide / 2; r += kR)
        multiply_tile<Into::nothing, kR, kU / 2>(x.m.row(r), x.m.ld, 1, turned_.data + u, turned_.ld, x.width,
                                                 p.row(r) + u, p.ld, upcoming_);
      for (std::int64_t r = u + kWide / 2; r < n; r += kR)
        multiply_tile<Into::nothing, kR>(x.m.row(r), x.m.ld, 1, turned_.data + u, turned_.ld, x.width, p.row(r) + u,
                                         p.ld, upcoming_);
    }
  }

  template <Into kInto>
  FALCHION_INLINE void multiply(const float* a, std::int64_t a_row, std::int64_t a_step, Matrix b, std::int64_t rows,
                                std::int64_t cols, std::int64_t depth, Matrix c) {
    for (std::int64_t u = 0; u < cols; u += kU * kLanes) {
      for (std::int64_t r = 0; r < rows; r += kR)
        multiply_tile<kInto, kR>(a + r * a_row, a_row, a_step, b.data + u, b.ld, depth, c.row(r) + u, c.ld, upcoming_);
    }
  }
  template <int kRows>
  FALCHION_INLINE void multiply_causal(std::int64_t n, Matrix p, const Rows& w, Matrix out) {
    for (std::int64_t u = 0; u < w.width; u += kU * kLanes) {
      for (std::int64_t r = 0; r < n; r += kRows)
        multiply_tile<Into::nothing, kRows>(p.row(r), p.ld, 1, w.m.data + u, w.m.ld, min(n, r + kRows), out.row(r) + u,
                                            out.ld, upcoming_);
    }
  }

  Matrix turned_, scores_, out_;
  Upcoming upcoming_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
