// src/sm80/linear_attention/kernel.cuh: causal linear attention in chunks of 64 tokens, with mma.sync. ref/ defines the
// result; this file gives the order of the steps. Inside a chunk it is attention without softmax: P = tril(Q K^T), O =
// P V. Earlier chunks are in the state S: O += Q S, and then S += K^T V (arXiv:2006.04768, 2312.06635). P of the next
// chunk does not depend on S, so it is computed while this chunk is multiplied. docs/design/linear_attention.md has the
// measurements.
#pragma once

#include "base/host_device.hpp"
#include "sm80/linear_attention/f16_range.cuh"
#include "sm80/linear_attention/state.cuh"
#include "sm80/linear_attention/store.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// The work of one CTA: 64 columns of v and o, for all tokens of a piece. With kZ it computes the normaliser too, as if
/// v had one more column, of ones.
template <class Config_>
class LinearChunks : public LinearChunkState<Config_> {
  using State = LinearChunkState<Config_>;

 public:
  using Config = Config_;
  using State::kC, State::kE, State::kM, State::kStages, State::kZ;
  using typename State::Element, typename State::Mma, typename State::Shared;
  static constexpr int kAhead = kStages - 1;  // how many chunks ahead loads are started

  FALCHION_DEVICE LinearChunks(const gpu::LinearAttentionArgs& a, const LinearSweep& sweep, const LinearPiece& piece,
                               Shared& shared)
      : State(a, sweep, piece, shared), o(sweep, piece, shared, columns, a.aligned) {}

  /// Computes o of all tokens, and leaves the state after the last token in rS.
  FALCHION_DEVICE void run() {
    const int chunks = piece.chunks;
    for (int c = 0; c < kAhead; ++c) load(c, true);
    start_decay();
    cp_async_wait<kAhead - 1>();
    arrived(0, true);
    __syncthreads();
    auto rP = partition_fragment_C(Mma{}, Shape<Int<kC>, Int<kC>>{});  // (4, 1, C / 8) f32
    auto rO = partition_fragment_C(Mma{}, Shape<Int<kM>, Int<kC>>{});  // (4, 1, C / 8) f32
    multiply_q_k(0, rP);                                               // P = Q K^T
    store_p(0, rP);                                                    // P = 0 for later tokens
    for (int c = 0; c < chunks; ++c) {
      if constexpr (kStages > 2) {
        cp_async_wait<kAhead - 2>();
        arrived(c + 1, true);
      }
      // P of chunk c is written, with 3 stages all of chunk c + 1 has arrived too, and no thread still reads chunk c
      // - 1.
      __syncthreads();
      load(c + kAhead, true);
      scan_decay(c + 2);
      if (c > 0) o.store(c - 1);
      read_v(c);
      make_o(c, rO);    // O = Q S + P V
      update_state(c);  // S += K^T V
      if constexpr (kStages == 2) {
        cp_async_wait<0>();
        arrived(c + 1, true);
        __syncthreads();
      }
      if (!Config::kStoresLast) o.stage(c, rO);
      multiply_q_k(c + 1, rP);  // P = Q K^T of the next chunk; after the last one its result is not used
      if (Config::kStoresLast) o.stage(c, rO);
      store_p(c + 1, rP);  // P = 0 for later tokens
    }
    cp_async_wait<0>();
    __syncthreads();
    if (chunks > 0) o.store(chunks - 1);
  }
  /// Computes only the state after the last token. Returns the factor by which a state fades over the piece, in bits
  /// (its logarithm to base 2).
  FALCHION_DEVICE float run_state() {
    float faded = 0;
    for (int c = 0; c < kAhead; ++c) load(c, false);
    start_decay();
    for (int c = 0; c < piece.chunks; ++c) {
      cp_async_wait<kAhead - 1>();
      arrived(c, false);
      __syncthreads();
      load(c + kAhead, false);
      scan_decay(c + 2);
      if (decay.any()) faded += shared.sum[c % 3][kC - 1];
      read_v(c);
      update_state(c);
    }
    return faded;
  }

  static FALCHION_DEVICE float behind_last() { return 1; }

 private:
  // ---- P = tril(Q K^T) (C, C) ---------------------------------------------------------------------------------------

  template <class Scores>
  FALCHION_DEVICE void multiply_q_k(int c, Scores& rP) const {
    const auto sQ = tile_q(c), sK = tile_k(c);
    const Mma mma;
    const auto thread = mma.get_thread_slice(threadIdx.x);
    const auto copy_q = make_tiled_copy_A(typename Config::CopyAtom{}, mma).get_thread_slice(threadIdx.x);
    const auto copy_k = make_tiled_copy_B(typename Config::CopyAtom{}, mma).get_thread_slice(threadIdx.x);
    auto rQ = thread.partition_fragment_A(sQ);  // (8, 1, E / 16)
    auto rK = thread.partition_fragment_B(sK);  // (4, C / 8, E / 16)
    auto rQ_view = copy_q.retile_D(rQ);
    auto rK_view = copy_k.retile_D(rK);
    const auto tQsQ = copy_q.partition_S(sQ);
    const auto tKsK = copy_k.partition_S(sK);
    clear(rP);
    multiply(
        mma, rP, rQ, rK, [&](auto i) { copy(typename Config::CopyAtom{}, tQsQ(_, _, i), rQ_view(_, _, i)); },
        [&](auto i) { copy(typename Config::CopyAtom{}, tKsK(_, _, i), rK_view(_, _, i)); });
  }
  template <class Scores>
  FALCHION_DEVICE void store_p(int c, Scores& rP) const {
    auto P = rows_columns(rP);
    const Mma mma;
    const auto cP =
        rows_columns(mma.get_thread_slice(threadIdx.x).partition_C(make_identity_tensor(Shape<Int<kC>, Int<kC>>{})));
    if (decay.any()) fade_p(c, P, cP);
    if constexpr (std::is_same_v<Element, f16>) {
      CUTE_UNROLL
      for (int i = 0; i < size(P); ++i) P(i) *= down_for<Element>(sweep.scale);
    }
    // mask.keep: a warp has 16 rows, so of each 16 columns it keeps all, none, or those on and below the diagonal.
    const int warp = static_cast<int>(threadIdx.x) / 32;
    CUTE_UNROLL
    for (int i = 0; i < size<1>(P); ++i) {
      CUTE_UNROLL
      for (int r = 0; r < size<0>(P); ++r) {
        const bool below = get<1>(cP(0, i % 4)) <= get<0>(cP(r, 0)) - 16 * warp;
        P(r, i) = i / 4 < warp || (i / 4 == warp && below) ? P(r, i) : 0.f;
      }
    }
    auto rounded = make_tensor<Element>(rP.layout());
    convert(rP, rounded);
    auto sP = tile(shared.p[c % 2], typename Config::LayoutP{});
    const auto out = make_tiled_copy_C(typename Config::CopyAtomP{}, mma).get_thread_slice(threadIdx.x);
    copy(typename Config::CopyAtomP{}, out.retile_S(rounded), out.partition_D(sP));
  }

  /// Multiplies each element of P by the decay between its two tokens.
  template <class Matrix, class Coordinates>
  FALCHION_DEVICE void fade_p(int c, Matrix& P, const Coordinates& cP) const {
    const float* sum = shared.sum[c % 3];
    CUTE_UNROLL
    for (int r = 0; r < size<0>(P); ++r) {
      const int t = static_cast<int>(get<0>(cP(r, 0)));
      const float sum_t = sum[t];
      CUTE_UNROLL
      for (int i = 0; i < size<1>(P); ++i) {
        const int s = static_cast<int>(get<1>(cP(r, i)));
        P(r, i) *= exp2(s <= t ? sum_t - sum[s] : 0.f);
      }
    }
  }

  // ---- O^T = S^T Q^T + V^T P^T (M, C) -------------------------------------------------------------------------------

  /// Computes A B with B = X^T, where X (C, .) lies in shared memory. For each step i it calls a(i, multiply), which
  /// calls multiply(operand A of step i, accumulators). With kTriangle, X (C, C) is 0 above its diagonal, so that step
  /// i needs only the rows from 16 i on.
  template <bool kTriangle, class X, class A>
  FALCHION_DEVICE void multiply_by_rows(const X& sX, A a) const {
    Mma mma;
    const auto copy_x = make_tiled_copy_B(typename Config::CopyAtom{}, mma).get_thread_slice(threadIdx.x);
    auto rX = mma.get_thread_slice(threadIdx.x).partition_fragment_B(sX);  // (4, C / 8, . / 16)
    auto view = copy_x.retile_D(rX);
    const auto tXsX = copy_x.partition_S(sX);
    constexpr int kSteps = decltype(size<2>(rX))::value;
    const auto read = [&](int i) {
      CUTE_UNROLL
      for (int n = kTriangle ? i : 0; n < kC / 16; ++n) copy(typename Config::CopyAtom{}, tXsX(_, n, i), view(_, n, i));
    };
    read(0);
    for_each(make_int_sequence<kSteps>{}, [&](auto i) {
      if constexpr (decltype(i)::value + 1 < kSteps) read(i + _1{});
      a(i, [&](const auto& rA, auto& rC) {
        CUTE_UNROLL
        for (int n = kTriangle ? 2 * i : 0; n < kC / 8; ++n) {
          auto atom = rC(_, _0{}, n);
          mma.call(rA(_, _0{}), rX(_, n, i), atom);
        }
      });
    });
  }

  template <class Output>
  FALCHION_DEVICE void make_o(int c, Output& rO) {
    const auto sP = tile(shared.p[c % 2], typename Config::LayoutP{});
    [[maybe_unused]] Output rN;  // the same for the column of ones
    clear(rO);
    if constexpr (kZ) clear(rN);
    float small;
    if constexpr (kZ) {
      small = shrink_for<Element>(rS, rZ);
    } else {
      small = shrink_for<Element>(rS);
    }
    multiply_by_rows<false>(tile_q(c), [&](auto i, auto multiply) {
      multiply(operand_of(rS, i, small), rO);
      if constexpr (kZ) multiply(operand_of(rZ, i, small), rN);
    });
    scale_tokens(rO, c, down_for<Element>(sweep.scale) / small);
    if constexpr (kZ) scale_tokens(rN, c, down_for<Element>(sweep.scale) / small);
    multiply_by_rows<true>(sP, [&](auto i, auto multiply) {
      multiply(rV(_, _, i), rO);
      if constexpr (kZ) multiply(ones(), rN);
    });
    CUTE_UNROLL
    for (int i = 0; i < size(rO); ++i) {
      rO(i) *= sweep.scale / down_for<Element>(sweep.scale);
      if constexpr (kZ) rO(i) = __fdividef(rO(i), fmaf(rN(i), sweep.scale / down_for<Element>(sweep.scale), sweep.eps));
    }
  }
  static FALCHION_DEVICE auto ones() {
    auto x = make_tensor<Element>(Shape<_8, _1>{});
    fill(x, Element(1));
    return x;
  }
  /// Multiplies column t of O^T by `factor` and by the decay of the state since the beginning of the chunk.
  template <class Output>
  FALCHION_DEVICE void scale_tokens(Output& rO, int c, float factor) const {
    if (!decay.any() && !std::is_same_v<Element, f16>) return;
    auto O = rows_columns(rO);
    const auto cO =
        rows_columns(Mma{}.get_thread_slice(threadIdx.x).partition_C(make_identity_tensor(Shape<Int<kM>, Int<kC>>{})));
    CUTE_UNROLL
    for (int i = 0; i < size<1>(O); ++i) {
      const float x = decay.any() ? factor * shared.grown[c % 3][get<1>(cO(0, i))] : factor;
      CUTE_UNROLL
      for (int r = 0; r < size<0>(O); ++r) O(r, i) *= x;
    }
  }

  using State::load, State::arrived, State::start_decay, State::scan_decay, State::read_v, State::update_state;
  using State::sweep, State::piece, State::shared, State::columns, State::decay, State::rV, State::rS, State::rZ;
  using State::tile, State::tile_q, State::tile_k, State::operand_of;
  LinearOutput<Config> o;
};

}  // namespace falchion::sm80
