// src/ref/gemm.hpp: the definition of a GEMM.
#pragma once

#include <algorithm>
#include <cstdint>

#include "falchion/falchion.hpp"

namespace falchion::ref {

/// k in [first, end), whose products share the scales of A and of B. Without scales both are 1.
struct ScaledPart {
  std::int64_t first, end;
  float scale_a, scale_b;
};
/// Part `part` of the product of row `i` of A and row `column` of B: with block128 128 of k, else all of k.
ScaledPart scaled_part(const Gemm& problem, const GemmOperands& x, std::int64_t batch, std::int64_t i,
                       std::int64_t column, std::int64_t part);

/// Calls f(ScaledPart) for each part of that product, in order.
template <class F>
void each_scaled_part(const Gemm& problem, const GemmOperands& x, std::int64_t batch, std::int64_t i,
                      std::int64_t column, const F& f) {
  for (std::int64_t done = 0, part = 0; done < problem.k; ++part) {
    const ScaledPart found = scaled_part(problem, x, batch, i, column, part);
    f(found);
    done = found.end;
  }
}

/// Calls f(k, l) with the two axes of A and B for each k of [first, end), in order.
template <class F>
void each_of_k(const GemmOperands& x, std::int64_t first, std::int64_t end, const F& f) {
  const std::int64_t k1 = x.a.shape[3];
  if (first == end) return;
  std::int64_t k = first / k1, l = first % k1;
  for (std::int64_t i = first; i < end; ++i) {
    f(k, l);
    if (++l < k1) continue;
    l = 0;
    ++k;
  }
}

/// The activation of one number; of swiglu it is the gate's.
double activated(Activation activation, double x);

/// Computes Z = alpha s_a s_b A B^T + beta C + bias, D = activation(Z) + R in double, one element after the other; with
/// scales of blocks s_a s_b A B^T is the sum over the parts of k, each times its scales. problem and operands must be
/// valid (src/api/validate.hpp), except that each tensor may also be f32, for a reference whose inputs are not rounded.
/// It allocates nothing, throws nothing and runs on one thread.
void gemm(const Gemm& problem, const GemmOperands& operands) noexcept;

}  // namespace falchion::ref
