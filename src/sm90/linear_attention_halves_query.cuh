// src/sm90/linear_attention_halves_query.cuh: q of a chunk as two f16 in registers, as operand A of wgmma lies, with an
// exponent for each of a thread's two rows (linear_attention_halves.cuh).
#pragma once

#include <type_traits>

#include "blocks/sm90_halves.cuh"
#include "sm90/linear_attention_chunks.cuh"
#include "sm90/linear_attention_halves_config.hpp"

namespace falchion::sm90 {

template <class Config>
struct LinearQueryTerms {
  decltype(make_tensor<typename Config::Half>(Layout<Int<Config::kD / 2>>{})) terms[Config::kTerms];
  int exponent[2];
};

/// The splitters have taken it apart, and every two rows have an exponent.
template <class Config>
struct LinearSplitQuery : LinearQueryTerms<Config> {
  /// there: is there any? If not, it does not wait.
  __device__ __forceinline__ void load(bool there, typename Config::Shared& shared) {
    shared.full[Config::kQ][0].wait(at.parity ^ (there ? 0 : 1));  // the phase before is over
    at.advance();
    const auto* tile = shared.q[0];
    asm volatile("" : "+l"(tile));  // else all addresses wait in registers
    CUTE_UNROLL
    for (int term = 0; term < Config::kTerms; ++term) {
      auto pairs = recast<std::uint32_t>(this->terms[term]);
      CUTE_UNROLL
      for (int j = 0; j < Config::kD / 16; ++j)
        load_matrices(tile + (term * Config::kD + j / 4 * 64) * 64, j % 4, &pairs(4 * j));
    }
    // Of 16 rows a thread has one of the first eight and one of the others.
    const auto* const of_warp = reinterpret_cast<const int*>(shared.q_exponent) + threadIdx.x % 128 / 32 * 2;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      this->exponent[r] = static_cast<signed char>(read_by_warp(of_warp[r]) >> threadIdx.x % 32 / 8 * 8);
  }
  /// Once a product has started: then all of it is in registers.
  __device__ __forceinline__ void release(typename Config::Shared& shared) {
    const float loaded = power_of_two(this->exponent[0]) + power_of_two(this->exponent[1]);
    arrive_by_warp_having(__float_as_uint(loaded), shared.empty[Config::kQ][0]);
  }

  RingPosition<1> at;
};

/// Taken apart here; each warp's 16 rows have an exponent.
template <class Config>
struct LinearWholeQuery : LinearQueryTerms<Config> {
  __device__ __forceinline__ void load(bool there, typename Config::Shared& shared) {
    constexpr int kPairs = Config::kD / 4;
    const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    float x[kPairs][2];  // (2 columns, row / 8, column / 8)
    int read[Config::kD / 64];
    CUTE_UNROLL
    for (int i = 0; i < Config::kD / 64; ++i, at.advance()) {
      const int box = read[i] = Config::kBoxes + at.stage;
      shared.box_full[box].wait(at.parity ^ (there ? 0 : 1));
      const float* const from = shared.box[box] + row * 32 + lane % 2 * 2;
      CUTE_UNROLL
      for (int j = 0; j < 8; ++j) {  // eight columns each
        const int word = j / 4 * (Config::kBox / 2) + ((j % 4 * 2 + lane % 4 / 2) ^ row % 8) * 4;
        CUTE_UNROLL
        for (int r = 0; r < 2; ++r) {
          const float2 two = *reinterpret_cast<const float2*>(from + word + r * 8 * 32);
          x[16 * i + 2 * j + r][0] = two.x, x[16 * i + 2 * j + r][1] = two.y;
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
      x[i][0] *= scale, x[i][1] *= scale;
      high(i) = round_half(x[i][0], x[i][1]), low(i) = round_half(x[i][0], x[i][1]);
    }
  }
  __device__ __forceinline__ void release(typename Config::Shared&) {}

  RingPosition<Config::kBoxesOfSecond> at;
};

template <class Config>
using LinearQuery = std::conditional_t<Config::kSplitQ, LinearSplitQuery<Config>, LinearWholeQuery<Config>>;

}  // namespace falchion::sm90
