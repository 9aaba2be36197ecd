// src/sm80/linear_attention/store.cuh: stores O^T from the accumulators to rows of o.
#pragma once

#include "base/host_device.hpp"
#include "sm80/linear_attention/piece.cuh"

namespace falchion::sm80 {

/// Transposes an 8 x 8 matrix of 16-bit elements in the layout of mma's accumulators.
FALCHION_DEVICE std::uint32_t transpose_8x8(std::uint32_t x) {
  std::uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

/// Stores 64 columns of o of one piece.
template <class Config>
class LinearOutput {
 public:
  using Element = typename Config::Element;
  using Mma = typename Config::TiledMma;
  static constexpr int kC = Config::kChunk, kM = Config::kColumns;

  FALCHION_DEVICE LinearOutput(const LinearSweep& sweep, const LinearPiece& piece, typename Config::Shared& shared,
                               int columns, bool aligned)
      : sweep(sweep),
        piece(piece),
        shared(shared),
        columns(columns),
        aligned(aligned),
        o(piece.base<Element>(sweep.o) + piece.first * sweep.o.x.stride[1] + piece.column0 + threadIdx.x % 8 * 8),
        step_o(piece.step * sweep.o.x.stride[1]) {}

  /// Writes O^T, of which a warp has 16 columns of o, to shared memory as (C, M). From there all threads store it by
  /// rows.
  template <class Output>
  FALCHION_DEVICE void stage(int c, const Output& rO) {
    auto rounded = make_tensor<Element>(rO.layout());  // ((2 t, 2 m), 1, C / 8)
    convert(rO, rounded);
    const auto pairs = recast<std::uint32_t>(rounded);  // ((1, 2), 1, tiles of 8 tokens)
    const auto cO = Mma{}.get_thread_slice(0).partition_C(make_identity_tensor(Shape<Int<kM>, Int<kC>>{}));
    const auto sO = make_tensor(make_smem_ptr(shared.o[c % 2]), typename Config::LayoutV{});
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    CUTE_UNROLL
    for (int i = 0; i < size<2>(pairs); ++i) {
      const int t = static_cast<int>(get<1>(cO(0, 0, i))) + lane / 4;
      CUTE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t x = transpose_8x8(pairs(make_coord(0, half), 0, i));
        *reinterpret_cast<std::uint32_t*>(&sO(t, 16 * warp + 8 * half + lane % 4 * 2)) = x;
      }
    }
  }
  FALCHION_DEVICE void store(int c) const {
    const auto sO = make_tensor(make_smem_ptr(shared.o[c % 2]), typename Config::LayoutV{});
    const int column = static_cast<int>(threadIdx.x) % 8 * 8;
    const int left = columns - column;
    if (left <= 0) return;
    CUTE_UNROLL
    for (int i = 0; i < kC / (Config::kThreads / 8); ++i) {
      const int t = i * (Config::kThreads / 8) + static_cast<int>(threadIdx.x) / 8;
      if (c * kC + t >= piece.tokens) break;
      uint4 chunk = *reinterpret_cast<const uint4*>(&sO(t, column));
      if (Config::kGeneral && sweep.slope.data != nullptr) apply_slope(piece.row(c * kC + t), column, chunk);
      Element* to = o + (c * kC + t) * step_o;
      if (!Config::kGeneral || (aligned && left >= 8)) {
        *reinterpret_cast<uint4*>(to) = chunk;
      } else {
        for (int j = 0; j < 8 && j < left; ++j) to[j] = reinterpret_cast<const Element*>(&chunk)[j];
      }
    }
  }

 private:
  FALCHION_DEVICE void apply_slope(std::int64_t row, int column, uint4& chunk) const {
    const LinearSweep::Rows16 of{sweep.slope, sweep.o.shared};
    const Element* x = piece.base<const Element>(of) + row * of.x.stride[1] + piece.column0 + column;
    for_each_of_8<Element>(
        chunk, [&](float o, int j) { return column + j < columns ? o * phi_slope(static_cast<float>(x[j])) : 0.f; });
  }

  const LinearSweep& sweep;
  const LinearPiece& piece;
  typename Config::Shared& shared;
  const int columns;
  const bool aligned;
  Element* const o;  // this thread's columns of token 0
  const std::int64_t step_o;
};

}  // namespace falchion::sm80
