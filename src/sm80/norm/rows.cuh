// src/sm80/norm/rows.cuh: layer norm and RMSNorm on a GPU: the variants of kind `rows`. A power of two of threads share
// a row, hold it in registers as f32 and add up their sums: one read of memory and one write. Rows of more than 16384
// numbers, and those that cannot be loaded 16 bytes at a time, are read once for each pass. So are rows whose squares
// lie outside the range of f32 (policy/norm_range.hpp), after their first sums. This file gives the order of the steps;
// docs/design/norm.md has the measurements.
#pragma once

#include <type_traits>

#include "base/host_device.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "policy/norm_range.hpp"
#include "sm80/norm/tile.cuh"

namespace falchion::sm80 {

using gpu::NormArgs;

/// Adds x up over the threads of a row; each of them gets the same bits. slots has one place for each warp of the CTA.
/// The two sums of a row have separate slots, so no thread has to wait before it writes there. kAlone: other rows of
/// the warp and of the CTA do not take part.
template <bool kAlone>
FALCHION_DEVICE float2 sum_of_row(float2 x, const NormThread& thread, float2* slots) {
  unsigned lanes = 0xFFFFFFFFu;
  if (kAlone && thread.of < 32) lanes = ((1u << thread.of) - 1) << (threadIdx.x - thread.number) % 32;
  for (int by = (thread.of < 32 ? thread.of : 32) / 2; by > 0; by /= 2) {
    x.x += __shfl_xor_sync(lanes, x.x, by);
    x.y += __shfl_xor_sync(lanes, x.y, by);
  }
  if (thread.of <= 32) return x;
  const int warp = threadIdx.x / 32, first = (threadIdx.x - thread.number) / 32;
  if (threadIdx.x % 32 == 0) slots[warp] = x;
  if constexpr (kAlone) {  // a row of 64 threads has one half of a CTA
    if (threadIdx.x < thread.of)
      __barrier_sync_count(1, thread.of);
    else
      __barrier_sync_count(2, thread.of);
  } else {
    __syncthreads();
  }
  x = slots[first];
  for (int other = 1; other < thread.of / 32; ++other) {
    x.x += slots[first + other].x;
    x.y += slots[first + other].y;
  }
  return x;
}

/// The row of this thread, and the thread's place in it. The last CTA may have threads without a row.
struct RowHere {
  std::int64_t number;
  bool there;
  NormThread thread;

  static FALCHION_DEVICE RowHere of(const NormArgs& a) {
    const int number = static_cast<int>(threadIdx.x) & (a.cut.threads - 1);
    const int rows = static_cast<int>(blockDim.x) / a.cut.threads;  // of a CTA
    const std::int64_t row = std::int64_t{blockIdx.x} * rows + static_cast<int>(threadIdx.x) / a.cut.threads;
    const bool there = row < a.rows;
    return {row, there, {number, a.cut.threads, there ? static_cast<int>(a.d) : 0}};
  }
};

/// A row whose squares lie outside the range of f32. It is a separate function, so that its code does not take
/// registers from that of other rows.
template <class Element, bool kWhole>
__device__ __noinline__ void run_scaled(const NormArgs& a, float scale, float2 (*slots)[kNormWarps]);

/// One row, as its threads see it. kKept: the tile holds all of the row, so memory is read in the first pass only. A
/// kept tile of kNormChunks chunks has no registers left for a residual. kScaled: the numbers are multiplied by scale,
/// because their squares lie outside the range of f32; such a row is read again for each pass.
template <class Element, int kChunks, bool kWhole, bool kKept, bool kScaled>
class NormRow {
 public:
  FALCHION_DEVICE NormRow(const NormArgs& a, const RowHere& row, float scale)
      : a_(a),
        there_(row.there),
        thread_(row.thread),
        place_(NormPlace::of(a, row.there ? row.number : 0)),
        tile_(row.thread),
        scale_(scale) {}

  FALCHION_DEVICE void run(float2 (*slots)[kNormWarps]) {
    if constexpr (kKept) fetch();
    const Moments m = moments(slots);
    if constexpr (!kScaled) {
      if (const float scale = norm_scale(m.mean, m.variance, a_.eps); scale != 1)
        return run_scaled<Element, kWhole>(a_, scale, slots);
    }
    const NormScaled of = NormScaled::of(scale_, m.variance, a_.eps);
    const float factor = 1.f / sqrtf(m.variance + of.eps);
    if (there_ && thread_.number == 0) {
      if (a_.mean.data != nullptr) static_cast<float*>(a_.mean.data)[place_.in(a_.mean)] = (m.mean + m.rest) * of.mean;
      if (a_.rstd.data != nullptr) static_cast<float*>(a_.rstd.data)[place_.in(a_.rstd)] = factor * of.rstd;
    }
    each_tile([&] { store_tile(m, factor); });
  }

 private:
  /// The mean of the row is mean + rest, where rest is the rounding error of mean in f32. RMSNorm subtracts no mean, so
  /// both are 0 there, and variance is the mean of the squares. All are those of the numbers times scale_.
  struct Moments {
    float mean, rest, variance;
  };

  static constexpr bool kMayHaveResidual = !kKept || kChunks == kNormChunksOfTwo;
  FALCHION_DEVICE bool has_residual() const { return kMayHaveResidual && a_.residual.data != nullptr; }

  static FALCHION_DEVICE bool is_finite(float x) { return x - x == 0; }
  FALCHION_DEVICE float scaled(float v) const { return kScaled ? v * scale_ : v; }

  FALCHION_DEVICE void fetch() {
    if (!has_residual()) return tile_.template set<Element>(a_.x, place_.in(a_.x));
    if constexpr (kMayHaveResidual)
      tile_.template set_sum<Element>(a_.x, place_.in(a_.x), a_.residual_type, a_.residual, place_.in(a_.residual));
  }
  /// Calls f for each tile of the row.
  template <class F>
  FALCHION_DEVICE void each_tile(F f) {
    if constexpr (kKept) {
      f();
    } else {
      for (int first = 0; first < thread_.d; first += tile_.size()) {
        tile_.move_to(first);
        fetch();
        f();
      }
    }
  }

  /// The deviations from the first mean are summed again, which corrects its rounding (Chan, Golub and LeVeque 1983,
  /// "Algorithms for computing the sample variance"). In a row of equal numbers each deviation is the same few units of
  /// the mean, so their sums are exact, and the variance is 0. A row that is not kept may be too long for that, so its
  /// first number is subtracted from each before the first sum.
  FALCHION_DEVICE Moments moments(float2 (*slots)[kNormWarps]) {
    const float d = static_cast<float>(a_.d);
    float2 sum{};
    if (!a_.layer) {
      each_tile([&] { tile_.each([&](float v, bool) { sum.x = fmaf(scaled(v), scaled(v), sum.x); }); });
      const int own = kScaled ? 1 : 0;  // another warp may still read the first sums
      return {0, 0, sum_of_row<kScaled>(sum, thread_, slots[own]).x / d};
    }
    const float start = kKept ? 0 : scaled(first_number());
    each_tile([&] { tile_.each([&](float v, bool there) { sum.x += there ? scaled(v) - start : 0; }); });
    const float mean = start + sum_of_row<kScaled>(sum, thread_, slots[0]).x / d;
    sum = {};
    each_tile([&] {
      tile_.each([&](float v, bool there) {
        const float by = there ? scaled(v) - mean : 0;
        sum.x += by;
        sum.y = fmaf(by, by, sum.y);
      });
    });
    sum = sum_of_row<kScaled>(sum, thread_, slots[1]);
    const float rest = is_finite(mean) ? sum.x / d : 0;
    const float variance = fmaf(-rest, rest, sum.y / d);  // with both beyond f32, their difference would be NaN
    return {mean, rest, variance < 0 ? 0 : variance};     // NaN stays
  }

  FALCHION_DEVICE float first_number() const {
    if (thread_.d == 0) return 0;
    float x = static_cast<float>(static_cast<const Element*>(a_.x.data)[place_.in(a_.x)]);
    if (has_residual()) {
      with_type(a_.residual_type, [&](auto of) {
        x += static_cast<float>(static_cast<const decltype(of)*>(a_.residual.data)[place_.in(a_.residual)]);
      });
    }
    return is_finite(x) ? x : 0;
  }

  FALCHION_DEVICE void store_tile(const Moments& m, float factor) {
    if (a_.residual_out.data != nullptr) tile_.store(a_.residual_type, a_.residual_out, place_.in(a_.residual_out));
    tile_.each([&](float& v, bool) { v = (scaled(v) - m.mean - m.rest) * factor; });
    if (a_.weight.data != nullptr) {
      const float more = a_.zero_centered ? 1 : 0;
      tile_.combine(a_.weight_type, a_.weight, place_.in(a_.weight), [=](float v, float w) { return v * (more + w); });
    }
    if (a_.bias.data != nullptr)
      tile_.combine(a_.bias_type, a_.bias, place_.in(a_.bias), [](float v, float b) { return v + b; });
    tile_.store(a_.y_type, a_.y, place_.in(a_.y));
  }

  const NormArgs& a_;
  const bool there_;
  const NormThread thread_;
  const NormPlace place_;
  NormTile<kChunks, kWhole> tile_;
  const float scale_;  // 1 where not kScaled
};

template <class Element, bool kWhole>
__device__ void run_scaled(const NormArgs& a, float scale, float2 (*slots)[kNormWarps]) {
  NormRow<Element, 1, kWhole, false, true>(a, RowHere::of(a), scale).run(slots);
}

template <class Element, int kChunks, bool kWhole, bool kKept>
__global__ void __launch_bounds__(kKept&& kChunks == kNormChunksOfTwo ? kNormMostThreadsOfTwo : kNormMostThreads,
                                  kKept&& kChunks == kNormChunks ? 2 : 1) norm(const __grid_constant__ NormArgs a) {
  __shared__ float2 slots[2][kNormWarps];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  NormRow<Element, kChunks, kWhole, kKept, false>(a, RowHere::of(a), 1).run(slots);
}

template <class Element>
int launch_norm(const NormArgs& a, void* stream) {
  const int threads = a.cut.threads > kNormThreads ? a.cut.threads : kNormThreads, rows = threads / a.cut.threads;
  const auto blocks = static_cast<unsigned>((a.rows + rows - 1) / rows);
  const auto launch = [&](auto chunks, auto whole, auto kept) -> int {
    return launch_kernel<norm<Element, chunks(), whole(), kept()>>(blocks, threads, 0, stream, a.early, a);
  };
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, kNormChunks> kMany;
  constexpr std::integral_constant<int, kNormChunksOfTwo> kManyOfTwo;
  constexpr std::true_type kYes;
  constexpr std::false_type kNo;
  if (!a.cut.whole) return launch(kOne, kNo, kNo);
  if (!a.cut.kept) return launch(kOne, kYes, kNo);
  return a.cut.chunks == kNormChunks ? launch(kMany, kYes, kYes) : launch(kManyOfTwo, kYes, kYes);
}

template <class Element, int>
constexpr gpu::NormKernel norm_rows() {
  return {launch_norm<Element>, norm_facts()};
}

}  // namespace falchion::sm80
