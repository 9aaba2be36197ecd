// tests/support/quantise.hpp: a problem of Quantise with its memory.
#pragma once

#include "plan/quantise.hpp"
#include "support/paths.hpp"
#include "support/tensor.hpp"

namespace falchion::testing {

inline constexpr const char* kQuantised = "quantise";

/// x is random, as are scale and mean where they are inputs. Outputs are poisoned.
struct QuantiseInstance {
  QuantiseInstance(const Quantise& q, Layout layout = Layout::dense, std::uint64_t seed = 1)
      : problem(q),
        x(q.dtype, {q.b, q.s, q.h, q.d}, layout),
        mean(DType::f32, {q.b, 1, q.h, q.d}, layout == Layout::reversed ? Layout::dense : layout),
        scale(DType::f32, {q.b, blocks_of(q), q.h, 1}),
        y(q.dtype_y, {q.b, q.s, q.h, q.d}, layout == Layout::reversed ? Layout::dense : layout) {
    x.fill_normal(seed);
    if (q.mean_given) mean.fill_normal(seed + 1);
    if (!q.scale_given) return;
    scale.fill_normal(seed + 2);
    scale.for_each(
        [&](auto i, auto j, auto k, auto l) { scale.set(i, j, k, l, 0.02F + 0.004F * scale.get(i, j, k, l)); });
  }
  QuantiseOperands operands() const {
    return {.x = x.view(), .mean = problem.smooth ? mean.view() : Tensor{}, .scale = scale.view(), .y = y.view()};
  }

  Quantise problem;
  HostTensor x, mean, scale, y;
};

}  // namespace falchion::testing
