// src/cpu/norm.hpp: layer norm and RMSNorm on the CPU. src/ref says what is computed; this file says in which order: a
// row, or a part of a long one, comes to f32 in the scratch memory, and the passes over it read that. A long row is
// read once for each pass.
#pragma once

#include "args/cpu_norm_args.hpp"
#include "blocks/arena.hpp"
#include "blocks/elements.hpp"
#include "cpu/workers.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Calls f with an element type of this level.
template <class F>
FALCHION_INLINE void with_type(Number type, const F& f) {
  switch (type) {
    case Number::f32: return f(f32{});
    case Number::f16: return f(f16{});
    case Number::bf16: return f(bf16{});
  }
}

/// One worker with its slice of the scratch memory.
template <class T>
class NormWorker {
 public:
  static constexpr std::int64_t kPart = 8192;          // numbers at a time: 32 KB of f32
  static constexpr std::int64_t kBlock = 32 * kLanes;  // of them that are summed in f32

  NormWorker(const NormArgs& a, Arena& arena)
      : a_(a),
        part_(max(min(a.d, kPart), 1)),
        v_(arena.take<float>(round_up(part_, kLanes))),
        other_(arena.take<float>(round_up(part_, kLanes))) {}

  void run(std::int64_t row) {
    const NormPlace place = NormPlace::of(a_, row);
    if (a_.d > 0) fetch(place, 0, part_);
    const Moments m = moments(place);
    const float rstd = 1 / hn::GetLane(hn::Sqrt(splat(m.variance + a_.eps)));
    if (a_.mean.data != nullptr) static_cast<float*>(a_.mean.data)[place.in(a_.mean)] = m.mean + m.rest;
    if (a_.rstd.data != nullptr) static_cast<float*>(a_.rstd.data)[place.in(a_.rstd)] = rstd;
    each_part(place, [&](std::int64_t first, std::int64_t count) {
      if (a_.residual_out.data != nullptr) write_as(a_.residual_type, a_.residual_out, place, first, count);
      each(count,
           [&](Floats v, Floats) { return hn::Mul(hn::Sub(hn::Sub(v, splat(m.mean)), splat(m.rest)), splat(rstd)); });
      if (a_.weight.data != nullptr) {
        read_as(a_.weight_type, a_.weight, place, first, count);
        const Floats more = splat(a_.zero_centered ? 1.f : 0.f);
        each(count, [&](Floats v, Floats weight) { return hn::Mul(v, hn::Add(more, weight)); });
      }
      if (a_.bias.data != nullptr) {
        read_as(a_.bias_type, a_.bias, place, first, count);
        each(count, [](Floats v, Floats bias) { return hn::Add(v, bias); });
      }
      write_as(a_.y_type, a_.y, place, first, count);
    });
  }

 private:
  /// The mean is mean + rest: what its f32 cannot hold is in rest. Of rms both are 0.
  struct Moments {
    float mean = 0, rest = 0, variance = 0;
  };

  /// The deviations are summed a second time from the first mean, which takes its rounding out (Chan, Golub and LeVeque
  /// 1983, "Algorithms for computing the sample variance"). The first sum counts from the row's first number, so a row
  /// of equal numbers has a variance of exactly 0.
  Moments moments(const NormPlace& place) {
    const float d = static_cast<float>(a_.d);
    Moments out;
    if (!a_.layer) {
      out.variance = sum(place, [](Floats v) { return hn::Mul(v, v); }) / d;
      return out;
    }
    const float start = a_.d > 0 && is_finite(v_[0]) ? v_[0] : 0.f;
    out.mean = start + sum(place, [&](Floats v) { return hn::Sub(v, splat(start)); }) / d;
    const auto deviation = [&](Floats v) { return hn::Sub(v, splat(out.mean)); };
    out.rest = is_finite(out.mean) ? sum(place, deviation) / d : 0;
    const float variance = sum(place,
                               [&](Floats v) {
                                 const Floats by = deviation(v);
                                 return hn::Mul(by, by);
                               }) /
                               d -
                           out.rest * out.rest;
    out.variance = variance < 0 ? 0 : variance;  // NaN stays
    return out;
  }
  static FALCHION_INLINE bool is_finite(float x) { return x - x == 0; }

  /// The sum of f(v) over the row. Few numbers are summed in f32 before they go to a double.
  template <class F>
  float sum(const NormPlace& place, const F& f) {
    double all = 0;
    each_part(place, [&](std::int64_t, std::int64_t count) {
      for (std::int64_t done = 0; done < count; done += kBlock) all += sum_of_block(done, min(count, done + kBlock), f);
    });
    return static_cast<float>(all);
  }

  template <class F>
  FALCHION_INLINE float sum_of_block(std::int64_t c, std::int64_t end, const F& f) {
    Floats even = splat(0.f), odd = splat(0.f);
    for (; c + 2 * kLanes <= end; c += 2 * kLanes) {
      even = hn::Add(even, f(load(v_ + c)));
      odd = hn::Add(odd, f(load(v_ + c + kLanes)));
    }
    for (; c < end; c += kLanes) {
      const auto there = hn::FirstN(kFloats, static_cast<std::size_t>(min(kLanes, end - c)));
      even = hn::Add(even, hn::IfThenElseZero(there, f(load(v_ + c))));
    }
    return sum_of_lanes(hn::Add(even, odd));
  }

  /// Calls f(first, count) for each part of the row, whose sums x + residual lie in v_ then.
  template <class F>
  FALCHION_INLINE void each_part(const NormPlace& place, const F& f) {
    for (std::int64_t first = 0; first < a_.d; first += part_) {
      const std::int64_t count = min(part_, a_.d - first);
      if (a_.d > part_) fetch(place, first, count);
      f(first, count);
    }
  }
  void fetch(const NormPlace& place, std::int64_t first, std::int64_t count) {
    read<T>(a_.x, place, first, count, v_);
    if (a_.residual.data == nullptr) return;
    read_as(a_.residual_type, a_.residual, place, first, count);
    each(count, [](Floats v, Floats r) { return hn::Add(v, r); });
  }

  template <class From>
  static void read(const View& x, const NormPlace& place, std::int64_t first, std::int64_t count, float* out) {
    const auto* from = static_cast<const typename From::Bits*>(x.data) + place.in(x) + first * x.stride[3];
    convert_row<From>(from, x.stride[3], count, out);
  }
  /// Part of an operand whose type is known at run time goes to other_.
  void read_as(Number type, const View& x, const NormPlace& place, std::int64_t first, std::int64_t count) {
    with_type(type, [&](auto from) { read<decltype(from)>(x, place, first, count, other_); });
  }
  void write_as(Number type, const View& x, const NormPlace& place, std::int64_t first, std::int64_t count) const {
    with_type(type, [&](auto to) {
      using To = decltype(to);
      auto* out = static_cast<typename To::Bits*>(x.data) + place.in(x) + first * x.stride[3];
      if (x.stride[3] == 1) return store_row<To>(out, v_, 1.f, count);
      for (std::int64_t c = 0; c < count; ++c) out[c * x.stride[3]] = To::from_float(v_[c]);
    });
  }
  /// v_ = f(v_, other_); whole vectors, behind the last number too.
  template <class F>
  FALCHION_INLINE void each(std::int64_t count, const F& f) {
    for (std::int64_t c = 0; c < count; c += kLanes) store(f(load(v_ + c), load(other_ + c)), v_ + c);
  }

  const NormArgs& a_;
  const std::int64_t part_;
  float* v_;
  float* other_;
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
      Arena arena(a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes);
      NormWorker<T> work(a, arena);
      for (std::int64_t item = next.take(); item < items; item = next.take()) {
        const std::int64_t end = min((item + 1) * a.item, a.rows);
        for (std::int64_t row = item * a.item; row < end; ++row) work.run(row);
      }
    });
  }
};

template <class T>
constexpr NormKernel norm_kernel() {
  return {&NormOnCpu<T>::scratch, &NormOnCpu<T>::run};
}

}  // namespace falchion::cpu::FALCHION_LEVEL
