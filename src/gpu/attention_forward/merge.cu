// src/gpu/attention_forward/merge.cu: merge() on a GPU: partial results over disjoint keys -> one. With m the largest
// lse of a row, a part has the weight e^(lse_i - m). The parts are added in their order, so that two runs give the same
// bits.
#include <bit>
#include <cstdint>

#include "args/gpu_merge_args.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/numbers.cuh"
#include "gpu/blocks/softmax.cuh"
#include "gpu/blocks/stream_order.cuh"

namespace falchion::gpu {
static_assert(kMergeChunk == kNumbers);
inline constexpr int kMergeThreads = 128;
inline constexpr int kMergeTogether = 4;  // parts whose loads are under way at the same time

/// Where a row lies in the tensors.
struct MergeRow {
  std::int64_t b, i, h;

  static FALCHION_DEVICE MergeRow of(const MergeArgs& a, std::int64_t row) {
    if (a.rows > INT32_MAX) return {row / a.h / a.s, row / a.h % a.s, row % a.h};
    const auto r = static_cast<std::uint32_t>(row);
    const std::uint32_t outer = a.by_h.divide(r), b = a.by_s.divide(outer);
    return {b, outer - b * a.by_s.value(), r - outer * a.by_h.value()};
  }
  FALCHION_DEVICE std::int64_t in_o(const View& o) const { return b * o.stride[0] + i * o.stride[1] + h * o.stride[2]; }
  FALCHION_DEVICE float& lse(const MergeState& x) const {
    return static_cast<float*>(x.lse.data)[b * x.lse.stride[0] + h * x.lse.stride[1] + i * x.lse.stride[2]];
  }
};

/// The numbers from element `at` of o on: eight of them, or where rows are not aligned the one at the place of the
/// first.
template <bool kAligned>
FALCHION_DEVICE NumberWords load_numbers(const MergeState& x, std::int64_t at) {
  const bool wide = x.type == Number::f32;
  const char* from = static_cast<const char*>(x.o.data) + at * (wide ? 4 : 2);
  if constexpr (kAligned) return load_words(from, wide);
  NumberWords out{};
  out.word[0] = wide ? *reinterpret_cast<const std::uint32_t*>(from) : *reinterpret_cast<const std::uint16_t*>(from);
  return out;
}
template <bool kAligned>
FALCHION_DEVICE void store_numbers(const MergeState& x, std::int64_t at, const NumberWords& numbers) {
  const bool wide = x.type == Number::f32;
  char* to = static_cast<char*>(x.o.data) + at * (wide ? 4 : 2);
  if constexpr (kAligned) return store_words(numbers, to, wide);
  if (wide)
    *reinterpret_cast<std::uint32_t*>(to) = numbers.word[0];
  else
    *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(numbers.word[0]);
}

/// Merges the numbers of a row from `column` on, and returns the sum of the weights. An empty part (lse -inf) is left
/// out, whatever its o holds. An lse of +inf or NaN makes the sum NaN, and with it all that is stored.
template <bool kAligned>
FALCHION_DEVICE float merge_numbers(const MergeArgs& a, const MergeRow& row, float m, std::int64_t column) {
  constexpr int kWidth = kAligned ? kNumbers : 1;
  float sum[kNumbers] = {}, weights = 0;
  for (int first = 0; first < a.parts; first += kMergeTogether) {
    NumberWords words[kMergeTogether];
    float lse[kMergeTogether];
#pragma unroll
    for (int i = 0; i < kMergeTogether; ++i) {
      lse[i] = -FALCHION_INF;
      if (first + i >= a.parts) continue;
      const MergeState& part = a.part[first + i];
      words[i] = load_numbers<kAligned>(part, row.in_o(part.o) + column * part.o.stride[3]);
      lse[i] = row.lse(part);
    }
#pragma unroll
    for (int i = 0; i < kMergeTogether; ++i) {
      if (lse[i] == -FALCHION_INF) continue;
      const float weight = expf(lse[i] - m);
      weights += weight;
      with_type(a.part[first + i].type, [&](auto of) {
      // Product and sum are rounded separately, so that a merge of two is commutative to the bit.
#pragma unroll
        for (int e = 0; e < kWidth; ++e)
          sum[e] = __fadd_rn(sum[e], __fmul_rn(weight, number<decltype(of)>(words[i], e)));
      });
    }
  }
  const float factor = weights == 0 ? 0 : 1 / weights;
#pragma unroll
  for (int e = 0; e < kWidth; ++e) sum[e] *= factor;
  with_type(a.merged.type, [&](auto of) {
    const std::int64_t at = row.in_o(a.merged.o) + column * a.merged.o.stride[3];
    store_numbers<kAligned>(a.merged, at, words_of<decltype(of)>(sum));
  });
  return weights;
}

/// 2^shift neighbouring threads share a row, so that a CTA has whole rows.
template <bool kAligned>
__global__ void __launch_bounds__(kMergeThreads) attention_merge(const __grid_constant__ MergeArgs a, int shift) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto thread = static_cast<int>(threadIdx.x), place = thread & ((1 << shift) - 1);
  const std::int64_t number = std::int64_t{blockIdx.x} * (kMergeThreads >> shift) + (thread >> shift);
  const bool there = number < a.rows;
  const MergeRow row = MergeRow::of(a, there ? number : 0);
  float m = -FALCHION_INF, weights = 0;
  if (there) {
    for (int i = 0; i < a.parts; ++i) m = fmaxf(m, row.lse(a.part[i]));
    if (m == -FALCHION_INF) m = 0;
    constexpr int kWidth = kAligned ? kNumbers : 1;
    for (std::int64_t column = place * kWidth; column < a.d; column += kWidth << shift)
      weights = merge_numbers<kAligned>(a, row, m, column);
  }
  __syncthreads();  // the lse may be that of a part, which the other threads of the row read
  if (there && place == 0) row.lse(a.merged) = weights == 0 ? -FALCHION_INF : m + logf(weights);
}

int launch_merge(const MergeArgs& a, void* stream) {
  const std::int64_t chunks = a.aligned ? a.d / kNumbers : a.d;
  int shift = 0;
  while (1 << shift < kMergeThreads && 1 << shift < chunks) ++shift;
  const std::int64_t rows = kMergeThreads >> shift;  // of a CTA
  const auto blocks = static_cast<unsigned>((a.rows + rows - 1) / rows);
  if (a.aligned) return launch_kernel<attention_merge<true>>(blocks, kMergeThreads, 0, stream, true, a, shift);
  return launch_kernel<attention_merge<false>>(blocks, kMergeThreads, 0, stream, true, a, shift);
}

}  // namespace falchion::gpu
