// src/sm80/norm/rows.cuh: layer norm and RMSNorm on a GPU: the variants of kind `rows`. A power of two of threads share
// a row, hold it in registers as f32 and add up their sums: one read of memory and one write. A layer norm with weights
// of 16 bits is bound by instructions and not by memory, so a CTA goes through many rows, keeps their weights in
// registers, and has the next row on its way while one is summed. All others have more CTAs on an SM, each with rows of
// its own. Rows of more than 16384 numbers, and those that cannot be loaded 16 bytes at a time, are read once for the
// sums and once more for y. So are rows whose squares lie outside the range of f32 (policy/norm_range.hpp), after their
// first sums. This file gives the order of the steps; docs/design/norm.md has the measurements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/divide.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "policy/norm_range.hpp"
#include "sm80/norm/tile.cuh"

namespace falchion::sm80 {

using gpu::NormArgs;

/// Rows that a CTA has at a time.
FALCHION_DEVICE int rows_of_cta(const NormArgs& a) { return static_cast<int>(blockDim.x) / a.cut.threads; }

/// What the warps of a CTA exchange: the sums of rows in turn, since another warp may still read those of the row
/// before, and two sums of a row that is summed once more.
using NormSlots = float4[kNormReductions][kNormWarps];

/// The threads of a row, as they put together its sums; each of them gets the same bits. kAlone: other rows of the warp
/// and of the CTA do not take part.
template <bool kAlone>
class NormTeam {
 public:
  FALCHION_DEVICE NormTeam(const NormArgs& a, int number, NormSlots& slots)
      : threads_(a.cut.threads),
        first_(static_cast<int>(threadIdx.x) - number),
        slots_(slots),
        row_(NumberCount::of(static_cast<float>(a.d))) {
    lanes_ = {~0u, min(threads_, 32)};
    if (kAlone && threads_ < 32) lanes_.mask = ((1u << threads_) - 1) << first_ % 32;
  }

  /// Before moments are put together. count: of the numbers of a row that are this thread's.
  FALCHION_DEVICE void set_own(int count) {
    own_ = NumberCount::of(static_cast<float>(max(count, 1)));
    if (count == 0) own_.count = 0;
    warp_ = threads_ <= 32 ? row_ : NumberCount::of(lanes_.sum(own_.count));
  }
  FALCHION_DEVICE const NumberCount& own() const { return own_; }
  FALCHION_DEVICE const NumberCount& row() const { return row_; }
  FALCHION_DEVICE float sum(float x) {
    x = lanes_.sum(x);
    return threads_ <= 32 ? x : warps().sum(exchange({x, 0, 0, 0}).x);
  }
  FALCHION_DEVICE Moments all(const Moments& part) {
    const Moments x = lanes_.all(part, warp_);
    if (threads_ <= 32) return x;
    const float4 of_warp = exchange({x.count, x.mean, x.rest, x.squares});
    return warps().all({of_warp.x, of_warp.y, of_warp.z, of_warp.w}, row_);
  }

 private:
  /// The warps' parts are put together by as many lanes.
  FALCHION_DEVICE MomentLanes warps() const { return {~0u, threads_ / 32}; }
  FALCHION_DEVICE float4 exchange(const float4& x) {
    float4* const slots = slots_[kAlone * 2 + turn_];
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = x;
    if (first_ == 0)  // a row of 64 threads has one half of a CTA
      __barrier_sync_count(1, threads_);
    else
      __barrier_sync_count(2, threads_);
    return slots[first_ / 32 + threadIdx.x % (threads_ / 32)];
  }

  const int threads_, first_;  // of the row
  NormSlots& slots_;
  int turn_ = 0;
  MomentLanes lanes_;
  const NumberCount row_;
  NumberCount own_, warp_;
};

/// A row whose squares lie outside the range of f32. It is a separate function, so that its code does not take
/// registers from that of other rows.
template <class Element, bool kWhole>
__device__ __noinline__ void run_scaled(const NormArgs& a, std::int64_t row, float scale, NormSlots& slots);

/// How rows are run. The tile of a kept row holds all of it, so memory is read once. All others are read twice, with a
/// residual or without.
enum class NormWay {
  singles,  // numbers are loaded one by one
  twice,    // 16 bytes at a time, as in all that follow
  kept,     // without a residual
  kept_with_residual,
  in_turn,  // kept, without a residual, one row after the other: layer norms of 16 bits whose rows share their weights
};
constexpr bool is_kept(NormWay way) { return way != NormWay::singles && way != NormWay::twice; }
constexpr int chunks_of(NormWay way) {
  return !is_kept(way) ? 1 : way == NormWay::kept_with_residual ? kNormChunksOfTwo : kNormChunks;
}
constexpr int most_threads(NormWay way) {
  return way == NormWay::kept_with_residual ? kNormMostThreadsOfTwo : kNormMostThreads;
}

/// The rows of a thread. kScaled: the numbers are multiplied by a scale, because their squares lie outside the range of
/// f32; such a row is not kept.
template <class Element, NormWay kWay, bool kScaled = false>
class NormRows {
 public:
  FALCHION_DEVICE NormRows(const NormArgs& a, NormSlots& slots)
      : a_(a),
        number_(static_cast<int>(threadIdx.x) & (a.cut.threads - 1)),
        tile_(a, number_),
        team_(a, number_, slots),
        slots_(slots) {}

  FALCHION_DEVICE void run_one(std::int64_t row, float scale = 1) {
    row_ = row;
    place_ = place_of(row);
    scale_ = scale;
    if constexpr (kKept) {
      tile_.move_to(0, is_there());
      fetch();
      prefetch();
    }
    run_row();
  }
  /// The CTA's rows from `first` on, up to one whose squares lie outside the range of f32. Returns where to go on:
  /// during a call of run_scaled nothing is kept in registers that would have to be saved.
  FALCHION_DEVICE std::int64_t run_in_turn(std::int64_t first) {
    const int own = static_cast<int>(threadIdx.x) / a_.cut.threads, step = rows_of_cta(a_) * gridDim.x;
    load_weights();
    team_.set_own(tile_.count());
    ask(first + own);
    for (bool in_range = true; first < a_.rows && in_range; first += step) {  // threads without a row go along
      row_ = first + own;
      place_ = place_of(row_);
      take();
      ask(row_ + step);
      tile_.move_to(0, is_there());
      in_range = run_row();
    }
    return first;
  }

 private:
  static constexpr bool kWhole = kWay != NormWay::singles, kKept = is_kept(kWay), kInTurn = kWay == NormWay::in_turn;
  static constexpr bool kMayHaveResidual = !kKept || kWay == NormWay::kept_with_residual;
  static constexpr bool kInPlace = kKept && !kMayHaveResidual;  // a residual's sum is stored after the moments
  using Tile = NormTile<chunks_of(kWay), kWhole>;
  using Words = typename Tile::Words;
  struct Nothing {};

  /// The mean of the row is mean + rest, where rest is the rounding error of mean in f32. RMSNorm subtracts no mean, so
  /// both are 0 there, and variance is the mean of the squares. All are those of the numbers times scale_. What the
  /// tile holds is less by `taken`.
  struct Statistics {
    float mean, rest, variance, taken;
  };

  FALCHION_DEVICE bool has_residual() const { return kMayHaveResidual && a_.residual.data != nullptr; }
  FALCHION_DEVICE bool is_there() const { return row_ < a_.rows; }
  FALCHION_DEVICE float scaled(float v) const { return kScaled ? v * scale_ : v; }

  /// Where a row begins in an operand. Rows in turn have one axis, which spares the division by the others.
  FALCHION_DEVICE NormPlace place_of(std::int64_t row) const {
    if constexpr (kInTurn) return {0, static_cast<std::uint32_t>(row), 0};
    return NormPlace::of(a_, row < a_.rows ? row : 0);
  }
  FALCHION_DEVICE std::int64_t begin_of(const View& x) const {
    return kInTurn || a_.s >= a_.rows ? place_.j * x.stride[1] : place_.in(x);
  }

  FALCHION_DEVICE void fetch() {
    const Words x = tile_.template load<Element>(a_.x, begin_of(a_.x));
    if (!has_residual()) return tile_.template set<Element>(x);
    const Words y = tile_.load_as(a_.residual_type, a_.residual, begin_of(a_.residual));
    tile_.template set<Element>(x);
    tile_.add(a_.residual_type, y);
  }
  /// The row of the CTA that will take the place of this one comes to L2 meanwhile, where rows are so long that it
  /// pays.
  FALCHION_DEVICE void prefetch() const {
#if __CUDA_ARCH__ >= 900
    const int of_residual = !has_residual() ? 0 : a_.residual_type == Number::f32 ? 4 : 2;
    if (number_ != 0 || tile_.d() * (static_cast<int>(sizeof(Element)) + of_residual) < kNormAhead) return;
    const std::int64_t row = row_ + a_.sms * (kNormMostThreadsOfTwo / a_.cut.threads);
    if (a_.s < a_.rows || row >= a_.rows) return;
    prefetch_row(a_.x, row, sizeof(Element));
    if (has_residual()) prefetch_row(a_.residual, row, of_residual);
#endif
  }
#if __CUDA_ARCH__ >= 900
  FALCHION_DEVICE void prefetch_row(const View& x, std::int64_t row, int size) const {
    const char* from = static_cast<const char*>(x.data) + row * x.stride[1] * size;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(tile_.d() * size) : "memory");
  }
#endif
  /// The numbers of the next row are asked for, and taken when it is that row's turn.
  FALCHION_DEVICE void ask(std::int64_t row) {
    extern __shared__ uint4 stage[];
    tile_.move_to(0, row < a_.rows);
    tile_.ask(a_.x, row * a_.x.stride[1], stage);
  }
  FALCHION_DEVICE void take() {
    extern __shared__ uint4 stage[];
    tile_.template set<Element>(tile_.take(stage));
  }
  /// Calls f for each tile of the row, and for its first number.
  template <class F>
  FALCHION_DEVICE void each_tile(F f) {
    if constexpr (kKept) {
      f(0);
    } else {
      for (int first = 0; first < tile_.d(); first += tile_.size()) {
        tile_.move_to(first, is_there());
        fetch();
        f(first);
      }
    }
  }

  /// Returns false where the squares were out of the range of f32.
  FALCHION_DEVICE bool run_row() {
    const Statistics m = statistics();
    if constexpr (!kScaled) {
      if (const float scale = is_there() ? norm_scale(m.mean, m.variance, a_.eps) : 1; scale != 1) {
        run_scaled<Element, kWhole>(a_, row_, scale, slots_);
        return false;
      }
    }
    const NormScaled of = NormScaled::of(scale_, m.variance, a_.eps);
    const float factor = inverse_root(m.variance + of.eps);
    if (is_there() && number_ == 0) {
      if (a_.mean.data != nullptr) static_cast<float*>(a_.mean.data)[begin_of(a_.mean)] = (m.mean + m.rest) * of.mean;
      if (a_.rstd.data != nullptr) static_cast<float*>(a_.rstd.data)[begin_of(a_.rstd)] = factor * of.rstd;
    }
    each_tile([&](int) { store_tile(m, factor); });
    return true;
  }

  FALCHION_DEVICE Statistics statistics() {
    if (!kInTurn && !a_.layer) {
      float sum = 0;
      each_tile([&](int) { tile_.each([&](float v) { sum = fmaf(scaled(v), scaled(v), sum); }); });
      return {0, 0, team_.sum(sum) * team_.row().share, 0};
    }
    if constexpr (!kInTurn) team_.set_own(tile_.count());
    Moments part = moments();
    const float taken = part.mean;
    part = team_.all(part);
    const float mean = part.mean + part.rest, variance = part.squares * team_.row().share;
    if constexpr (kScaled) {
      if (!is_finite(variance)) return {mean_of_inf(), 0, variance, 0};
    }
    return {mean, (part.mean - mean) + part.rest, variance < 0 ? 0 : variance, kInPlace ? taken : 0};  // NaN stays
  }
  FALCHION_DEVICE Moments moments() {
    if constexpr (kKept) {
      return tile_.template moments<kInPlace>(team_.own());
    } else {
      Moments part;
      each_tile([&](int first) {
        if constexpr (kScaled) tile_.each([&](float& v) { v = scaled(v); });
        const float n = tile_.count(first);
        if (n == 0) return;
        const Moments of_tile = tile_.template moments<false>(NumberCount::of(n));
        part = part.count == 0 ? of_tile : both(part, of_tile);
      });
      return part;
    }
  }
  /// Of a row with an Inf or a NaN, whose deviations are NaN.
  FALCHION_DEVICE float mean_of_inf() {
    float sum = 0;
    each_tile([&](int) { tile_.each([&](float v) { sum += scaled(v); }); });
    return team_.sum(sum) * team_.row().share;
  }

  FALCHION_DEVICE void store_tile(const Statistics& m, float factor) {
    if (a_.residual_out.data != nullptr) tile_.store(a_.residual_type, a_.residual_out, begin_of(a_.residual_out));
    if constexpr (kInPlace) {
      const float shift = ((m.taken - m.mean) - m.rest) * factor;
      tile_.each([&](float& v) { v = fmaf(v, factor, shift); });
    } else {
      const float shift = -m.rest * factor;
      tile_.each([&](float& v) { v = fmaf(scaled(v) - m.mean, factor, shift); });
    }
    weigh();
    tile_.store(a_.y_type, a_.y, begin_of(a_.y));
  }

  FALCHION_DEVICE void load_weights() {
    tile_.move_to(0, true);
    if (a_.weight.data != nullptr) weight_ = tile_.template load<Element>(a_.weight, 0);
    if (a_.bias.data != nullptr) bias_ = tile_.template load<Element>(a_.bias, 0);
  }
  FALCHION_DEVICE void weigh() {
    const bool weight = a_.weight.data != nullptr, bias = a_.bias.data != nullptr;
    if constexpr (kInTurn) {
      if (bias)
        tile_.template multiply_add<Element>(weight_, bias_);
      else if (weight)
        tile_.template multiply<Element>(weight_);
      return;
    }
    if (weight) {
      const float more = a_.zero_centered ? 1 : 0;
      tile_.combine(a_.weight_type, a_.weight, begin_of(a_.weight), [=](float v, float w) { return v * (more + w); });
    }
    if (bias) tile_.combine(a_.bias_type, a_.bias, begin_of(a_.bias), [](float v, float b) { return v + b; });
  }

  const NormArgs& a_;
  const int number_;  // of the thread in its row
  Tile tile_;
  NormTeam<kScaled> team_;
  NormSlots& slots_;
  std::int64_t row_ = 0;
  NormPlace place_{};
  float scale_ = 1;  // 1 where not kScaled
  std::conditional_t<kInTurn, Words, Nothing> weight_, bias_;
};

template <class Element, bool kWhole>
__device__ void run_scaled(const NormArgs& a, std::int64_t row, float scale, NormSlots& slots) {
  NormRows<Element, kWhole ? NormWay::twice : NormWay::singles, true>(a, slots).run_one(row, scale);
}

template <class Element, NormWay kWay>
__global__ void __launch_bounds__(most_threads(kWay), kWay == NormWay::kept ? 2 : 1)
    norm(const __grid_constant__ NormArgs a) {
  __shared__ NormSlots slots;
  let_next_kernel_start();
  wait_for_earlier_kernels();
  std::int64_t first = std::int64_t{blockIdx.x} * rows_of_cta(a);
  if constexpr (kWay == NormWay::in_turn) {
    while (first < a.rows) first = NormRows<Element, kWay>(a, slots).run_in_turn(first);
  } else {
    NormRows<Element, kWay>(a, slots).run_one(first + static_cast<int>(threadIdx.x) / a.cut.threads);
  }
}

template <class Element, NormWay kWay>
int launch_norm_of(const NormArgs& a, void* stream) {
  const int threads = std::max(a.cut.threads, kNormThreads);
  std::int64_t blocks = ceil_div(a.rows, threads / a.cut.threads);
  int stage = 0;
  if constexpr (kWay == NormWay::in_turn) {
    // As many CTAs as the SMs hold at once, or fewer, so that each has as many rows as the others.
    const std::int64_t at_once = std::max<std::int64_t>(1, std::int64_t{a.sms} * (kNormMostThreads / threads));
    blocks = ceil_div(blocks, ceil_div(blocks, at_once));
    stage = threads * kNormChunks * 16;
  }
  return launch_kernel<norm<Element, kWay>>(static_cast<unsigned>(blocks), threads, stage, stream, a.early, a);
}

/// Whether the rows of a layer norm have one axis and the same weight and bias, of x's 16-bit type.
template <class Element>
bool runs_in_turn(const NormArgs& a) {
  constexpr Number kType = std::is_same_v<Element, bf16> ? Number::bf16 : Number::f16;
  const auto stays = [](const View& x, Number type) {
    return x.data == nullptr || (type == kType && x.stride[1] == 0);
  };
  return a.layer && !a.zero_centered && a.s >= a.rows && stays(a.weight, a.weight_type) && stays(a.bias, a.bias_type) &&
         (a.weight.data != nullptr || a.bias.data == nullptr);
}

template <class Element>
int launch_norm(const NormArgs& a, void* stream) {
  if (!a.cut.whole) return launch_norm_of<Element, NormWay::singles>(a, stream);
  if (!a.cut.kept) return launch_norm_of<Element, NormWay::twice>(a, stream);
  if (a.residual.data != nullptr) return launch_norm_of<Element, NormWay::kept_with_residual>(a, stream);
  if constexpr (sizeof(Element) == 2) {
    if (runs_in_turn<Element>(a)) return launch_norm_of<Element, NormWay::in_turn>(a, stream);
  }
  return launch_norm_of<Element, NormWay::kept>(a, stream);
}

template <class Element, int>
constexpr gpu::NormKernel norm_rows() {
  return {launch_norm<Element>, norm_facts()};
}

}  // namespace falchion::sm80
