// src/sm80/quantise/rows.cuh: Quantise on a GPU: the variants of kind `rows`. A power of two of threads share a piece
// of a block. Where a piece is the whole block, which up to 4096 chunks of eight numbers is (128 rows of 256), memory
// is read once: the numbers wait in registers for the scale. Else one kernel finds the largest magnitudes and a second
// one writes. This file gives the order of the steps.
#pragma once

#include <type_traits>

#include "gpu/blocks/stream_order.cuh"
#include "sm80/quantise/mean.cuh"
#include "sm80/quantise/tile.cuh"

namespace falchion::sm80 {

/// The largest of x over the threads of a piece; each of them gets it.
FALCHION_DEVICE std::uint32_t most_of_piece(std::uint32_t x, int threads, std::uint32_t* slots) {
  for (int by = (threads < 32 ? threads : 32) / 2; by > 0; by /= 2) x = max(x, __shfl_xor_sync(0xFFFFFFFFu, x, by));
  if (threads <= 32) return x;
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = x;
  __syncthreads();
  for (int warp = 0; warp < threads / 32; ++warp) x = max(x, slots[warp]);
  return x;
}

/// The place of a block's scale. While the largest magnitudes are being found, it holds the bits of that of its block.
FALCHION_DEVICE float* scale_at(const QuantiseArgs& a, std::int64_t b, std::int64_t block, std::int64_t h) {
  const View& x = a.scale;
  return static_cast<float*>(x.data) + b * x.stride[0] + block * x.stride[1] + h * x.stride[2];
}

/// CTAs of the most threads that share an SM; where single numbers are moved, registers are not spared.
template <int kChunks, bool kWhole>
constexpr int kQuantiseCtas = kChunks == 1                                ? 3
                              : kChunks == kQuantiseMostChunks || !kWhole ? 1
                                                                          : 2;

/// kOnlyMost: finds the largest magnitudes, and writes no y.
template <class Element, int kChunks, bool kWhole, bool kOnlyMost>
__global__ void __launch_bounds__(kQuantiseMostThreads, kQuantiseCtas<kChunks, kWhole>)
    quantise(const __grid_constant__ QuantiseArgs a) {
  __shared__ std::uint32_t slots[kQuantiseMostThreads / 32];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int thread = static_cast<int>(threadIdx.x) & (a.cut.threads - 1);
  const int shift = __ffs(a.cut.threads) - 1;
  const std::uint32_t number = blockIdx.x * (blockDim.x >> shift) + (threadIdx.x >> shift);
  const QuantisePiece piece = QuantisePiece::of(a, number);
  QuantiseTile<Element, kChunks, kWhole> tile(a, piece, thread);
  tile.fetch();
  const bool there = piece.rows > 0;
  if constexpr (kOnlyMost) {
    const std::uint32_t most = most_of_piece(tile.most(), a.cut.threads, slots);
    if (there && thread == 0)
      atomicMax(reinterpret_cast<std::uint32_t*>(scale_at(a, piece.b, piece.block, piece.h)), most);
  } else {
    float scale;
    if (a.scale_given) {
      scale = there ? *scale_at(a, piece.b, piece.block, piece.h) : 1.f;
    } else {
      const float most = __uint_as_float(most_of_piece(tile.most(), a.cut.threads, slots));
      scale = quantise_scale(most, quantise_bound(a.e4m3), a.powers_of_two);
      if (there && thread == 0) *scale_at(a, piece.b, piece.block, piece.h) = scale;
    }
    tile.store(1.f / scale);
  }
}

/// Before and after the largest magnitudes are found, a thread for each block: start is 0; end makes them scales.
template <class Element>
__global__ void __launch_bounds__(kQuantiseThreads) quantise_scales(const __grid_constant__ QuantiseArgs a, bool end) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const std::int64_t number = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (number >= a.b * a.blocks * a.h) return;
  float* scale = scale_at(a, number / a.h / a.blocks, number / a.h % a.blocks, number % a.h);
  *scale = end ? quantise_scale(*scale, quantise_bound(a.e4m3), a.powers_of_two) : 0.f;
}

inline unsigned ctas_for(std::int64_t items, std::int64_t a_cta) {
  return static_cast<unsigned>((items + a_cta - 1) / a_cta);
}

template <class Element, bool kWhole>
int launch_mean(const QuantiseArgs& a, void* stream) {
  if (a.parts > 0) {
    const auto ctas = static_cast<unsigned>(a.b * a.h * a.parts);
    if (const int error = launch_kernel<quantise_sums<Element, kWhole>>(ctas, kQuantiseThreads, 0, stream, a.early, a);
        error != 0)
      return error;
  }
  return launch_kernel<quantise_mean<Element>>(ctas_for(a.b * a.h * a.d, kQuantiseThreads), kQuantiseThreads, 0, stream,
                                               a.early, a);
}

template <class Element, bool kWhole, bool kOnlyMost>
int launch_pieces(const QuantiseArgs& a, void* stream) {
  const int threads = a.cut.threads > 32 ? a.cut.threads : kQuantiseThreads;
  const unsigned ctas = ctas_for(a.b * a.h * a.pieces, threads / a.cut.threads);
  const auto launch = [&](auto chunks) -> int {
    return launch_kernel<quantise<Element, chunks(), kWhole, kOnlyMost>>(ctas, threads, 0, stream, a.early, a);
  };
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, kQuantiseChunks> kSome;
  constexpr std::integral_constant<int, kQuantiseMostChunks> kMany;
  if constexpr (!kOnlyMost) {  // a block that is cut has pieces of the usual size
    if (a.cut.chunks == kQuantiseMostChunks) return launch(kMany);
    if (a.cut.chunks == 1) return launch(kOne);
  }
  return launch(kSome);
}

template <class Element, bool kWhole>
int launch_as(const QuantiseArgs& given, void* stream) {
  QuantiseArgs a = given;
  if (a.mean.data != nullptr && !a.mean_given)
    if (const int error = launch_mean<Element, kWhole>(a, stream); error != 0) return error;
  if (a.pieces == 0) return 0;
  if (!a.cut.kept) {
    const auto scales = [&](bool end) -> int {
      return launch_kernel<quantise_scales<Element>>(ctas_for(a.b * a.h * a.blocks, kQuantiseThreads), kQuantiseThreads,
                                                     0, stream, a.early, a, end);
    };
    if (const int error = scales(false); error != 0) return error;
    if (const int error = launch_pieces<Element, kWhole, true>(a, stream); error != 0) return error;
    if (const int error = scales(true); error != 0) return error;
    a.scale_given = true;
  }
  return launch_pieces<Element, kWhole, false>(a, stream);
}

template <class Element>
int launch_quantise(const QuantiseArgs& a, void* stream) {
  return a.cut.whole ? launch_as<Element, true>(a, stream) : launch_as<Element, false>(a, stream);
}

template <class Element, int>
constexpr gpu::QuantiseKernel quantise_rows() {
  return {launch_quantise<Element>, quantise_facts()};
}

}  // namespace falchion::sm80
