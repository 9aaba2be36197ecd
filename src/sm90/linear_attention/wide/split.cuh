// src/sm90/linear_attention/wide/split.cuh: loads q, k and v in f32 and splits them into two f16 parts in wide CTAs,
// which have all columns of a head (kernel.cuh). docs/design/linear_attention.md, "Wide: all 128 columns of a head in
// one CTA", describes it.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_halves.cuh"
#include "sm90/linear_attention/cta.cuh"
#include "sm90/linear_attention/wide/config.hpp"

namespace falchion::sm90 {

/// The splitters, two warpgroups that split q, k and v of each chunk, in this order. Each operand arrives as two boxes
/// of 64 tokens x 64 columns, which are numbered 0 to 5 in a chunk. There are four places for boxes, and the first
/// thread issues their loads four ahead.
class LinearWideSplitter {
  using Config = LinearWideConfig;
  using Half = Config::Half;
  using Shared = Config::Shared;
  using Terms = Half[Config::kTerms][64 * 128];
  static constexpr int kThreads = 128 * Config::kSplitters;
  static constexpr int kRows = kThreads / 16;
  static constexpr int kEach = 64 / kRows;

 public:
  /// thread: its number among the threads of all splitters.
  FALCHION_DEVICE LinearWideSplitter(const LinearCta& cta, Shared& shared, int thread)
      : maps(cta.maps),
        shared(shared),
        batch(cta.block.b),
        step(cta.chunks.step * 64),
        thread(thread),
        row(thread / 16),
        side(thread / 8 % 2),
        piece(thread % 8),
        first(cta.chunks.row(0)) {
    head[Config::kK] = cta.block.h / cta.sweep.k.shared;
    head[Config::kV] = cta.block.h / cta.sweep.v.shared;
    head[Config::kQ] = cta.block.h / cta.sweep.q.shared;
  }

  FALCHION_DEVICE void run(int count) {
    if (count == 0) return;
    if (thread == 0) {
      request<0>(0);
      request<1>(0);
      request<2>(0);
      request<3>(0);
    }
    load<0>(0, 0);
    RingPosition<Config::kStagesOfK> at;
    CUTE_NO_UNROLL
    for (; count > 0; --count, at.advance(), first += step) {
      const bool more = count > 1;
      split<Config::kQ>(at.stage, more, shared.q, shared.q_empty, at.stage, shared.q_full);
      split<Config::kK>(at.stage, more, shared.k[at.stage], shared.k_empty[at.stage], at.parity,
                        shared.k_full[at.stage]);
      split<Config::kV>(at.stage, more, shared.v, shared.v_empty, at.stage, shared.v_full);
    }
  }

 private:
  /// Where box kN of a chunk lies. A chunk has six boxes and there are four places, so the next chunk is shifted by
  /// two.
  template <int kN>
  FALCHION_DEVICE float* place(int parity) const {
    return shared.box[kN % Config::kPlaces ^ 2 * parity];
  }
  /// Called by one thread: issues the load of box kN of this chunk; from 6 on these are the boxes of the next chunk.
  template <int kN>
  FALCHION_DEVICE void request(int parity) {
    constexpr int kBox = kN % (2 * Config::kOperands);
    constexpr int kOperand = kBox / 2;
    const CUtensorMap& map = kOperand == Config::kK ? maps.k : kOperand == Config::kV ? maps.v : maps.q;
    auto& full = shared.box_full[kBox];
    full.arrive_and_expect_tx(sizeof(shared.box[0]));
    cute::SM90_TMA_LOAD_5D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadByOthers, place<kN>(parity), 0,
                                 first + (kN == kBox ? 0 : step), kBox % 2 * 2, head[kOperand], batch);
  }
  /// Waits for a box and reads it into registers.
  template <int kN>
  FALCHION_DEVICE void load(int parity, int phase) {
    constexpr int kBox = kN % (2 * Config::kOperands);
    shared.box_full[kBox].wait(phase);
    const float* const from = place<kN>(parity) + side * (Config::kBox / 2) + row * 32 + (piece ^ row % 8) * 4;
    CUTE_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const float4 four = *reinterpret_cast<const float4*>(from + j * kRows * 32);
      float* const to = x[j][kBox % 2];
      to[0] = four.x;
      to[1] = four.y;
      to[2] = four.z;
      to[3] = four.w;
    }
  }
  /// Splits the numbers that load has read, columns 64 kHalf to 64 kHalf + 63, and stores both parts in the layout of
  /// wgmma.
  template <int kHalf>
  FALCHION_DEVICE void store(float scale, Terms& terms) {
    const int to = row * 64 + ((4 * side + piece / 2) ^ row % 8) * 8 + piece % 2 * 4;  // 16 bytes, 8 columns
    CUTE_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const int at = to + (kHalf * 64 + j * kRows) * 64;
      split_four(x[j][kHalf], scale, terms[0] + at, terms[1] + at);
    }
  }
  /// Splits a tile of 64 x 128. On entry its first box is in registers, on exit the first box of the next tile. In
  /// between it reads the second box; finds the exponent, where all splitters synchronise; issues the loads of the next
  /// boxes in the places of these two; waits until the place for the parts is free (empty), writes them and signals
  /// full.
  template <int kOperand>
  FALCHION_DEVICE void split(int parity, bool more, Terms& terms, Barrier& empty, int empty_parity, Barrier& full) {
    constexpr int kBox = 2 * kOperand;
    load<kBox + 1>(parity, parity);
    const int exponent = find_exponent<kOperand>();
    // The warpgroup that makes P gets the exponents as early as possible. It cannot miss a phase of `known`: it
    // releases q after it has waited for `known`, and q of this chunk was written only after that of the previous chunk
    // had been released.
    if (kOperand == Config::kV && thread == 0) {
      shared.exponent_v[parity] = exponent;
      shared.known.arrive();
    }
    // All splitters have read both boxes by now, since find_exponent synchronises them after their maxima.
    if (thread == 0 && (kBox + Config::kPlaces < 2 * Config::kOperands || more)) {
      request<kBox + Config::kPlaces>(parity);
      request<kBox + 1 + Config::kPlaces>(parity);
    }
    empty.wait(empty_parity ^ 1);
    if (kOperand == Config::kK && thread == 0) shared.exponent_k[parity] = exponent;
    if (kOperand == Config::kQ && thread % 32 == 0) shared.exponent_q[thread / 32] = exponent;
    const float scale = power_of_two(exponent);
    store<0>(scale, terms);
    // Without a next tile this reads stale data, which is never used.
    load<kBox + 2>(parity, kOperand == Config::kV && more ? parity ^ 1 : parity);
    store<1>(scale, terms);
    publish_to_async();
    __syncwarp();
    arrive_by_warp(full);
  }
  /// k and v have one exponent for all tokens of the chunk. q has one for the eight tokens of this warp, which are
  /// every eighth pair. All splitters synchronise here, and none may pass before all have read their boxes, because TMA
  /// writes the next boxes there. A barrier alone does not wait for loads that are in flight, but a maximum of the
  /// loaded numbers does. For k and v each maximum has to cross the barrier, so it comes before. For q nothing crosses
  /// the barrier: the empty asm makes the compiler have the exponent before it goes on, and ptxas leaves the maximum,
  /// in which all lanes of a warp take part (REDUX), on its side of a barrier (BAR).
  template <int kOperand>
  FALCHION_DEVICE int find_exponent() {
    constexpr int kSize = 8 * kEach;
    if constexpr (kOperand != Config::kQ)
      return exponent_for(largest_of_warps<kSize, kThreads / 32>(x[0][0], shared.largest[turn ^= 1], kOfSplitters));
    int exponent = exponent_for(largest_of_warp<kSize>(x[0][0]));
    asm volatile("" : "+r"(exponent)::"memory");
    sync_threads<kThreads>(kOfSplitters);
    return exponent;
  }

  const LinearMaps& maps;
  Shared& shared;
  const int batch, step;
  // 16 threads share a row of a box: `side` says which 32 columns, `piece` which of their 8 pieces of 16 bytes.
  const int thread, row, side, piece;
  int head[Config::kOperands], first, turn = 0;  // first: the first token of the chunk
  float x[kEach][2][4];                          // four columns of two boxes, in every kRows-th row
};

}  // namespace falchion::sm90
