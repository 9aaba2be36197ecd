// src/sm90/attention_forward/halves/split.cuh: the kernel that runs before softmax attention in f32 on Hopper. It
// splits each number of q, k and v into two f16 parts, so that the next kernel can load them by TMA and multiply them
// by wgmma. docs/design/sm90_forward.md, "f32 as two halves", says why each row has a factor of its own.
#pragma once

#include <cutlass/array.h>

#include <algorithm>

#include "args/gpu_attention_args.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/sm90_halves.cuh"
#include "gpu/blocks/stream_order.cuh"
#include "tiles/attention_forward/halves_workspace.hpp"

namespace falchion::sm90 {

using namespace gpu;

/// A row's factor is a power of two. Its lowest bit marks rows with numbers that the parts cannot hold.
FALCHION_DEVICE float mark_incomplete(float factor, bool incomplete) {
  return __uint_as_float(__float_as_uint(factor) | static_cast<unsigned>(incomplete));
}
FALCHION_DEVICE bool is_incomplete(float factor) { return (__float_as_uint(factor) & 1) != 0; }
/// The factor of a row that may be marked.
FALCHION_DEVICE float without_mark(float factor) { return __uint_as_float(__float_as_uint(factor) & ~1U); }

enum class Operand { q, k, v };

/// Rows of q and k with a number of at least 2^64 are marked too. The product of two such factors may exceed the range
/// of f32 where the product of the rows does not, so their scores are computed from the f32 operands.
inline constexpr int kLeastExponent = 14 - 64;

/// One warp splits one row of kD numbers; each lane has groups of kWidth neighbouring ones. NaN and Inf do not count
/// for the maximum. Inf, and NaN of v, are replaced by 0, since their product with P = 0 would put NaN into rows for
/// which the key is masked; the attention kernel adds their effect (infinite.cuh). A NaN of q or k stays: it makes its
/// scores NaN.
template <int kD>
class RowSplitter {
  using Half = cutlass::half_t;
  static constexpr int kEach = kD / 32, kWidth = std::min(kEach, 4);
  using Floats = cutlass::AlignedArray<float, kWidth>;
  using Pairs = cutlass::AlignedArray<std::uint32_t, kWidth / 2>;

 public:
  /// aligned: rows begin at multiples of 16 bytes, and d is a multiple of 4.
  FALCHION_DEVICE RowSplitter(const float* from, int d, bool aligned) {
    CUTE_UNROLL
    for (int i = 0; i < kEach; i += kWidth) {
      const int column = column_of(i);
      Floats group{};
      if (aligned) {
        if (column < d) group = *reinterpret_cast<const Floats*>(from + column);
      } else {
        CUTE_UNROLL
        for (int c = 0; c < kWidth; ++c) group[c] = column + c < d ? from[column + c] : 0.F;
      }
      CUTE_UNROLL
      for (int c = 0; c < kWidth; ++c) x[i + c] = group[c];
    }
  }
  /// Writes both parts of the row to `to`, and returns the n for which they are x 2^n. *left_out: whether any number
  /// was replaced by 0.
  template <Operand operand>
  FALCHION_DEVICE int split(Half* to, bool* left_out) {
    bool mine = false;
    const int n = exponent_for(largest_of_warp<kEach>(x));
    CUTE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const bool out = operand == Operand::v ? !isfinite(x[i]) : isinf(x[i]);
      mine |= out;
      x[i] = out ? 0.F : x[i] * power_of_two(n);
    }
    *left_out = __any_sync(~0U, mine) != 0;
    CUTE_UNROLL
    for (int part = 0; part < 2; ++part) {
      CUTE_UNROLL
      for (int i = 0; i < kEach; i += kWidth) {
        Pairs pairs;
        CUTE_UNROLL
        for (int c = 0; c < kWidth; c += 2) pairs[c / 2] = round_half(x[i + c], x[i + c + 1]);
        *reinterpret_cast<Pairs*>(to + part * kD + column_of(i)) = pairs;
      }
    }
    return n;
  }

 private:
  /// The column of x[i], where i is a multiple of kWidth.
  static FALCHION_DEVICE int column_of(int i) { return 32 * i + static_cast<int>(threadIdx.x) % 32 * kWidth; }
  float x[kEach];
};

/// The place of row (b, s) of a tensor with `length` rows to a batch entry.
struct RowPlace {
  int b, s;
  FALCHION_DEVICE RowPlace(int row, int length) : b(row / length), s(row % length) {}
  FALCHION_DEVICE const float* in(const View& x, int h) const {
    return static_cast<const float*>(x.data) + b * x.stride[0] + s * x.stride[1] + h * x.stride[2];
  }
};

inline constexpr int kSplitWarps = 8;

/// CTA x splits one row (b, s) of all heads: first all rows of q, then those of k, then those of v.
template <int kD>
__global__ void __launch_bounds__(32 * kSplitWarps)
    split_halves(const __grid_constant__ AttentionArgs a, const __grid_constant__ HalvesLayout at) {
  using Half = cutlass::half_t;
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int s_q = static_cast<int>(a.packed ? a.total_q : a.s_q), s_k = static_cast<int>(a.packed ? a.total_k : a.s_k);
  const int batch = a.packed ? 1 : static_cast<int>(a.b), h_q = static_cast<int>(a.h_q), h_k = static_cast<int>(a.h_k);
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const bool leader = threadIdx.x % 32 == 0;
  auto* const memory = static_cast<unsigned char*>(a.copies);
  bool left_out = false;
  int row = static_cast<int>(blockIdx.x);
  if (row < batch * s_q) {
    const RowPlace place(row, s_q);
    auto* const to = reinterpret_cast<Half*>(memory + at.q);
    auto* const factors = reinterpret_cast<float*>(memory + at.q_factors);
    for (int h = warp; h < h_q; h += warps) {
      RowSplitter<kD> numbers(place.in(a.q, h), static_cast<int>(a.d_qk), a.aligned);
      const int n = numbers.template split<Operand::q>(to + (std::int64_t{row} * h_q + h) * 2 * kD, &left_out);
      if (leader)
        factors[(std::int64_t{place.b} * h_q + h) * s_q + place.s] =
            mark_incomplete(power_of_two(-n), left_out || n < kLeastExponent);
    }
    return;
  }
  row -= batch * s_q;
  auto* const factors = reinterpret_cast<KeyFactors*>(memory + at.key_factors);
  const bool of_k = row < batch * s_k;
  if (!of_k) row -= batch * s_k;
  const RowPlace place(row, s_k);
  for (int h = warp; h < h_k; h += warps) {
    const std::int64_t line = (std::int64_t{row} * h_k + h) * 2 * kD;
    KeyFactors& factor = factors[(std::int64_t{place.b} * h_k + h) * s_k + place.s];
    if (of_k) {
      RowSplitter<kD> numbers(place.in(a.k, h), static_cast<int>(a.d_qk), a.aligned);
      const int n = numbers.template split<Operand::k>(reinterpret_cast<Half*>(memory + at.k) + line, &left_out);
      if (leader) factor.k = mark_incomplete(power_of_two(-n), left_out || n < kLeastExponent);
    } else {
      RowSplitter<kD> numbers(place.in(a.v, h), static_cast<int>(a.d_v), a.aligned);
      const int n = numbers.template split<Operand::v>(reinterpret_cast<Half*>(memory + at.v) + line, &left_out);
      if (leader) factor.v = mark_incomplete(power_of_two(14 - n), left_out);
    }
  }
}

/// Enqueues the kernel and returns a cudaError_t.
template <int kD>
int launch_split(const AttentionArgs& a, const HalvesLayout& at, void* stream) {
  const std::int64_t rows_q = a.packed ? a.total_q : a.b * a.s_q, rows_k = a.packed ? a.total_k : a.b * a.s_k;
  const std::int64_t blocks = rows_q + 2 * rows_k;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  const int warps = static_cast<int>(std::min<std::int64_t>(std::max(a.h_q, a.h_k), kSplitWarps));
  return launch_kernel<split_halves<kD>>(static_cast<unsigned>(blocks), 32 * warps, 0, stream, a.early, a, at);
}

}  // namespace falchion::sm90
