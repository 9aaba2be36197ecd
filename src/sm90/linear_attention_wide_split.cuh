// src/sm90/linear_attention_wide_split.cuh: how q, k and v come from memory in f32 and are taken apart, where a CTA has
// all columns of a head (linear_attention_wide.cuh).
#pragma once

#include "blocks/sm90_halves.cuh"
#include "sm90/linear_attention_chunks.cuh"
#include "sm90/linear_attention_wide_config.hpp"

namespace falchion::sm90 {

/// The warpgroups that do so. The first thread asks for boxes, too.
class LinearWideSplitter {
  using Config = LinearWideConfig;
  using Half = Config::Half;
  using Shared = Config::Shared;
  using Terms = Half[Config::kTerms][64 * 128];
  static constexpr int kThreads = 128 * Config::kSplitters, kRows = kThreads / 16, kEach = 64 / kRows;

 public:
  /// thread: of all of them.
  __device__ __forceinline__ LinearWideSplitter(const LinearCta& cta, Shared& shared, int thread)
      : maps(cta.maps),
        shared(shared),
        batch(cta.block.b),
        step(cta.chunks.step * 64),
        thread(thread),
        row(thread / 16),
        side(thread / 8 % 2),
        piece(thread % 8),
        first(cta.chunks.row(0)) {
    head[Config::kK] = cta.block.h / cta.sweep.k.shared, head[Config::kV] = cta.block.h / cta.sweep.v.shared;
    head[Config::kQ] = cta.block.h / cta.sweep.q.shared;
  }

  __device__ __forceinline__ void run(int count) {
    if (count == 0) return;
    if (thread == 0) request<0>(0), request<1>(0), request<2>(0), request<3>(0);
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
  /// Where box n of a chunk lies.
  template <int kN>
  __device__ __forceinline__ float* place(int parity) const {
    return shared.box[kN % Config::kPlaces ^ 2 * parity];
  }
  /// One thread asks for a box of this chunk, from 6 on of the next.
  template <int kN>
  __device__ __forceinline__ void request(int parity) {
    constexpr int kBox = kN % (2 * Config::kOperands), kOperand = kBox / 2;
    const CUtensorMap& map = kOperand == Config::kK ? maps.k : kOperand == Config::kV ? maps.v : maps.q;
    auto& full = shared.box_full[kBox];
    full.arrive_and_expect_tx(sizeof(shared.box[0]));
    cute::SM90_TMA_LOAD_5D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadByOthers, place<kN>(parity), 0,
                                 first + (kN == kBox ? 0 : step), kBox % 2 * 2, head[kOperand], batch);
  }
  /// A box, to registers.
  template <int kN>
  __device__ __forceinline__ void load(int parity, int phase) {
    constexpr int kBox = kN % (2 * Config::kOperands);
    shared.box_full[kBox].wait(phase);
    const float* const from = place<kN>(parity) + side * (Config::kBox / 2) + row * 32 + (piece ^ row % 8) * 4;
    CUTE_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const float4 four = *reinterpret_cast<const float4*>(from + j * kRows * 32);
      float* const to = x[j][kBox % 2];
      to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    }
  }
  /// And from there, as two f16, to where wgmma reads.
  template <int kHalf>
  __device__ __forceinline__ void store(float scale, Terms& terms) {
    const int to = row * 64 + ((4 * side + piece / 2) ^ row % 8) * 8 + piece % 2 * 4;  // 16 bytes, 8 columns
    CUTE_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const int at = to + (kHalf * 64 + j * kRows) * 64;
      split_four(x[j][kHalf], scale, terms[0] + at, terms[1] + at);
    }
  }
  /// 64 x 128, whose first half is in registers already; in the end that of the next tile is.
  template <int kOperand>
  __device__ __forceinline__ void split(int parity, bool more, Terms& terms, Barrier& empty, int empty_parity,
                                        Barrier& full) {
    constexpr int kBox = 2 * kOperand;
    load<kBox + 1>(parity, parity);
    const int exponent = find_exponent<kOperand>();
    // Those that make P are told at once. They have seen the phase before: that chunk's q was given back after it.
    if (kOperand == Config::kV && thread == 0) shared.exponent_v[parity] = exponent, shared.known.arrive();
    if (thread == 0 && (kBox + Config::kPlaces < 2 * Config::kOperands || more))  // all have read
      request<kBox + Config::kPlaces>(parity), request<kBox + 1 + Config::kPlaces>(parity);
    empty.wait(empty_parity ^ 1);
    if (kOperand == Config::kK && thread == 0) shared.exponent_k[parity] = exponent;
    if (kOperand == Config::kQ && thread % 32 == 0) shared.exponent_q[thread / 32] = exponent;
    const float scale = power_of_two(exponent);
    store<0>(scale, terms);
    load<kBox + 2>(parity, kOperand == Config::kV && more ? parity ^ 1 : parity);  // if there is no more, anything
    store<1>(scale, terms);
    publish_to_async();
    __syncwarp();
    arrive_by_warp(full);
  }
  /// Of k and v one for all tokens of the chunk; of q one for those that this warp has, every eighth pair.
  template <int kOperand>
  __device__ __forceinline__ int find_exponent() {
    constexpr int kSize = 8 * kEach;
    if constexpr (kOperand != Config::kQ)
      return exponent_for(largest_of_warps<kSize, kThreads / 32>(x[0][0], shared.largest[turn ^= 1], kOfSplitters));
    const int exponent = exponent_for(largest_of_warp<kSize>(x[0][0]));
    sync_threads<kThreads>(kOfSplitters);
    return exponent;
  }

  const LinearMaps& maps;
  Shared& shared;
  const int batch, step;
  // 16 threads a row: of each side of a box's row, 32 columns, 8 pieces of 16 bytes.
  const int thread, row, side, piece;
  int head[Config::kOperands], first, turn = 0;  // first: row of the chunk
  float x[kEach][2][4];                          // of each kRows-th row, four columns of two boxes
};

}  // namespace falchion::sm90
