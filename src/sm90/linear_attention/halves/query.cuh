// src/sm90/linear_attention/halves/query.cuh: how the output warpgroup of kernel.cuh gets q of a chunk in f32 into
// registers, as two f16 parts. At d 64 the splitters split q; at d 128 they are too busy, and the output warpgroup
// splits it (docs/design/linear_attention.md, "f32 on Hopper").
#pragma once

#include <type_traits>

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_halves.cuh"
#include "sm90/linear_attention/fragments.cuh"
#include "sm90/linear_attention/halves/config.hpp"

namespace falchion::sm90 {

/// The high and the low part of q in the layout of operand A of wgmma, and the exponents of this thread's two rows.
template <class Config>
struct LinearQueryTerms {
  decltype(make_tensor<typename Config::Half>(Layout<Int<Config::kD / 2>>{})) terms[Config::kTerms];
  int exponent[2];
};

/// q that the splitters have split. Every two rows share an exponent.
template <class Config>
struct LinearSplitQuery : LinearQueryTerms<Config> {
  /// Waits for q and loads it. there: is there another chunk? If not, it waits only for the previous phase, which is
  /// over, and loads stale data.
  FALCHION_DEVICE void load(bool there, typename Config::Shared& shared) {
    shared.full[Config::kQ][0].wait(at.parity ^ (there ? 0 : 1));
    at.advance();
    const auto* tile = shared.q[0];
    asm volatile("" : "+l"(tile));  // otherwise the compiler keeps all addresses in registers
    CUTE_UNROLL
    for (int term = 0; term < Config::kTerms; ++term) {
      auto pairs = recast<std::uint32_t>(this->terms[term]);
      CUTE_UNROLL
      for (int j = 0; j < Config::kD / 16; ++j)
        load_matrices(tile + (term * Config::kD + j / 4 * 64) * 64, j % 4, &pairs(4 * j));
    }
    // Each int has the exponents of 8 rows, a byte for every two of them. Of the 16 rows of its warp a thread has row
    // lane / 4 and row 8 + lane / 4, so the exponent of each is byte lane / 8 of one of the warp's two ints.
    const auto* const of_warp = reinterpret_cast<const int*>(shared.q_exponent) + threadIdx.x % 128 / 32 * 2;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      this->exponent[r] = static_cast<signed char>(read_by_warp(of_warp[r]) >> threadIdx.x % 32 / 8 * 8);
  }
  /// Releases q. It may be called once a product of q has started: all of q is in registers by then.
  FALCHION_DEVICE void release(typename Config::Shared& shared) {
    const float loaded = power_of_two(this->exponent[0]) + power_of_two(this->exponent[1]);
    arrive_by_warp_having(__float_as_uint(loaded), shared.empty[Config::kQ][0]);
  }

  RingPosition<1> at;
};

/// q that arrives in f32 and is split here. The 16 rows of a warp share one exponent.
template <class Config>
struct LinearWholeQuery : LinearQueryTerms<Config> {
  /// Waits for the boxes of q (if there is another chunk, as above), reads them, releases them and splits them.
  FALCHION_DEVICE void load(bool there, typename Config::Shared& shared) {
    constexpr int kPairs = Config::kD / 4;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    float x[kPairs][2];  // pair row / 8 + column / 8 * 2 has two columns of one of this thread's two rows
    int read[Config::kD / 64];
    CUTE_UNROLL
    for (int i = 0; i < Config::kD / 64; ++i, at.advance()) {
      const int box = read[i] = Config::kBoxes + at.stage;
      shared.box_full[box].wait(at.parity ^ (there ? 0 : 1));
      const float* const from = shared.box[box] + row * 32 + lane % 2 * 2;
      CUTE_UNROLL
      for (int j = 0; j < 8; ++j) {  // columns 8 j to 8 j + 7 of the box
        const int word = j / 4 * (Config::kBox / 2) + ((j % 4 * 2 + lane % 4 / 2) ^ row % 8) * 4;
        CUTE_UNROLL
        for (int r = 0; r < 2; ++r) {
          const float2 two = *reinterpret_cast<const float2*>(from + word + r * 8 * 32);
          x[16 * i + 2 * j + r][0] = two.x;
          x[16 * i + 2 * j + r][1] = two.y;
        }
      }
    }
    const unsigned largest = largest_of_warp<2 * kPairs>(x[0]);
    this->exponent[0] = this->exponent[1] = exponent_for(largest);
    CUTE_UNROLL
    for (const int box : read) arrive_by_warp_having(largest, shared.box_empty[box]);
    const float scale = power_of_two(this->exponent[0]);
    auto high = recast<std::uint32_t>(this->terms[0]), low = recast<std::uint32_t>(this->terms[1]);
    CUTE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      x[i][0] *= scale;
      x[i][1] *= scale;
      high(i) = round_half(x[i][0], x[i][1]);
      low(i) = round_half(x[i][0], x[i][1]);
    }
  }
  /// Does nothing: load has released the boxes.
  FALCHION_DEVICE void release(typename Config::Shared&) {}

  RingPosition<Config::kBoxesOfSecond> at;
};

template <class Config>
using LinearQuery = std::conditional_t<Config::kSplitQ, LinearSplitQuery<Config>, LinearWholeQuery<Config>>;

}  // namespace falchion::sm90
