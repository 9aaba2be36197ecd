// src/sm80/gemm/load.cuh: loads blocks of k of A and B to shared memory.
#pragma once

#include <cute/arch/copy_sm80.hpp>
#include <cute/arch/util.hpp>

#include "base/host_device.hpp"
#include "gpu/blocks/async.cuh"
#include "gpu/gemm/tile.hpp"
#include "sm80/gemm/config.hpp"

namespace falchion::sm80 {

using namespace gpu;

using gpu::GemmArgs;
using gpu::GemmTile;
using gpu::Major;

/// One operand of a tile: its rows in the tensor, and their addresses.
template <class Config>
struct GemmOperand {
  using Element = typename Config::Element;
  const Element* data;                // of the first row
  std::int64_t left;                  // rows of the tensor from there on
  std::int64_t stride, of_k2, of_k1;  // in elements
  std::uint32_t k1, k_end;
  // With swiglu, pairs: the distance from a gate's row to its row of "up", in elements. Else 0: all rows follow each
  // other.
  std::int64_t up = 0;
  bool pairs = false;

  static FALCHION_DEVICE GemmOperand a_of(const GemmArgs& a, const GemmTile& t) { return of(a, t, a.a, t.row0, a.m); }
  static FALCHION_DEVICE GemmOperand b_of(const GemmArgs& a, const GemmTile& t) {
    GemmOperand b = of(a, t, a.b, t.column0, a.n);
    b.pairs = a.activation == GemmActivation::swiglu;
    b.up = a.n * b.stride;
    return b;
  }
  FALCHION_DEVICE bool has(int row) const { return row_of(row) < left; }
  FALCHION_DEVICE int row_of(int row) const {
    return pairs ? row / (2 * Config::kGroup) * Config::kGroup + row % Config::kGroup : row;
  }
  /// offset(x + y) = offset(x) + offset(y) where x and y have no bit in common.
  FALCHION_DEVICE std::int64_t offset(int row) const {
    return row_of(row) * stride + (pairs && (row & Config::kGroup) != 0 ? up : 0);
  }
  /// k is split into k2 and k1. kNext: of_k1 is 1.
  template <bool kNext = false>
  FALCHION_DEVICE std::int64_t offset_of_k(std::uint32_t k) const {
    const auto along_k1 = [&](std::uint32_t inner) { return kNext ? std::int64_t{inner} : inner * of_k1; };
    if (k1 >= k_end) return along_k1(k);
    const std::uint32_t outer = k / k1;
    return outer * of_k2 + along_k1(k - outer * k1);
  }
  /// How many of `count` numbers from k on are inside.
  FALCHION_DEVICE int inside(std::uint32_t k, int count) const {
    return k < k_end ? static_cast<int>(min(k_end - k, static_cast<std::uint32_t>(count))) : 0;
  }

 private:
  static FALCHION_DEVICE GemmOperand of(const GemmArgs& a, const GemmTile& t, const View& x, std::int64_t row0,
                                        std::int64_t rows) {
    const auto* data = static_cast<const Element*>(x.data) + t.batch * x.stride[0] + row0 * x.stride[1];
    return {data,
            rows - row0,
            x.stride[1],
            x.stride[2],
            x.stride[3],
            static_cast<std::uint32_t>(a.k1),
            static_cast<std::uint32_t>(t.k1)};
  }
};

/// Loads a tile in a 16-bit type, with a specialisation for each layout of the operand.
template <class Config, Major kMajor>
class GemmLoader;

/// 16 bytes of k at a time: 8 threads load a line, which is a row.
template <class Config>
class GemmLoader<Config, Major::k> {
 public:
  explicit FALCHION_DEVICE GemmLoader(const GemmOperand<Config>& x) : x_(x), from_(x.data + x.offset(line0())) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) rows_ |= x.has(line0() + i * kStep) ? 1u << i : 0;
  }
  FALCHION_DEVICE void start(std::uint32_t to, std::uint32_t k0) const {
    const std::uint32_t k = k0 + chunk() * Config::kChunk;
    const int bytes = x_.inside(k, Config::kChunk) * static_cast<int>(sizeof(typename Config::Element));
    const auto* from = from_ + x_.template offset_of_k<true>(k);
    to += line0() * 128 + (chunk() ^ line0() % 8) * 16;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      copy_chunk_async(from + x_.offset(i * kStep), to + i * kStep * 128, (rows_ >> i & 1) != 0 ? bytes : 0);
  }

 private:
  static constexpr int kStep = Config::kThreads / 8, kCount = 128 / kStep;
  static FALCHION_DEVICE int chunk() { return threadIdx.x % 8; }
  static FALCHION_DEVICE int line0() { return threadIdx.x / 8; }

  const GemmOperand<Config> x_;
  const typename Config::Element* from_;
  unsigned rows_ = 0;
};

/// 16 bytes of rows at a time: 16 threads load a line of each box, which is one k.
template <class Config>
class GemmLoader<Config, Major::rows> {
 public:
  explicit FALCHION_DEVICE GemmLoader(const GemmOperand<Config>& x) : x_(x), from_(x.data + x.offset(chunk() * 8)) {
    const std::int64_t rest = x.left - x.row_of(chunk() * 8);
    bytes_ = rest >= 8 ? 16 : rest > 0 ? static_cast<int>(rest) * 2 : 0;
  }
  FALCHION_DEVICE void start(std::uint32_t to, std::uint32_t k0) const {
    static_assert(kStep % 8 == 0);
    to += chunk() / 8 * (Config::kDepth * 128) + line0() * 128 + (chunk() % 8 ^ line0() % 8) * 16;
    std::uint32_t k = k0 + line0();
    const auto* from = from_ + x_.offset_of_k(k);
    const bool one_axis = x_.k1 >= x_.k_end;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      copy_chunk_async(from, to + i * kStep * 128, k < x_.k_end ? bytes_ : 0);
      k += kStep;
      from = one_axis ? from + kStep * x_.of_k1 : from_ + x_.offset_of_k(k);
    }
  }

 private:
  static constexpr int kStep = Config::kThreads / 16, kCount = Config::kDepth / kStep;
  static FALCHION_DEVICE int chunk() { return threadIdx.x % 16; }
  static FALCHION_DEVICE int line0() { return threadIdx.x / 16; }

  const GemmOperand<Config> x_;
  const typename Config::Element* from_;
  int bytes_;
};

/// One element at a time, for any strides. A thread assembles chunks of k of a row. Neighbouring threads load
/// neighbouring rows if these are closer together than k, so that a warp reads few cache lines.
template <class Config>
class GemmLoader<Config, Major::neither> {
 public:
  using Element = typename Config::Element;
  explicit FALCHION_DEVICE GemmLoader(const GemmOperand<Config>& x)
      : x_(x), by_rows_(magnitude(x.stride) < magnitude(x.of_k1)) {}

  FALCHION_DEVICE void start(std::uint32_t to, std::uint32_t k0) const {
    constexpr int kCount = 128 * 8 / Config::kThreads;
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 2
    for (int i = 0; i < kCount; ++i) {
      const int place = thread + i * Config::kThreads;
      const int row = by_rows_ ? place % 128 : place / 8, chunk = by_rows_ ? place / 128 : place % 8;
      const std::uint32_t k = k0 + chunk * Config::kChunk;
      gather(row, k, to + row * 128 + (chunk ^ row % 8) * 16);
    }
  }

 private:
  static FALCHION_DEVICE std::int64_t magnitude(std::int64_t x) { return x < 0 ? -x : x; }

  FALCHION_DEVICE void gather(int row, std::uint32_t k, std::uint32_t to) const {
    const int count = x_.has(row) ? x_.inside(k, Config::kChunk) : 0;
    const Element* from = x_.data + x_.offset(row) + (count > 0 ? x_.offset_of_k(k) : 0);
    std::uint32_t in_k1 = x_.k1 < x_.k_end && count > 0 ? k % x_.k1 : 0;
    std::uint32_t words[4] = {};
#pragma unroll
    for (int e = 0; e < Config::kChunk; ++e) {
      const std::uint32_t bits = e < count ? *reinterpret_cast<const std::uint16_t*>(from) : 0;
      words[e / 2] |= bits << e % 2 * 16;
      from += x_.of_k1;
      if (++in_k1 == x_.k1) {  // the next k2
        from += x_.of_k2 - std::int64_t{x_.k1} * x_.of_k1;
        in_k1 = 0;
      }
    }
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
  }

  const GemmOperand<Config> x_;
  bool by_rows_;
};

/// Loads both operands of a tile, one block of k into each stage in turn.
template <class Config, class LoaderA, class LoaderB>
class GemmLoads {
 public:
  FALCHION_DEVICE GemmLoads(const GemmArgs& a, const GemmTile& t, std::uint32_t shared)
      : a_(GemmOperand<Config>::a_of(a, t)),
        b_(GemmOperand<Config>::b_of(a, t)),
        k_(static_cast<std::uint32_t>(t.k0)),
        k_end_(static_cast<std::uint32_t>(t.k1)),
        to_(shared),
        first_(shared) {}

  /// Starts to load the next block, and commits a group of cp.async, which is empty after the last block.
  FALCHION_DEVICE void start_next() {
    if (k_ < k_end_) {
      a_.start(to_, k_);
      b_.start(to_ + Config::kBytesA, k_);
    }
    cute::cp_async_fence();
    k_ += Config::kDepth;
    to_ += Config::kStageBytes;
    if (to_ == first_ + Config::kSharedBytes) to_ = first_;
  }

 private:
  const LoaderA a_;
  const LoaderB b_;
  std::uint32_t k_;
  const std::uint32_t k_end_;
  std::uint32_t to_;
  const std::uint32_t first_;
};

}  // namespace falchion::sm80
