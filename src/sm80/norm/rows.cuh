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

/// What the warps of a CTA exchange: a row's sums, and those of a row that is summed once more, since another warp may
/// still read the first.
using NormSlots = float4[2][kNormWarps];

/// A row of this thread, and the thread's place in it. The last CTA may have threads without a row.
struct RowHere {
  std::int64_t row;
  int number, threads;  // this thread, and how many the row has

  static FALCHION_DEVICE RowHere of(const NormArgs& a) {
    const int threads = a.cut.threads, log = 31 - __clz(threads);  // a power of two
    const std::int64_t thread = std::int64_t{blockIdx.x} * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    return {thread >> log, static_cast<int>(threadIdx.x) & (threads - 1), threads};
  }
};

/// The threads of a row, as they put together its sums; each of them gets the same bits. kAlone: other rows of the warp
/// and of the CTA do not take part.
template <bool kAlone>
class NormTeam {
 public:
  FALCHION_DEVICE NormTeam(const RowHere& here, NormSlots& slots) : threads_(here.threads), slots_(slots[kAlone]) {
    first_ = static_cast<int>(threadIdx.x) - here.number;
    lanes_ = {~0u, min(threads_, 32)};
    if (kAlone && threads_ < 32) lanes_.mask = ((1u << threads_) - 1) << first_ % 32;
  }

  FALCHION_DEVICE float sum(float x) const {
    x = lanes_.sum(x);
    return threads_ <= 32 ? x : warps().sum(exchange({x, 0, 0, 0}).x);
  }
  FALCHION_DEVICE Moments all(const Moments& part) const {
    const Moments x = lanes_.all(part);
    if (threads_ <= 32) return x;
    const float4 of_warp = exchange({x.count, x.mean, x.rest, x.squares});
    return warps().all({of_warp.x, of_warp.y, of_warp.z, of_warp.w});
  }

 private:
  /// The warps' parts are put together by as many lanes.
  FALCHION_DEVICE MomentLanes warps() const { return {~0u, threads_ / 32}; }
  FALCHION_DEVICE float4 exchange(const float4& x) const {
    if (threadIdx.x % 32 == 0) slots_[threadIdx.x / 32] = x;
    if constexpr (!kAlone)
      __syncthreads();
    else if (first_ == 0)  // a row of 64 threads has one half of a CTA
      __barrier_sync_count(1, threads_);
    else
      __barrier_sync_count(2, threads_);
    return slots_[first_ / 32 + threadIdx.x % (threads_ / 32)];
  }

  const int threads_;
  int first_;  // thread of the row
  float4* const slots_;
  MomentLanes lanes_;
};

/// A row whose squares lie outside the range of f32. It is a separate function, so that its code does not take
/// registers from that of other rows.
template <class Element, bool kWhole>
__device__ __noinline__ void run_scaled(const NormArgs& a, float scale, NormSlots& slots);

/// One row, as its threads see it. kKept: the tile holds all of the row, so memory is read in the first pass only. A
/// kept tile of kNormChunks chunks has no registers left for a residual. kScaled: the numbers are multiplied by scale,
/// because their squares lie outside the range of f32; such a row is read again for each pass.
template <class Element, int kChunks, bool kWhole, bool kKept, bool kScaled>
class NormRow {
 public:
  FALCHION_DEVICE NormRow(const NormArgs& a, const RowHere& row, float scale)
      : a_(a),
        here_(row),
        there_(row.row < a.rows),
        place_(NormPlace::of(a, there_ ? row.row : 0)),
        tile_(a, there_, row.number),
        scale_(scale) {}

  FALCHION_DEVICE void run(NormSlots& slots) {
    if constexpr (kKept) fetch();
    const Statistics m = statistics(slots);
    if constexpr (!kScaled) {
      if (const float scale = there_ ? norm_scale(m.mean, m.variance, a_.eps) : 1; scale != 1)
        return run_scaled<Element, kWhole>(a_, scale, slots);
    }
    const NormScaled of = NormScaled::of(scale_, m.variance, a_.eps);
    const float factor = 1.f / sqrtf(m.variance + of.eps);
    if (there_ && here_.number == 0) {
      if (a_.mean.data != nullptr) static_cast<float*>(a_.mean.data)[begin_of(a_.mean)] = (m.mean + m.rest) * of.mean;
      if (a_.rstd.data != nullptr) static_cast<float*>(a_.rstd.data)[begin_of(a_.rstd)] = factor * of.rstd;
    }
    each_tile([&] { store_tile(m, factor); });
  }

 private:
  /// The mean of the row is mean + rest, where rest is the rounding error of mean in f32. RMSNorm subtracts no mean, so
  /// both are 0 there, and variance is the mean of the squares. All are those of the numbers times scale_.
  struct Statistics {
    float mean, rest, variance;
  };

  static constexpr bool kMayHaveResidual = !kKept || kChunks == kNormChunksOfTwo;
  FALCHION_DEVICE bool has_residual() const { return kMayHaveResidual && a_.residual.data != nullptr; }

  /// Where the row begins in x. Most often the rows have one axis, and the products of the others are spared.
  FALCHION_DEVICE std::int64_t begin_of(const View& x) const {
    return a_.s >= a_.rows ? place_.j * x.stride[1] : place_.in(x);
  }
  FALCHION_DEVICE float scaled(float v) const { return kScaled ? v * scale_ : v; }

  FALCHION_DEVICE void fetch() {
    if (!has_residual()) return tile_.template set<Element>(a_.x, begin_of(a_.x));
    if constexpr (kMayHaveResidual)
      tile_.template set_sum<Element>(a_.x, begin_of(a_.x), a_.residual_type, a_.residual, begin_of(a_.residual));
  }
  /// Calls f for each tile of the row.
  template <class F>
  FALCHION_DEVICE void each_tile(F f) {
    if constexpr (kKept) {
      f();
    } else {
      int moved = 0;
      for (; moved < tile_.d(); moved += tile_.size()) {
        fetch();
        f();
        tile_.move_by(tile_.size());
      }
      tile_.move_by(-moved);
    }
  }

  FALCHION_DEVICE Statistics statistics(NormSlots& slots) {
    const float d = static_cast<float>(a_.d);
    const NormTeam<kScaled> team(here_, slots);
    if (!a_.layer) {
      float sum = 0;
      each_tile([&] { tile_.each([&](float v) { sum = fmaf(scaled(v), scaled(v), sum); }); });
      return {0, 0, quotient(team.sum(sum), d)};
    }
    Moments part;
    each_tile([&] {
      const Moments of_tile = tile_.moments([&](float v) { return scaled(v); });
      part = part.count == 0 ? of_tile : both(part, of_tile);
    });
    const Moments x = team.all(part);
    const float mean = x.mean + x.rest, variance = quotient(x.squares, d);
    return {mean, (x.mean - mean) + x.rest, variance < 0 ? 0 : variance};  // NaN stays
  }

  FALCHION_DEVICE void store_tile(const Statistics& m, float factor) {
    if (a_.residual_out.data != nullptr) tile_.store(a_.residual_type, a_.residual_out, begin_of(a_.residual_out));
    const float shift = -m.rest * factor;
    tile_.each([&](float& v) { v = fmaf(scaled(v) - m.mean, factor, shift); });
    weigh();
    tile_.store(a_.y_type, a_.y, begin_of(a_.y));
  }

  FALCHION_DEVICE void weigh() {
    const bool weight = a_.weight.data != nullptr, bias = a_.bias.data != nullptr;
    if constexpr (sizeof(Element) == 2) {
      constexpr Number kType = std::is_same_v<Element, bf16> ? Number::bf16 : Number::f16;
      if (weight && bias && !a_.zero_centered && a_.weight_type == kType && a_.bias_type == kType)
        return tile_.template multiply_add<Element>(a_.weight, begin_of(a_.weight), a_.bias, begin_of(a_.bias));
    }
    if (weight) {
      const float more = a_.zero_centered ? 1 : 0;
      tile_.combine(a_.weight_type, a_.weight, begin_of(a_.weight), [=](float v, float w) { return v * (more + w); });
    }
    if (bias) tile_.combine(a_.bias_type, a_.bias, begin_of(a_.bias), [](float v, float b) { return v + b; });
  }

  const NormArgs& a_;
  const RowHere here_;
  const bool there_;
  const NormPlace place_;
  NormTile<kChunks, kWhole> tile_;
  const float scale_;  // 1 where not kScaled
};

template <class Element, bool kWhole>
__device__ void run_scaled(const NormArgs& a, float scale, NormSlots& slots) {
  NormRow<Element, 1, kWhole, false, true>(a, RowHere::of(a), scale).run(slots);
}

template <class Element, int kChunks, bool kWhole, bool kKept>
__global__ void __launch_bounds__(kKept&& kChunks == kNormChunksOfTwo ? kNormMostThreadsOfTwo : kNormMostThreads,
                                  kKept&& kChunks == kNormChunks ? 2 : 1) norm(const __grid_constant__ NormArgs a) {
  __shared__ NormSlots slots;
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
