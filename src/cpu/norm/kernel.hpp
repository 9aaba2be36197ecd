// src/cpu/norm/kernel.hpp: layer norm and RMSNorm on the CPU. src/ref defines the result; this file gives the order of
// the steps: a row, or a part of a long one, is converted to f32 in the scratch memory, which the passes over it read.
// A long row is read and converted once for each pass. So is a row whose squares are outside the range of f32, after
// its first sums (policy/norm_range.hpp).
#pragma once

#include "cpu/blocks/workers.hpp"
#include "cpu/norm/operand.hpp"
#include "policy/norm_range.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// One worker with its slice of the scratch memory. kScaled: the numbers are multiplied by scale, because their squares
/// are outside the range of f32. That code is separate, so that other rows do not pay for it.
template <class T, bool kScaled = false>
class NormWorker {
 public:
  static constexpr std::int64_t kPart = 8192;          // numbers at a time: 32 KB of f32
  static constexpr std::int64_t kBlock = 32 * kLanes;  // of them that are summed in f32

  NormWorker(const NormArgs& a, Arena& arena, float scale = 1)
      : a_(a),
        scale_(scale),
        part_(max(min(a.d, kPart), 1)),
        v_(arena.take<float>(round_up(part_, kLanes))),
        residual_(a.residual, a.residual_type, part_, arena),
        weight_(a.weight, a.weight_type, part_, arena),
        bias_(a.bias, a.bias_type, part_, arena) {}

  /// Returns the factor that the row's numbers need; if it is not `scale`, nothing was written.
  float run(std::int64_t row) {
    const NormPlace place = NormPlace::of(a_, row);
    if (a_.d > 0) fetch(place, 0, part_);
    const Moments m = moments(place);
    if constexpr (!kScaled) {
      if (const float scale = norm_scale(m.mean, m.variance, a_.eps); scale != 1) [[unlikely]]
        return scale;
    }
    const NormScaled of = NormScaled::of(kScaled ? scale_ : 1, m.variance, a_.eps);
    const float factor = 1 / hn::GetLane(hn::Sqrt(splat(m.variance + of.eps)));
    if (a_.mean.data != nullptr) static_cast<float*>(a_.mean.data)[place.in(a_.mean)] = (m.mean + m.rest) * of.mean;
    if (a_.rstd.data != nullptr) static_cast<float*>(a_.rstd.data)[place.in(a_.rstd)] = factor * of.rstd;
    each_part(place, [&](std::int64_t first, std::int64_t count) {
      store_part(a_.residual_out, a_.residual_type, place, first, count, v_);
      weight_.fetch(place, first, count);
      bias_.fetch(place, first, count);
      multiply(count);
      if (a_.layer) {
        finish<true>(count, m, factor);
      } else {
        finish<false>(count, m, factor);
      }
      store_part(a_.y, a_.y_type, place, first, count, v_);
    });
    return scale_;
  }
  /// The scratch memory was overwritten.
  void forget() {
    residual_.forget();
    weight_.forget();
    bias_.forget();
  }

 private:
  /// The mean of the row is mean + rest, where rest is the rounding error of mean in f32. RMSNorm subtracts no mean, so
  /// both are 0 there, and variance is the mean of the squares. All are those of the numbers times scale.
  struct Moments {
    float mean = 0, rest = 0, variance = 0;
  };
  struct Sums {
    double deviations = 0, squares = 0;
  };

  static FALCHION_INLINE bool is_finite(float x) { return x - x == 0; }

  /// The deviations from the first mean are summed again, which corrects its rounding (Chan, Golub and LeVeque 1983,
  /// "Algorithms for computing the sample variance"). The first number of the row is subtracted from each before the
  /// first sum, so a row of equal numbers has a variance of exactly 0.
  Moments moments(const NormPlace& place) {
    const auto d = static_cast<double>(a_.d);
    Moments out;
    if (!a_.layer) {
      out.variance = static_cast<float>(sums_from(0, place).squares / d);
      return out;
    }
    const float start = a_.d > 0 && is_finite(v_[0]) ? v_[0] * (kScaled ? scale_ : 1) : 0.f;
    out.mean = static_cast<float>(start + sums_from(start, place).deviations / d);
    const Sums sums = sums_from(out.mean, place);
    const double rest = sums.deviations / d;
    out.rest = is_finite(out.mean) ? static_cast<float>(rest) : 0.f;
    const auto variance = static_cast<float>(sums.squares / d - rest * rest);
    out.variance = variance < 0 ? 0 : variance;  // NaN stays
    return out;
  }
  /// The sums of v - from and of its squares. At most kBlock numbers are summed in f32 before they go to a double.
  Sums sums_from(float from, const NormPlace& place) {
    Sums all;
    each_part(place, [&](std::int64_t, std::int64_t count) {
      multiply(count);
      for (std::int64_t first = 0; first < count; first += kBlock)
        add_block(splat(from), first, min(count, first + kBlock), &all);
    });
    return all;
  }
  FALCHION_INLINE void add_block(Floats from, std::int64_t c, std::int64_t end, Sums* all) const {
    Floats sum[2] = {splat(0.f), splat(0.f)}, squares[2] = {splat(0.f), splat(0.f)};
    for (; c + 2 * kLanes <= end; c += 2 * kLanes) {
      for (int i = 0; i < 2; ++i) {
        const Floats by = hn::Sub(load(v_ + c + i * kLanes), from);
        sum[i] = hn::Add(sum[i], by);
        squares[i] = hn::MulAdd(by, by, squares[i]);
      }
    }
    for (; c < end; c += kLanes) {
      const auto there = hn::FirstN(kFloats, static_cast<std::size_t>(min(kLanes, end - c)));
      const Floats by = hn::IfThenElseZero(there, hn::Sub(load(v_ + c), from));
      sum[0] = hn::Add(sum[0], by);
      squares[0] = hn::MulAdd(by, by, squares[0]);
    }
    all->deviations += sum_of_lanes(hn::Add(sum[0], sum[1]));
    all->squares += sum_of_lanes(hn::Add(squares[0], squares[1]));
  }
  /// v = v scale, in whole vectors as in finish.
  FALCHION_INLINE void multiply(std::int64_t count) {
    for (std::int64_t c = 0; kScaled && c < count; c += kLanes) store(hn::Mul(load(v_ + c), splat(scale_)), v_ + c);
  }
  /// v = (v - mean) by weight + bias; RMSNorm has no mean to subtract. It computes whole vectors, so it writes past the
  /// last number, where v_ has space.
  template <bool kMean>
  FALCHION_INLINE void finish(std::int64_t count, Moments m, float by) {
    // Otherwise the vectors below are made before the calls above, and are in memory during the loop: 10 % slower (GCC
    // 12).
    asm volatile("" : "+m"(m), "+m"(by));
    const Floats mean = splat(m.mean), rest = splat(m.rest), factor = splat(by);
    const Floats more = splat(a_.zero_centered ? 1.f : 0.f);
    for (std::int64_t c = 0; c < count; c += kLanes) {
      Floats v = load(v_ + c);
      if (kMean) v = hn::Sub(hn::Sub(v, mean), rest);
      v = hn::Mul(v, factor);
      if (weight_.is_there()) v = hn::Mul(v, hn::Add(more, load(weight_.numbers() + c)));
      if (bias_.is_there()) v = hn::Add(v, load(bias_.numbers() + c));
      store(v, v_ + c);
    }
  }

  /// Calls f(first, count) for each part of the row, whose sums x + residual are in v_ then, not yet multiplied.
  template <class F>
  FALCHION_INLINE void each_part(const NormPlace& place, const F& f) {
    for (std::int64_t first = 0; first < a_.d; first += part_) {
      const std::int64_t count = min(part_, a_.d - first);
      if (kScaled || a_.d > part_) fetch(place, first, count);
      f(first, count);
    }
  }
  void fetch(const NormPlace& place, std::int64_t first, std::int64_t count) {
    const auto* from = static_cast<const typename T::Bits*>(a_.x.data) + place.in(a_.x) + first * a_.x.stride[3];
    convert_row<T>(from, a_.x.stride[3], count, v_);
    if (!residual_.is_there()) return;
    residual_.fetch(place, first, count);
    for (std::int64_t c = 0; c < count; c += kLanes)
      store(hn::Add(load(v_ + c), load(residual_.numbers() + c)), v_ + c);
  }

  const NormArgs& a_;
  const float scale_;
  const std::int64_t part_;
  float* v_;
  NormInput residual_, weight_, bias_;
};

template <class T>
struct NormOnCpu {
  static std::size_t scratch(const NormArgs& a) {
    Arena arena(nullptr);
    NormWorker<T>(a, arena);
    return arena.used();
  }
  static void run(const NormArgs& a) {
    const std::int64_t items = ceil_div(a.rows, a.item);
    for_each_worker(a, items, [&](int worker, Counter& next) {
      std::byte* scratch = a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes;
      Arena arena(scratch);
      NormWorker<T> work(a, arena);
      for (std::int64_t item = next.take(); item < items; item = next.take()) {
        const std::int64_t end = min((item + 1) * a.item, a.rows);
        for (std::int64_t row = item * a.item; row < end; ++row) {
          const float scale = work.run(row);
          if (scale == 1) continue;
          run_scaled(a, scratch, row, scale);
          work.forget();
        }
      }
    });
  }
  __attribute__((noinline)) static void run_scaled(const NormArgs& a, std::byte* scratch, std::int64_t row,
                                                   float scale) {
    Arena arena(scratch);
    NormWorker<T, true>(a, arena, scale).run(row);
  }
};

template <class T>
constexpr NormKernel norm_kernel() {
  return {&NormOnCpu<T>::scratch, &NormOnCpu<T>::run};
}

}  // namespace falchion::cpu::FALCHION_LEVEL
