// src/sm80/quantise/tile.cuh: the numbers of a piece of a block that one thread holds in registers, as f32: how they
// are read, rotated and written.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "args/gpu_quantise_args.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/numbers.cuh"
#include "policy/quantise.hpp"
#include "tiles/quantise/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

static_assert(kQuantiseChunk == kNumbers);

/// Four codes as the bytes of a word. Each number has been divided by its scale.
template <bool kE4m3>
FALCHION_DEVICE std::uint32_t codes_of(const float (&x)[4]) {
#if __CUDA_ARCH__ >= 890
  constexpr bool kConverted = kE4m3;
#else
  constexpr bool kConverted = false;
#endif
  if constexpr (kConverted) {  // the conversion makes NaN of NaN, but 448 of infinity
    float finite[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) finite[e] = x[e] - x[e] == 0 ? x[e] : __uint_as_float(0x7FFFFFFFu);
    std::uint16_t low, high;  // the second operand is the lower byte
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(finite[1]), "f"(finite[0]));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(finite[3]), "f"(finite[2]));
    return low | std::uint32_t{high} << 16;
  } else {
    std::uint32_t code[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if constexpr (kE4m3) {
        code[e] = quantised_e4m3(x[e]);
      } else {  // saturates at -128 and 127, and makes 0 of NaN
        asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(code[e]) : "f"(x[e] < -127.f ? -127.f : x[e]));
      }
    }
    return __byte_perm(__byte_perm(code[0], code[1], 0x0040), __byte_perm(code[2], code[3], 0x0040), 0x5410);
  }
}

/// Where a piece lies: its head, the block that it is of, and its rows.
struct QuantisePiece {
  int b, h, block;
  int begin;  // its first row
  int rows;   // 0: this CTA has no piece here

  static FALCHION_DEVICE QuantisePiece of(const QuantiseArgs& a, std::uint32_t number) {
    const bool there = number < a.b * a.h * a.pieces;
    if (!there) number = 0;
    const std::uint32_t outer = a.by_heads.divide(number), b = a.by_pieces.divide(outer);
    const std::uint32_t piece = outer - b * a.by_pieces.value(), block = a.by_pieces_of_a_block.divide(piece);
    QuantisePiece out;
    out.b = static_cast<int>(b);
    out.h = static_cast<int>(number - outer * a.by_heads.value());
    out.block = static_cast<int>(block);
    const std::int64_t first = std::int64_t{piece - block * a.by_pieces_of_a_block.value()} * a.cut.rows;
    out.begin = static_cast<int>(block * a.rows + first);
    std::int64_t rows = a.rows - first;  // that are left of the block, and of the sequence
    if (rows > a.s - out.begin) rows = a.s - out.begin;
    if (rows > a.cut.rows) rows = a.cut.rows;
    out.rows = there && rows > 0 ? static_cast<int>(rows) : 0;
    return out;
  }
  FALCHION_DEVICE std::int64_t in(const View& x, std::int64_t row) const {
    return b * x.stride[0] + row * x.stride[1] + h * x.stride[2];
  }
};

/// kWhole: each chunk is contiguous in memory, and 16 bytes are read at a time.
template <class Element, int kChunks, bool kWhole>
class QuantiseTile {
 public:
  FALCHION_DEVICE QuantiseTile(const QuantiseArgs& a, const QuantisePiece& piece, int thread)
      : a_(a), piece_(piece), thread_(thread) {}

  /// The numbers as they are before the scale; what is not there is 0.
  FALCHION_DEVICE void fetch() {
    NumberWords words[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) words[c] = load<Element>(a_.x, place(c), piece_.begin);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) v_[c][e] = number<Element>(words[c], e);
      if (a_.mean.data != nullptr) subtract_mean(c);  // chunk by chunk, which takes fewer registers
      if (a_.rotate) rotate(c);
    }
  }
  /// The bits of the largest magnitude; of two numbers that are not negative the larger one has the larger bits.
  FALCHION_DEVICE std::uint32_t most() const {
    std::uint32_t out = 0;
    each([&](float v) { out = max(out, __float_as_uint(v) & 0x7FFFFFFFu); });
    if (out < kInfinite) return out;
    if (!a_.e4m3) return kInfinite | 0x400000u;  // i8 has no NaN: the scale becomes one
    float finite = 0;                            // not by bits again, or those of all numbers are kept for this
    each([&](float v) { finite = v - v == 0 ? fmaxf(finite, fabsf(v)) : finite; });
    return __float_as_uint(finite);
  }
  FALCHION_DEVICE void store(float factor) const { a_.e4m3 ? store_as<true>(factor) : store_as<false>(factor); }

 private:
  static constexpr std::uint32_t kInfinite = 0x7F800000u;
  struct Place {
    int row, column;
    bool there;
  };

  FALCHION_DEVICE Place place(int c) const {
    auto chunk = static_cast<std::uint32_t>(thread_ + c * a_.cut.threads);
    asm volatile("" : "+r"(chunk));  // else the places are kept in registers until the end
    const std::uint32_t row = a_.by_chunks_of_a_row.divide(chunk);
    const int column = static_cast<int>(chunk - row * a_.by_chunks_of_a_row.value()) * kNumbers;
    return {static_cast<int>(row), column, static_cast<int>(row) < piece_.rows};
  }
  template <class F>
  FALCHION_DEVICE void each(F f) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) f(v_[c][e]);
    }
  }
  template <class T>
  FALCHION_DEVICE NumberWords load(const View& x, const Place& at, std::int64_t begin) const {
    if (!at.there) return {};
    const T* from = static_cast<const T*>(x.data) + piece_.in(x, begin + at.row) + at.column * x.stride[3];
    if constexpr (kWhole) {
      return load_words(from, sizeof(T) == 4);
    } else {
      float some[kNumbers];
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) some[e] = at.column + e < a_.d ? static_cast<float>(from[e * x.stride[3]]) : 0;
      return words_of<T>(some);
    }
  }
  FALCHION_DEVICE void subtract_mean(int c) {
    Place at = place(c);
    at.row = 0;
    const NumberWords mean = load<float>(a_.mean, at, 0);
#pragma unroll
    for (int e = 0; e < kNumbers; ++e) v_[c][e] -= number<float>(mean, e);
  }
  /// The butterflies of a fast Hadamard transform: those of up to four columns apart are a thread's own, the others
  /// those of threads whose lanes differ in one bit. A block of the rotation lies in lanes side by side, because its
  /// chunks are a power of two that divides those of a row.
  FALCHION_DEVICE void rotate(int c) {
    const int size = rotation_size(a_.d);
    const float factor = rotation_factor(size);
#pragma unroll
    for (int step = 1; step < kNumbers; step *= 2) {
      if (step >= size) break;
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) {
        if ((e & step) != 0) continue;
        const float one = v_[c][e], other = v_[c][e + step];
        v_[c][e] = one + other;
        v_[c][e + step] = one - other;
      }
    }
    for (int by = 1; by * kNumbers < size; by *= 2) {
      const float sign = (thread_ & by) != 0 ? -1.f : 1.f;
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, v_[c][e], by);
        v_[c][e] = fmaf(v_[c][e], sign, other);
      }
    }
#pragma unroll
    for (int e = 0; e < kNumbers; ++e) v_[c][e] = __fmul_rn(v_[c][e], factor);
  }
  template <bool kE4m3>
  FALCHION_DEVICE void store_as(float factor) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const Place at = place(c);
      if (!at.there) continue;
      std::uint32_t word[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float four[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) four[e] = __fmul_rn(v_[c][4 * half + e], factor);
        word[half] = codes_of<kE4m3>(four);
      }
      std::uint8_t* to =
          static_cast<std::uint8_t*>(a_.y.data) + piece_.in(a_.y, piece_.begin + at.row) + at.column * a_.y.stride[3];
      if constexpr (kWhole) {
        *reinterpret_cast<uint2*>(to) = {word[0], word[1]};
      } else {
#pragma unroll
        for (int e = 0; e < kNumbers; ++e) {
          if (at.column + e < a_.d) to[e * a_.y.stride[3]] = static_cast<std::uint8_t>(word[e / 4] >> (8 * (e % 4)));
        }
      }
    }
  }

  const QuantiseArgs& a_;
  const QuantisePiece& piece_;
  const int thread_;
  float v_[kChunks][kNumbers];
};

}  // namespace falchion::sm80
