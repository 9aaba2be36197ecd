// src/sm80/linear_attention/exact/store.cuh: the end of a chunk of o in shared memory, in the kernels with f32 between
// all products. It is stored as rows of o, as rows of a gradient (multiplied by the slope of phi), or as f32 parts that
// are summed later; or only its dot products with other rows are stored.
#pragma once

#include "base/host_device.hpp"
#include "sm80/linear_attention/piece.cuh"

namespace falchion::sm80 {

/// Stores up to 64 columns of o. `staged` holds a chunk of them by rows. A warp has every eighth token, and a lane
/// every 32nd column.
template <class Config>
class LinearExactOutput {
 public:
  using Element = typename Config::Element;
  static constexpr int kC = Config::kChunk;

  FALCHION_DEVICE LinearExactOutput(const LinearSweep& sweep, const LinearPiece& piece, int columns,
                                    const float* staged)
      : sweep(sweep),
        piece(piece),
        columns(columns),
        warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        staged(staged) {}

  FALCHION_DEVICE void store(int c) const {
    if (sweep.dots != nullptr) return store_dots(c);
    if (sweep.partial) return store_rows<float>(c);
    store_rows<Element>(c);
  }

 private:
  /// The rows of chunk c in a tensor that has the same rows as o.
  template <class To>
  struct RowsBeside {
    To* from;
    std::int64_t step;
    FALCHION_DEVICE RowsBeside(const LinearExactOutput& of, const View& x, int c)
        : from(of.piece.template base<To>({x, of.sweep.o.shared}) + of.piece.row(c * kC) * x.stride[1] +
               of.piece.column0),
          step(of.piece.step * x.stride[1]) {}
    FALCHION_DEVICE To& at(int token, int m) const { return from[token * step + m]; }
  };
  /// Calls f(token of the chunk, column, element) for this thread's elements.
  template <class F>
  FALCHION_DEVICE void for_each(int c, F f) const {
    const int tokens = min(piece.tokens - c * kC, kC);
#pragma unroll 2
    for (int token = warp; token < tokens; token += Config::kWarps) {
      for (int m = lane; m < columns; m += 32) f(token, m, staged[token * Config::kStrideP + m]);
    }
  }
  template <class To>
  FALCHION_DEVICE void store_rows(int c) const {
    const RowsBeside<To> rows(*this, sweep.o.x, c);
    if (sweep.slope.data == nullptr)
      return for_each(c, [&](int token, int m, float o) { rows.at(token, m) = static_cast<To>(o); });
    const RowsBeside<const Element> x(*this, sweep.slope, c);
    for_each(c, [&](int token, int m, float o) {
      rows.at(token, m) = static_cast<To>(o * phi_slope(static_cast<float>(x.at(token, m))));
    });
  }
  /// Stores two dot products for each token, over the columns of this CTA: those of o and of v with a row of
  /// sweep.dot_with.
  FALCHION_DEVICE void store_dots(int c) const {
    const std::int64_t tile = piece.column0 / Config::kColumns * sweep.normaliser.tokens * piece.heads;
    const int tokens = min(piece.tokens - c * kC, kC);
    const RowsBeside<const Element> with(*this, sweep.dot_with, c), v(*this, sweep.v.x, c);
    for (int token = warp; token < tokens; token += Config::kWarps) {
      float sum = 0, own = 0;
      for (int m = lane; m < columns; m += 32) {
        const float x = static_cast<float>(with.at(token, m));
        sum = fmaf(staged[token * Config::kStrideP + m], x, sum);
        own = fmaf(static_cast<float>(v.at(token, m)), x, own);
      }
      sum = sum_of_warp(sum);
      own = sum_of_warp(own);
      const std::int64_t at = tile + piece.at_token(c * kC + token);
      if (lane == 0) {
        sweep.dots[at] = sum;
        sweep.own_dots[at] = own;
      }
    }
  }

  const LinearSweep& sweep;
  const LinearPiece& piece;
  const int columns, warp, lane;
  const float* const staged;  // (C, M), with rows kStrideP floats apart
};

}  // namespace falchion::sm80
