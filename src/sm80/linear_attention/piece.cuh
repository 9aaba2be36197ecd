// src/sm80/linear_attention/piece.cuh: the tokens, heads and columns of one CTA of linear attention, the loads of their
// rows, and their decay. The forward pass is one sweep; the backward pass is three sweeps with the roles of the tensors
// exchanged.
#pragma once

#include "args/gpu_linear_attention_args.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/copy.cuh"
#include "gpu/blocks/mma_fragments.cuh"
#include "gpu/blocks/rows.cuh"
#include "gpu/blocks/softmax.cuh"
#include "gpu/linear_attention/sweep.cuh"
#include "sm80/linear_attention/config.hpp"

namespace falchion::sm80 {

using namespace gpu;

/// The piece of one CTA: token t of the piece, in the order of the sweep, is row first + t * step.
struct LinearPiece {
  int b, h, column0;   // columns of v and o from column0 on
  std::int64_t batch;  // batch entry of the tensors
  std::int64_t first;  // row of token 0
  int step, tokens, chunks;
  int before, length;     // tokens of the sequence: before this piece; in all
  std::int64_t in_batch;  // rows of a batch entry
  int heads;

  FALCHION_DEVICE LinearPiece(const gpu::LinearAttentionArgs& a, const LinearSweep& sweep, int b, int h, int segment,
                              int column0)
      : b(b), h(h), column0(column0), in_batch(a.s), heads(static_cast<int>(a.h_v)) {
    const Rows rows = Rows::of(b, a.packed ? a.cu_seqlens : nullptr, a.total, a.s, nullptr);
    const std::int64_t start = std::min<std::int64_t>(segment * a.segment, rows.length);
    batch = rows.batch;
    const std::int64_t end =
        segment + 1 == a.segments ? rows.length : std::min<std::int64_t>(start + a.segment, rows.length);
    tokens = static_cast<int>(end - start);
    chunks = (tokens + 63) / 64;
    before = static_cast<int>(start);
    length = rows.length;
    step = sweep.reverse ? -1 : 1;
    first = rows.begin + (sweep.reverse ? rows.length - 1 - start : start);
  }
  /// Row of token t of this piece.
  FALCHION_DEVICE std::int64_t row(int t) const { return first + t * step; }
  /// The index of token t in an array (tokens, h_v).
  FALCHION_DEVICE std::int64_t at_token(int t) const { return (batch * in_batch + row(t)) * heads + h; }
  /// Points to element 0 of row 0 of this head.
  template <class Element>
  FALCHION_DEVICE Element* base(const LinearSweep::Rows16& of) const {
    return static_cast<Element*>(of.x.data) + batch * of.x.stride[0] + h / of.shared * of.x.stride[2];
  }
};

/// Returns the sum of x over the warp, in all of its lanes.
FALCHION_DEVICE float sum_of_warp(float x) {
  for (int lanes = 1; lanes < 32; lanes *= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

/// phi(x) = elu(x) + 1, and its slope.
FALCHION_DEVICE float phi(float x) { return x > 0 ? x + 1 : exp2(x * kLog2e); }
FALCHION_DEVICE float phi_slope(float x) { return x > 0 ? 1.f : exp2(x * kLog2e); }

/// Replaces each of the 8 elements of a chunk, x[i], by f(x[i], i).
template <class Element, class F>
FALCHION_DEVICE void for_each_of_8(uint4& chunk, F f) {
  auto* x = reinterpret_cast<Element*>(&chunk);
  CUTE_UNROLL
  for (int i = 0; i < 8; ++i) x[i] = static_cast<Element>(f(static_cast<float>(x[i]), i));
}

/// Loads rows of 64 tokens from global to shared memory.
template <class Config>
class LinearRows {
 public:
  using Element = typename Config::Element;

  FALCHION_DEVICE LinearRows(const LinearPiece& piece, const LinearSweep::Rows16& of, int column0, int columns,
                             bool aligned)
      : piece(piece), step(piece.step * of.x.stride[1]), columns(columns), aligned(aligned), with_phi(of.phi) {
    from = piece.base<Element>(of) + piece.first * of.x.stride[1] + column0 + static_cast<int>(threadIdx.x) % 8 * 8;
  }
  /// Starts to load chunk c; tokens past the piece and columns past the end become 0.
  template <class Shared>
  FALCHION_DEVICE void load(int c, Shared&& sX) const {
    const int rows = piece.tokens - c * Config::kChunk;
    const Element* chunk = from + static_cast<std::int64_t>(c * Config::kChunk) * step;
    const auto at = [&](int, int row) { return chunk + row * step; };
    if (!Config::kGeneral || aligned) {
      load_rows<true>(typename Config::GlobalCopy{}, sX, rows, columns, at);
    } else {
      load_rows<false>(typename Config::GlobalCopy{}, sX, rows, columns, at);
    }
  }
  /// Applies phi to what this thread has loaded, before other threads read it. Padding stays 0.
  template <class Shared>
  FALCHION_DEVICE void apply_phi(int c, Shared&& sX) const {
    if (!Config::kGeneral || !with_phi || c * Config::kChunk >= piece.tokens) return;
    const auto thread = typename Config::GlobalCopy{}.get_slice(threadIdx.x);
    auto tXsX = thread.partition_D(sX);                                                                // (8, M, K)
    const auto tXcX = thread.partition_S(make_identity_tensor(make_shape(size<0>(sX), size<1>(sX))));  // (row, column)
    CUTE_NO_UNROLL
    for (int i = 0; i < size<1>(tXsX) * size<2>(tXsX); ++i) {
      const int m = i % size<1>(tXsX);
      const int k = i / size<1>(tXsX);
      const int column = get<1>(tXcX(0, m, k));
      if (c * Config::kChunk + static_cast<int>(get<0>(tXcX(0, m, k))) >= piece.tokens) continue;
      auto& chunk = *reinterpret_cast<uint4*>(&tXsX(0, m, k));
      for_each_of_8<Element>(chunk, [&](float x, int j) { return column + j < columns ? phi(x) : 0.f; });
    }
  }

 private:
  const LinearPiece& piece;
  const Element* from;
  std::int64_t step;
  int columns;
  bool aligned, with_phi;
};

/// The decay of a chunk, which one warp computes ahead of the others. Lane l has tokens 2 l and 2 l + 1.
template <bool kGeneral>
class DecayOfChunk {
 public:
  FALCHION_DEVICE DecayOfChunk(const LinearSweep& sweep, const LinearPiece& piece)
      : piece(piece), step(piece.step * sweep.decay.stride[1]), moved(sweep.decay_moved) {
    from = static_cast<const float*>(sweep.decay.data);
    if (from != nullptr)
      from +=
          piece.batch * sweep.decay.stride[0] + piece.first * sweep.decay.stride[1] + piece.h * sweep.decay.stride[2];
  }
  FALCHION_DEVICE bool any() const { return kGeneral && from != nullptr; }
  /// Returns g of token t in bits. g is taken as -128 at least, because e^-128 is already 0 in f32, and -inf would turn
  /// a difference into NaN.
  FALCHION_DEVICE float of_token(int t) const {
    const float g = from[t * step];
    return (g < -128 ? -128.f : g) * kLog2e;
  }
  /// Returns the factor by which the state fades when token t comes, in bits.
  FALCHION_DEVICE float bits(int t) const {
    if (!any() || t >= piece.tokens || (moved && piece.before + t == 0)) return 0;
    return of_token(t - static_cast<int>(moved));
  }
  /// The factor by which the state fades after the last token of the sequence, if decays are moved by one token.
  FALCHION_DEVICE float behind_last() const {
    return any() && moved && piece.length > 0 ? exp2(of_token(piece.tokens - 1)) : 1.f;
  }
  FALCHION_DEVICE void fetch(int c) {
    const int t = c * 64 + static_cast<int>(threadIdx.x) % 32 * 2;
    g[0] = bits(t);
    g[1] = bits(t + 1);
  }
  /// Sums in double: upto[i] becomes g_0 + ... + g_t in bits, where t is token i of this lane. Returns the sum over the
  /// chunk.
  FALCHION_DEVICE double sum_up(double (&upto)[2]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    double sum = static_cast<double>(g[0]) + static_cast<double>(g[1]);
    for (int distance = 1; distance < 32; distance *= 2) {
      const double before = __shfl_up_sync(~0u, sum, distance);
      if (lane >= distance) sum += before;
    }
    upto[0] = sum - static_cast<double>(g[1]);
    upto[1] = sum;
    return __shfl_sync(~0u, sum, 31);
  }
  /// For each token t, sum becomes g_0 + ... + g_t in bits, grown becomes 2^sum, and left becomes 2^(the sum of g of
  /// the tokens after t).
  FALCHION_DEVICE void scan(float* sum, float* grown, float* left) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float upto = g[0] + g[1];
    for (int distance = 1; distance < 32; distance *= 2) {
      const float before = __shfl_up_sync(~0u, upto, distance);
      if (lane >= distance) upto += before;
    }
    const float total = __shfl_sync(~0u, upto, 31);
    const float2 sums = {upto - g[1], upto};
    reinterpret_cast<float2*>(sum)[lane] = sums;
    reinterpret_cast<float2*>(grown)[lane] = {exp2(sums.x), exp2(sums.y)};
    reinterpret_cast<float2*>(left)[lane] = {exp2(total - sums.x), exp2(total - sums.y)};
  }

 private:
  const LinearPiece& piece;
  const float* from;
  std::int64_t step;
  bool moved;
  float g[2];
};

}  // namespace falchion::sm80
