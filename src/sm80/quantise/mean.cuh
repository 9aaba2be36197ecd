// src/sm80/quantise/mean.cuh: the mean of each head's tokens. A CTA adds up a part of the tokens of one head, and a
// second kernel the parts, in an order that depends on the sizes alone.
#pragma once

#include "sm80/quantise/tile.cuh"

namespace falchion::sm80 {

/// The sums of one part: thread t has the columns of chunk t % chunks of every (threads / chunks)-th row.
template <class Element, bool kWhole>
__global__ void __launch_bounds__(kQuantiseThreads) quantise_sums(const __grid_constant__ QuantiseArgs a) {
  __shared__ float sums[kQuantiseThreads][kNumbers];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto chunks = static_cast<int>(a.by_chunks_of_a_row.value()), thread = static_cast<int>(threadIdx.x);
  const int lanes = kQuantiseThreads / chunks, row = thread / chunks, column = thread % chunks * kNumbers;
  const std::uint32_t outer = a.by_heads.divide(blockIdx.x);
  const auto parts = static_cast<std::uint32_t>(a.parts);
  const std::int64_t part = outer % parts, b = outer / parts, h = blockIdx.x - outer * a.by_heads.value();
  const Element* from =
      static_cast<const Element*>(a.x.data) + b * a.x.stride[0] + h * a.x.stride[2] + column * a.x.stride[3];
  const std::int64_t begin = part * kQuantisePart, end = min(begin + kQuantisePart, a.s);
  float sum[kNumbers] = {};
#pragma unroll 4
  for (std::int64_t i = begin + row; i < end && row < lanes; i += lanes) {
    const Element* at = from + i * a.x.stride[1];
    if constexpr (kWhole) {
      const NumberWords words = load_words(at, sizeof(Element) == 4);
#pragma unroll
      for (int e = 0; e < kNumbers; ++e) sum[e] += number<Element>(words, e);
    } else {
#pragma unroll
      for (int e = 0; e < kNumbers; ++e)
        if (column + e < a.d) sum[e] += static_cast<float>(at[e * a.x.stride[3]]);
    }
  }
#pragma unroll
  for (int e = 0; e < kNumbers; ++e) sums[thread][e] = sum[e];
  __syncthreads();
  if (row > 0) return;
  for (int other = 1; other < lanes; ++other) {
#pragma unroll
    for (int e = 0; e < kNumbers; ++e) sum[e] += sums[other * chunks + thread][e];
  }
  float* to = a.sums + ((b * a.parts + part) * a.h + h) * a.d + column;
#pragma unroll
  for (int e = 0; e < kNumbers; ++e)
    if (column + e < a.d) to[e] = sum[e];
}

/// A thread for each column of each head.
template <class Element>
__global__ void __launch_bounds__(kQuantiseThreads) quantise_mean(const __grid_constant__ QuantiseArgs a) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const std::int64_t number = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = a.h * a.d;
  if (number >= a.b * row) return;
  const std::int64_t b = number / row, h = number % row / a.d, column = number % a.d;
  const float* from = a.sums + b * a.parts * row + h * a.d + column;
  double sum = 0;
  for (std::int64_t part = 0; part < a.parts; ++part) sum += from[part * row];
  static_cast<float*>(a.mean.data)[b * a.mean.stride[0] + h * a.mean.stride[2] + column * a.mean.stride[3]] =
      a.s > 0 ? static_cast<float>(sum / static_cast<double>(a.s)) : 0.f;
}

}  // namespace falchion::sm80
