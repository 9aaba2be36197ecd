// src/sm80/linear_attention/exact/rows.cuh: what the kernels with f32 between all products need around these products:
// rows that are converted to f32 on arrival, and the weights of tokens.
#pragma once

#include "base/host_device.hpp"
#include "sm80/linear_attention/piece.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// phi as the kernels with f32 between all products compute it. For 16-bit elements the result is rounded to a TF32
/// number, so that it needs only one part, like the elements themselves. NaN stays NaN.
template <class Element>
FALCHION_DEVICE float phi_exact(float x) {
  const float y = phi(x);
  if (sizeof(Element) == 4 || !(fabsf(y) < FALCHION_INF)) return y;
  return __uint_as_float((__float_as_uint(y) + 0x1000) & 0xFFFFE000);
}

/// Returns the sum of x over all threads of the CTA. of_warps has room for one float per warp.
template <int kWarps>
FALCHION_DEVICE float sum_of_cta(float x, float* of_warps) {
  x = sum_of_warp(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
  for (int warp = 0; warp < kWarps; ++warp) x += of_warps[warp];
  return x;
}

/// Loads rows of 64 tokens from global to shared memory, where they become f32. A thread has 8 columns of every 32nd
/// row.
template <class Config, int kWidth, int kStride>
class LinearExactRows {
 public:
  using Element = typename Config::Element;

  FALCHION_DEVICE LinearExactRows(const LinearPiece& piece, const LinearSweep::Rows16& of, int column0, int columns,
                                  bool aligned)
      : piece(piece), step(piece.step * of.x.stride[1]), columns(columns), aligned(aligned), with_phi(of.phi) {
    from = piece.base<Element>(of) + piece.first * of.x.stride[1] + column0;
  }
  /// Starts to load chunk c; tokens past the piece and columns past the end become 0. 16-bit elements are copied as
  /// they are, into the first half of their space as f32.
  FALCHION_DEVICE void load(int c, float* tile) const {
    const int rows = piece.tokens - c * Config::kChunk;
    const Element* chunk = from + static_cast<std::int64_t>(c * Config::kChunk) * step;
    if (Config::kGeneral && !aligned) return load_elements(chunk, rows, tile);
    CUTE_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const Mine at(i);
      const bool inside = at.row < rows && at.column < columns;
      const Element* x = chunk + at.row * step + at.column;
      copy_async(x, at.in(tile), inside);
      if constexpr (sizeof(Element) == 4) copy_async(x + 4, at.in(tile) + 4, inside && at.column + 4 < columns);
    }
  }
  /// Converts to f32 what this thread has loaded, and applies phi to it, before other threads read it.
  FALCHION_DEVICE void arrived(int c, float* tile) const {
    if (sizeof(Element) == 4 && (!Config::kGeneral || !with_phi)) return;
    const int rows = piece.tokens - c * Config::kChunk;
    CUTE_NO_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const Mine at(i);
      alignas(16) Element loaded[8];
      alignas(16) float x[8];
      CUTE_UNROLL
      for (int j = 0; j < static_cast<int>(sizeof(loaded) / 16); ++j)
        reinterpret_cast<uint4*>(loaded)[j] = reinterpret_cast<const uint4*>(at.in(tile))[j];
      CUTE_UNROLL
      for (int j = 0; j < 8; ++j) {
        x[j] = static_cast<float>(loaded[j]);
        if (with_phi) x[j] = at.row < rows && at.column + j < columns ? phi_exact<Element>(x[j]) : 0.f;
      }
      reinterpret_cast<float4*>(at.in(tile))[0] = reinterpret_cast<const float4*>(x)[0];
      reinterpret_cast<float4*>(at.in(tile))[1] = reinterpret_cast<const float4*>(x)[1];
    }
  }

 private:
  /// The i-th group of 8 columns that this thread has.
  struct Mine {
    int row, column;
    FALCHION_DEVICE explicit Mine(int i)
        : row(static_cast<int>(threadIdx.x) / 8 + i % kRows * (Config::kThreads / 8)),
          column(static_cast<int>(threadIdx.x) % 8 * 8 + i / kRows * 64) {}
    FALCHION_DEVICE float* in(float* tile) const { return tile + row * kStride + column; }
  };
  static constexpr int kRows = Config::kChunk / (Config::kThreads / 8);
  static constexpr int kMine = kRows * kWidth / 64;

  /// Loads elements one by one, for rows that do not start at multiples of 16 bytes.
  FALCHION_DEVICE void load_elements(const Element* chunk, int rows, float* tile) const {
    CUTE_NO_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const Mine at(i);
      const Element* x = chunk + at.row * step + at.column;
      auto* to = reinterpret_cast<Element*>(at.in(tile));
      CUTE_UNROLL
      for (int j = 0; j < 8; ++j) to[j] = at.row < rows && at.column + j < columns ? x[j] : Element(0);
    }
  }

  const LinearPiece& piece;
  const Element* from;
  std::int64_t step;
  int columns;
  bool aligned, with_phi;
};

/// The weights of P, S and V of a chunk, token by token. One warp computes them ahead of the other warps. The letters
/// are those of LinearNormaliser. `grown` is the factor by which the state before the chunk has faded at the token, and
/// `left` is the factor by which the token fades until the end of the chunk. A sum of decays is kept in two floats,
/// kSum + kLow, because small differences of such sums matter. With `tails` the last token of a sequence does not enter
/// the state.
template <bool kGeneral>
class LinearWeights {
 public:
  enum { kSum, kLow, kA, kB, kAlpha, kBeta, kGrownA, kLeftB, kGrownAlpha, kLeftBeta, kArrays };

  FALCHION_DEVICE LinearWeights(const LinearSweep& sweep, const LinearPiece& piece)
      : decay(sweep, piece), n(sweep.normaliser), piece(piece), without_last(sweep.tails != nullptr) {}
  FALCHION_DEVICE bool any() const { return kGeneral && (decay.any() || n.any()); }
  FALCHION_DEVICE bool with_z() const { return kGeneral && n.dots != nullptr; }

  /// start() computes the weights of chunk 0, before anything else. next() computes those of chunk c, while the other
  /// warps work on the chunk before it.
  template <class Memory>
  FALCHION_DEVICE void start(Memory& memory) {
    if constexpr (kGeneral) {
      if (!any() || threadIdx.x >= 32) return;
      fetch(0);
      store(0, memory[0]);
      fetch(1);
    }
  }
  template <class Memory>
  FALCHION_DEVICE void next(int c, Memory& memory) {
    if constexpr (kGeneral) {
      if (!any() || threadIdx.x >= 32) return;
      store(c, memory[c % 2]);
      fetch(c + 1);
    }
  }
  FALCHION_DEVICE float behind_last() const { return decay.behind_last(); }

 private:
  FALCHION_DEVICE void fetch(int c) {
    decay.fetch(c);
    CUTE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int t = c * 64 + static_cast<int>(threadIdx.x) % 32 * 2 + i;
      inverse[i] = 1;
      dn[i] = 0;
      if (!n.any() || t >= piece.tokens) continue;
      const std::int64_t at = piece.at_token(t);
      inverse[i] = n.inverse[at];
      if (n.dots != nullptr) dn[i] = n.of_token(at, piece.heads).dn;
    }
  }
  FALCHION_DEVICE void store(int c, float (&w)[kArrays][64]) {
    const bool of_q = n.of == LinearNormaliser::Of::q, of_k = n.of == LinearNormaliser::Of::k;
    double sums[2];
    const double total = decay.sum_up(sums);
    CUTE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int t = static_cast<int>(threadIdx.x) % 32 * 2 + i;
      const bool left_out = without_last && piece.before + c * 64 + t + 1 == piece.length;
      const float grown = exp2(static_cast<float>(sums[i]));
      const float left = left_out ? 0.f : exp2(static_cast<float>(total - sums[i]));
      const float a = of_q ? inverse[i] : 1, b = of_k ? inverse[i] : 1;
      const float alpha = of_q ? dn[i] : 1, beta = of_k ? dn[i] : 1;
      w[kSum][t] = static_cast<float>(sums[i]);
      w[kLow][t] = static_cast<float>(sums[i] - static_cast<double>(w[kSum][t]));
      w[kA][t] = a;
      w[kB][t] = b;
      w[kAlpha][t] = alpha;
      w[kBeta][t] = beta;
      w[kGrownA][t] = grown * a;
      w[kLeftB][t] = left * b;
      w[kGrownAlpha][t] = grown * alpha;
      w[kLeftBeta][t] = left * beta;
    }
  }
  DecayOfChunk<kGeneral> decay;
  const LinearNormaliser& n;
  const LinearPiece& piece;
  const bool without_last;
  float inverse[2], dn[2];
};

}  // namespace falchion::sm80
