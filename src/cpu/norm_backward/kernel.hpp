// src/cpu/norm_backward/kernel.hpp: the gradients of layer norm and RMSNorm on the CPU. src/ref defines the result;
// this file gives the order of the steps: a row's mean, then its other sums, then grad_x, while what the row adds to
// grad_weight and grad_bias goes into the sums of its part. The parts' sums are added last, in their order.
#pragma once

#include "cpu/blocks/workers.hpp"
#include "cpu/norm_backward/sums.hpp"
#include "policy/norm_range.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// One worker with its slice of the scratch memory.
template <class T>
class NormBackwardWorker {
 public:
  static constexpr std::int64_t kPart = 8192;          // numbers at a time: 32 KB of f32
  static constexpr std::int64_t kBlock = 32 * kLanes;  // of them that are summed in f32

  NormBackwardWorker(const NormBackwardArgs& a, Arena& arena)
      : a_(a),
        part_(max(min(a.d, kPart), 1)),
        v_(arena.take<float>(round_up(part_, kLanes))),
        g_(arena.take<float>(round_up(part_, kLanes))),
        weight_(a.weight, a.weight_type, part_, arena),
        grad_y_(a.grad_y, a.grad_y_type, part_, arena),
        residual_(a.grad_residual_out, a.residual_type, part_, arena),
        sums_(a, arena) {}

  /// One part of a group.
  void run(std::int64_t group, std::int64_t part) {
    sums_.begin();
    const std::int64_t first = part * a_.part_rows, end = min(first + a_.part_rows, a_.group);
    for (std::int64_t row = first; row < end; ++row) {
      run_row(NormPlace::of(a_, group * a_.group + row));
      if ((row - first) % NormSums::kRows == NormSums::kRows - 1) sums_.pass_on();
    }
    sums_.end(group, part);
  }

 private:
  /// rest is the rounding error of mean in f32; g and gz are the means of g and g (v - mean - rest). The first four are
  /// those of the numbers times scale. RMSNorm has no mean, and g is 0 there.
  struct Means {
    float mean = 0, rest = 0, variance = 0, gz = 0, g = 0;
  };
  struct Sums {
    double by = 0, squares = 0, g = 0, gz = 0;
  };

  static FALCHION_INLINE bool is_finite(double x) { return x - x == 0; }

  void run_row(const NormPlace& place) {
    scale_ = 1;
    held_ = false;
    Means m = means(place);
    if (const float scale = norm_scale(m.mean, m.variance, a_.eps); scale != 1) [[unlikely]] {
      scale_ = scale;
      held_ = false;
      m = means(place);
    }
    const NormScaled of = NormScaled::of(scale_, m.variance, a_.eps);
    const float factor = 1 / hn::GetLane(hn::Sqrt(splat(m.variance + of.eps)));
    each_part(place, [&](std::int64_t first, std::int64_t count) {
      residual_.fetch(place, first, count);
      finish(first, count, m, factor, of.rstd);
      store_part(a_.grad_x, kType, place, first, count, v_);
    });
  }

  Means means(const NormPlace& place) {
    const auto d = static_cast<double>(a_.d);
    Means out;
    if (a_.layer) out.mean = mean(place);
    Sums all;
    each_part(place, [&](std::int64_t, std::int64_t count) {
      for (std::int64_t c = 0; c < count; c += kBlock) add_block(splat(out.mean), c, min(count, c + kBlock), &all);
    });
    const double rest = a_.layer && is_finite(out.mean) ? all.by / d : 0;
    out.rest = static_cast<float>(rest);
    const auto variance = static_cast<float>(all.squares / d - rest * rest);
    out.variance = variance < 0 ? 0 : variance;  // NaN stays
    const double g = all.g / d;
    out.g = a_.layer ? static_cast<float>(g) : 0.f;
    out.gz = static_cast<float>(all.gz / d - (is_finite(g) ? rest * g : 0));
    return out;
  }
  /// The first number of the row is subtracted from each, so that equal numbers have their mean exactly.
  float mean(const NormPlace& place) {
    double sum = 0;
    float start = 0;
    each_part(place, [&](std::int64_t first, std::int64_t count) {
      if (first == 0) start = is_finite(v_[0]) ? v_[0] : 0.f;
      for (std::int64_t c = 0; c < count; c += kBlock) sum += sum_from(splat(start), c, min(count, c + kBlock));
    });
    return static_cast<float>(start + sum / static_cast<double>(a_.d));
  }
  FALCHION_INLINE float sum_from(Floats start, std::int64_t c, std::int64_t end) const {
    Floats sum[2] = {splat(0.f), splat(0.f)};
    for (; c + 2 * kLanes <= end; c += 2 * kLanes)
      for (int i = 0; i < 2; ++i) sum[i] = hn::Add(sum[i], hn::Sub(load(v_ + c + i * kLanes), start));
    for (; c < end; c += kLanes) sum[0] = hn::Add(sum[0], only(end - c, hn::Sub(load(v_ + c), start)));
    return sum_of_lanes(hn::Add(sum[0], sum[1]));
  }
  FALCHION_INLINE void add_block(Floats mean, std::int64_t c, std::int64_t end, Sums* all) const {
    Floats sum = splat(0.f), squares = splat(0.f), of_g = splat(0.f), of_gz = splat(0.f);
    for (; c < end; c += kLanes) {
      Floats by = hn::Sub(load(v_ + c), mean), g = load(g_ + c);
      if (c + kLanes > end) {
        by = only(end - c, by);
        g = only(end - c, g);
      }
      sum = hn::Add(sum, by);
      squares = hn::MulAdd(by, by, squares);
      of_g = hn::Add(of_g, g);
      of_gz = hn::MulAdd(g, by, of_gz);
    }
    all->by += sum_of_lanes(sum);
    all->squares += sum_of_lanes(squares);
    all->g += sum_of_lanes(of_g);
    all->gz += sum_of_lanes(of_gz);
  }
  static FALCHION_INLINE Floats only(std::int64_t count, Floats x) {
    return count >= kLanes ? x : hn::IfThenElseZero(hn::FirstN(kFloats, static_cast<std::size_t>(count)), x);
  }

  /// v = grad_x; the part's numbers go into the sums. It computes whole vectors, so it writes past the last number,
  /// where v_ and the sums have space. rstd is factor times back, which is 1 or a power of two: rstd itself may be past
  /// f32.
  FALCHION_INLINE void finish(std::int64_t first, std::int64_t count, Means m, float factor, float back) {
    const Floats mean = splat(m.mean), rest = splat(m.rest), by = splat(factor), more = splat(back);
    const Floats of_g = splat(m.g), of_gz = splat(m.gz * factor);
    const bool residual = residual_.is_there();
    for (std::int64_t c = 0; c < count; c += kLanes) {
      const Floats z = hn::Mul(hn::Sub(hn::Sub(load(v_ + c), mean), rest), by);
      sums_.add(first + c, load(grad_y_.numbers() + c), z);
      const Floats terms = hn::NegMulAdd(z, of_gz, hn::Sub(load(g_ + c), of_g));
      Floats grad = hn::Mul(hn::Mul(terms, by), more);
      if (residual) {  // whose Inf stays one beside a gradient that is finite but past f32
        const Floats own = load(residual_.numbers() + c);
        grad = hn::IfThenElse(hn::And(hn::IsInf(own), hn::IsFinite(terms)), own, hn::Add(grad, own));
      }
      store(grad, v_ + c);
    }
  }

  /// Calls f(first, count) for each part of the row, whose numbers are in v_ then, times scale_, with g in g_.
  template <class F>
  FALCHION_INLINE void each_part(const NormPlace& place, const F& f) {
    for (std::int64_t first = 0; first < a_.d; first += part_) {
      const std::int64_t count = min(part_, a_.d - first);
      if (!held_) fetch(place, first, count);
      held_ = count == a_.d;
      f(first, count);
    }
  }
  void fetch(const NormPlace& place, std::int64_t first, std::int64_t count) {
    const auto* from = static_cast<const typename T::Bits*>(a_.x.data) + place.in(a_.x) + first * a_.x.stride[3];
    convert_row<T>(from, a_.x.stride[3], count, v_);
    for (std::int64_t c = 0; scale_ != 1 && c < count; c += kLanes) store(hn::Mul(load(v_ + c), splat(scale_)), v_ + c);
    grad_y_.fetch(place, first, count);
    weight_.fetch(place, first, count);
    const Floats more = splat(a_.zero_centered ? 1.f : 0.f);
    for (std::int64_t c = 0; c < count; c += kLanes) {
      const Floats y = load(grad_y_.numbers() + c);
      store(weight_.is_there() ? hn::Mul(y, hn::Add(more, load(weight_.numbers() + c))) : y, g_ + c);
    }
  }

  static constexpr Number kType = type_of<T>();

  const NormBackwardArgs& a_;
  const std::int64_t part_;
  float scale_ = 1;
  bool held_ = false;  // v_ and g_ have the whole row
  float *v_, *g_;
  NormInput weight_, grad_y_, residual_;
  NormSums sums_;
};

template <class T>
struct NormBackwardOnCpu {
  static std::size_t scratch(const NormBackwardArgs& a) {
    Arena arena(nullptr);
    NormBackwardWorker<T>(a, arena);
    return arena.used();
  }
  static void run(const NormBackwardArgs& a) {
    const std::int64_t items = a.groups * a.parts;
    for_each_worker(a, items, [&](int worker, Counter& next) {
      Arena arena(a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes);
      NormBackwardWorker<T> work(a, arena);
      for (std::int64_t item = next.take(); item < items; item = next.take()) work.run(item / a.parts, item % a.parts);
    });
    if (a.parts == 1 || !a.has_sums()) return;
    for_each_worker(a, a.groups, [&](int worker, Counter& next) {
      Arena arena(a.scratch + static_cast<std::size_t>(worker) * a.scratch_bytes);
      NormSums sums(a, arena);
      for (std::int64_t group = next.take(); group < a.groups; group = next.take()) sums.add_parts(group);
    });
  }
};

template <class T>
constexpr NormBackwardKernel norm_backward_kernel() {
  return {&NormBackwardOnCpu<T>::scratch, &NormBackwardOnCpu<T>::run};
}

}  // namespace falchion::cpu::FALCHION_LEVEL
