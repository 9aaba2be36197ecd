// tests/support/contract.hpp: what the tests of docs/contract.md share: they plant something, run every path and look
// at the result.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/compare.hpp"
#include "support/instance.hpp"
#include "support/paths.hpp"

namespace falchion::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

/// Runs the case on every path after plant(instance), compares it with the definition, and then calls check(instance).
/// sm90, where it is asked for by name, may refuse the case.
template <class Plant, class Check>
void planted(const Case& row, const Plant& plant, const Check& check) {
  on_every_path_and_named_hopper([&](const Path& path, DType dtype) {
    Instance x = make_instance(row, dtype, 7);
    plant(x);
    const Status status = run(path, &x);
    if (path.backend == Backend::sm90 && status.code == Code::unsupported) return;
    ASSERT_TRUE(status) << status.why;
    EXPECT_TRUE(matches(x, Reference(x)));
    check(x);
  });
}
inline void nothing(Instance&) {}
inline void agreed(const Instance&) {}

inline void set_row(HostTensor* x, std::int64_t b, std::int64_t s, std::int64_t h, float value) {
  for (std::int64_t d = 0; d < x->shape()[3]; ++d) x->set(b, s, h, d, value);
}
inline void expect_empty(const Instance& x, std::int64_t b, std::int64_t i) {
  for (std::int64_t h = 0; h < x.problem.h_q; ++h) {
    for (std::int64_t d = 0; d < x.problem.d_v; ++d) ASSERT_EQ(x.o.get(b, i, h, d), 0) << "row " << i;
    ASSERT_EQ(x.lse.get(b, h, i, 0), -kInf) << "row " << i;
    if (x.problem.row_max) { ASSERT_EQ(x.row_max.get(b, h, i, 0), -kInf) << "row " << i; }
  }
}
inline bool row_has(const Instance& x, std::int64_t b, std::int64_t i, std::int64_t h, bool (*what)(float)) {
  for (std::int64_t d = 0; d < x.problem.d_v; ++d) {
    if (!what(x.o.get(b, i, h, d))) return false;
  }
  return true;
}
/// row_has(is_finite). On a tensor-core path columns that a NaN in V of a masked key may reach do not count.
inline bool row_is_clean(const Instance& x, std::int64_t b, std::int64_t i, std::int64_t h) {
  for (std::int64_t d = 0; d < x.problem.d_v; ++d) {
    if (!std::isfinite(x.o.get(b, i, h, d)) && !masked_v_may_reach(x, {b, i, h, d})) return false;
  }
  return true;
}
inline bool is_nan(float x) { return std::isnan(x); }
inline bool is_finite(float x) { return std::isfinite(x); }

inline Status make(const Attention& problem, Target target = {}, Pass pass = Pass::forward) {
  Plan plan;
  return Plan::make(problem, pass, target, &plan);
}
inline Attention small_problem() { return make_instance(Case{"x", 1, 8, 8, 2, 2, 16, 16}, DType::bf16).problem; }

}  // namespace falchion::testing
