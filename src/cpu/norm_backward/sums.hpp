// src/cpu/norm_backward/sums.hpp: the sums of grad_weight and grad_bias over the rows of a group.
#pragma once

#include "args/cpu_norm_backward_args.hpp"
#include "cpu/norm/operand.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

template <class T>
constexpr Number type_of() {
  return std::is_same_v<T, f32> ? Number::f32 : std::is_same_v<T, f16> ? Number::f16 : Number::bf16;
}

/// A worker's sums of the part that it is at: of a few rows, and of all rows before these, so that a part may have any
/// number of rows and no number is added to a sum of more than some hundred others.
class NormSums {
 public:
  static constexpr std::int64_t kRows = 256;

  NormSums(const NormBackwardArgs& a, Arena& arena) : a_(a), d_(round_up(a.d, kLanes)) {
    for (Sum* sum : {&weight_, &bias_}) {
      sum->rows = arena.take<float>(d_);
      sum->part = arena.take<float>(d_);
    }
    weight_.to = &a.grad_weight;
    bias_.to = &a.grad_bias;
  }

  void begin() {
    each([&](const Sum& sum, std::int64_t) {
      for (std::int64_t c = 0; c < d_; c += kLanes) {
        store(splat(0.f), sum.rows + c);
        store(splat(0.f), sum.part + c);
      }
    });
  }
  FALCHION_INLINE void add(std::int64_t c, Floats grad_y, Floats z) const {
    if (weight_.is_wanted()) store(hn::MulAdd(grad_y, z, load(weight_.rows + c)), weight_.rows + c);
    if (bias_.is_wanted()) store(hn::Add(grad_y, load(bias_.rows + c)), bias_.rows + c);
  }
  /// The sums of the last rows go to those of the part.
  void pass_on() {
    each([&](const Sum& sum, std::int64_t) {
      for (std::int64_t c = 0; c < d_; c += kLanes) {
        store(hn::Add(load(sum.part + c), load(sum.rows + c)), sum.part + c);
        store(splat(0.f), sum.rows + c);
      }
    });
  }
  void end(std::int64_t group, std::int64_t part) {
    pass_on();
    each([&](const Sum& sum, std::int64_t place) {
      if (a_.parts == 1) return put(sum, group);
      float* to = a_.sums + part_at(group, part) + place;
      for (std::int64_t j = 0; j < a_.d; ++j) to[j] = sum.part[j];
    });
  }
  void add_parts(std::int64_t group) {
    begin();
    each([&](const Sum& sum, std::int64_t place) {
      for (std::int64_t part = 0; part < a_.parts; ++part) {
        const float* from = a_.sums + part_at(group, part) + place;
        for (std::int64_t j = 0; j < a_.d; ++j) sum.part[j] += from[j];
      }
      put(sum, group);
    });
  }

 private:
  struct Sum {
    const NormSum* to = nullptr;
    float *rows = nullptr, *part = nullptr;
    bool is_wanted() const { return to->to.data != nullptr; }
  };

  /// Calls f(sum, where it begins among the sums of a part in the workspace) for each that is wanted.
  template <class F>
  void each(const F& f) {
    if (weight_.is_wanted()) f(weight_, 0);
    if (bias_.is_wanted()) f(bias_, a_.begin_of_bias());
  }
  std::int64_t part_at(std::int64_t group, std::int64_t part) const {
    return (group * a_.parts + part) * a_.sums_of_part();
  }
  void put(const Sum& sum, std::int64_t group) const {
    store_part(sum.to->to, sum.to->type, NormPlace::of(a_, group * a_.group), 0, a_.d, sum.part);
  }

  const NormBackwardArgs& a_;
  const std::int64_t d_;
  Sum weight_, bias_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
