// src/sm90/linear_attention/halves/split.cuh: loads k, v and (at d 64) q in f32 and splits them into two f16 parts for
// kernel.cuh. One thread loads boxes by TMA for each ring, and two warpgroups split them.
// docs/design/linear_attention.md, "f32 on Hopper", has the reasons.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_halves.cuh"
#include "sm90/linear_attention/cta.cuh"
#include "sm90/linear_attention/halves/config.hpp"

namespace falchion::sm90 {

/// The thread that fills ring kRing of boxes. A box has 64 x 64 floats and lies as two tiles of 32 columns. At d 64
/// each of the two teams of splitters has a ring. At d 128 ring 0 has k and v for the splitters, and ring 1 has q for
/// the output warpgroup. Two teams cannot share a ring: boxes may arrive out of order, and a team that is ahead would
/// mistake the previous phase for its own, because a barrier has the same parity every other phase.
template <class Config, int kRing>
class BoxLoader {
 public:
  FALCHION_DEVICE BoxLoader(const LinearCta& cta, typename Config::Shared& shared) : cta(cta), shared(shared) {}

  FALCHION_DEVICE void run() {
    const LinearSweep& sweep = cta.sweep;
    const int h = cta.block.h;
    const int head_q = h / sweep.q.shared;
    const int head_k = h / sweep.k.shared;
    const int head_v = h / sweep.v.shared;
    const auto load_all = [&](const ChunkRange& chunks, int count, bool with_q) {
      CUTE_NO_UNROLL
      for (int i = 0; i < count; ++i) {  // not unrolled, since this warp has few registers
        load<Config::kK, Config::kD>(cta.maps.k, 0, head_k, chunks.row(i));
        load<Config::kV, Config::kColumns>(cta.maps.v, cta.column0, head_v, chunks.row(i));
        if (with_q) load<Config::kQ, Config::kD>(cta.maps.q, 0, head_q, chunks.row(i));
      }
    };
    load_all(cta.summed, cta.to_sum(), false);
    load_all(cta.chunks, cta.chunks.count, true);
  }

 private:
  template <int kOperand, int kColumns>
  FALCHION_DEVICE void load(const CUtensorMap& map, int first, int head, int row) {
    if constexpr (Config::kSplitQ) {  // the teams take turns: one tile for ring 0, the next for ring 1
      if ((turn ^= 1) == kRing) load_boxes<kColumns>(map, first, head, row);
    } else if constexpr ((kOperand == Config::kQ) == (kRing == 1)) {
      load_boxes<kColumns>(map, first, head, row);
    }
  }
  template <int kColumns>
  FALCHION_DEVICE void load_boxes(const CUtensorMap& map, int first, int head, int row) {
    CUTE_NO_UNROLL
    for (int column = first; column < first + kColumns; column += 64, at.advance()) {
      const int box = kRing * Config::kBoxes + at.stage;
      shared.box_empty[box].wait(at.parity ^ 1);
      shared.box_full[box].arrive_and_expect_tx(sizeof(shared.box[0]));
      CUTE_UNROLL
      for (int half = 0; half < 2; ++half)
        cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&shared.box_full[box]), kReadByOthers,
                                     shared.box[box] + half * 64 * 32, column + 32 * half, head, row, cta.block.b);
    }
  }

  const LinearCta& cta;
  typename Config::Shared& shared;
  RingPosition<kRing == 0 ? Config::kBoxes : Config::kBoxesOfSecond> at;
  int turn = 1;
};

/// The warpgroups that split, called the splitters. For a tile they wait for its boxes and read them, find the largest
/// number, release the boxes, wait until a place for the parts is free (empty), write the parts there and signal full.
/// Each of these steps waits for the one before it. Where two warpgroups split half a tile each, a tile takes them 1400
/// clocks; where each splits a tile of its own (two teams), it takes 2200.
template <class Config>
class LinearSplitter {
  using Half = typename Config::Half;
  using Shared = typename Config::Shared;
  static constexpr int kTeams = Config::kTeams;
  static constexpr int kThreads = 128 * Config::kSplitters / kTeams;
  static constexpr int kRows = kThreads / 16;
  static constexpr int kEach = 64 / kRows;  // a thread has four columns of every kRows-th row

 public:
  /// thread: its number among the threads of all splitters.
  FALCHION_DEVICE explicit LinearSplitter(int thread)
      : team(kTeams > 1 ? thread / kThreads : 0),
        thread(thread % kThreads),
        row(thread % kThreads / 16),
        half(thread / 8 % 2),
        chunk(thread % 8) {}

  /// First to_sum chunks without q, then `count` chunks.
  FALCHION_DEVICE void run(int to_sum, int count, Shared& shared) {
    RingPosition<Config::kStages> at;
    RingPosition<1> at_q;
    CUTE_NO_UNROLL
    for (int i = 0; i < to_sum + count; ++i, at.advance()) {
      split<Config::kK, Config::kD>(shared, at, shared.k[0][at.stage], shared.k[1][at.stage]);
      split<Config::kV, Config::kColumns>(shared, at, shared.v[0][at.stage], shared.v[1][at.stage]);
      if constexpr (Config::kSplitQ) {
        if (i < to_sum) continue;
        split<Config::kQ, Config::kD>(shared, at_q, shared.q[0], shared.q[1]);
        at_q.advance();
      }
    }
  }

 private:
  /// Splits a tile of operand kOperand, 64 rows of kColumns, unless it is the other team's turn.
  template <int kOperand, int kColumns, class At>
  FALCHION_DEVICE void split(Shared& shared, const At& at, Half* high, Half* low) {
    constexpr int kBoxes = kColumns / 64, kExponents = kOperand == Config::kQ ? kEach : 1;
    if (kTeams > 1 && (turn ^= 1) != team) return;
    float x[kEach][4 * kBoxes];
    int read[kBoxes], exponent[kExponents];
    CUTE_UNROLL
    for (int i = 0; i < kBoxes; ++i, box.advance()) {
      read[i] = box.stage;
      shared.box_full[team * Config::kBoxes + box.stage].wait(box.parity);
      const float* const from =
          shared.box[team * Config::kBoxes + box.stage] + half * (Config::kBox / 2) + row * 32 + (chunk ^ row % 8) * 4;
      CUTE_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const float4 four = *reinterpret_cast<const float4*>(from + j * kRows * 32);
        float* const to = x[j] + 4 * i;
        to[0] = four.x;
        to[1] = four.y;
        to[2] = four.z;
        to[3] = four.w;
      }
    }
    const unsigned largest = find_exponents<kOperand, 4 * kBoxes>(x, exponent, shared);
    CUTE_UNROLL
    for (const int stage : read) arrive_by_warp_having(largest, shared.box_empty[team * Config::kBoxes + stage]);
    shared.empty[kOperand][at.stage].wait(at.parity ^ 1);
    store_exponents<kOperand>(exponent, at.stage, shared);
    // In the swizzle that wgmma reads, whose units are 16 bytes, that is, 8 columns.
    const int to = row * 64 + ((4 * half + chunk / 2) ^ row % 8) * 8 + chunk % 2 * 4;
    CUTE_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const float scale = power_of_two(exponent[j % kExponents]);
      CUTE_UNROLL
      for (int i = 0; i < kBoxes; ++i) {
        const int at = to + (i * 64 + j * kRows) * 64;
        split_four(x[j] + 4 * i, scale, high + at, low + at);
      }
    }
    publish_to_async();
    __syncwarp();
    arrive_by_warp(shared.full[kOperand][at.stage]);
  }

  /// k and v have one exponent for all tokens of the chunk, so all warps of the team compare their maxima. q has one
  /// for every two tokens, and these two belong to the same warp. Returns the bits of the largest |x|.
  template <int kOperand, int kSize, int kExponents>
  FALCHION_DEVICE unsigned find_exponents(const float (&x)[kEach][kSize], int (&exponent)[kExponents], Shared& shared) {
    unsigned largest = 0;
    if constexpr (kOperand == Config::kQ) {
      CUTE_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const unsigned of_two = largest_of_warp<kSize>(x[j]);
        exponent[j] = exponent_for(of_two);
        largest = max(largest, of_two);
      }
    } else {
      unsigned* const of_warps = shared.largest[team][parity ^= 1];  // some warps may still read the previous one
      largest = largest_of_warps<kEach * kSize, kThreads / 32>(x[0], of_warps, kOfSplitters + team);
      exponent[0] = exponent_for(largest);
    }
    return largest;
  }
  template <int kOperand, int kExponents>
  FALCHION_DEVICE void store_exponents(const int (&exponent)[kExponents], int stage, Shared& shared) {
    if constexpr (kOperand != Config::kQ) {
      if (thread == 0) shared.exponent[kOperand][stage] = exponent[0];
    } else if (thread % 32 == 0) {
      CUTE_UNROLL
      for (int j = 0; j < kEach; ++j) shared.q_exponent[(row + j * kRows) / 2] = static_cast<signed char>(exponent[j]);
    }
  }

  // 16 threads share a row of a box: `half` says which 32 columns, `chunk` which of their 8 chunks of 16 bytes.
  const int team, thread, row, half, chunk;
  RingPosition<Config::kBoxes> box;
  int turn = 1, parity = 0;
};

}  // namespace falchion::sm90
