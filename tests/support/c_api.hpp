// tests/support/c_api.hpp: a small problem and a target of the C API, for its tests of attention.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "falchion/falchion.h"
#include "support/paths.hpp"
#include "support/to_c.hpp"

namespace falchion::testing {

inline fal_attention small() {
  fal_attention a = {};
  a.size = sizeof a;
  a.dtype = FAL_F32;
  a.b = 1;
  a.s_q = a.s_k = 4;
  a.h_q = a.h_k = 1;
  a.d_qk = a.d_v = 8;
  return a;
}
/// Returns the target for these tests, whose operands lie on the host.
inline fal_target host() {
  fal_target target = {};
  target.size = sizeof target;
  target.backend = static_cast<int32_t>(host_target().backend);
  return target;
}
inline fal_status make(const fal_attention* problem, const fal_target* target = nullptr, int32_t pass = FAL_FORWARD) {
  fal_plan* plan = nullptr;
  const fal_status status = fal_plan_make(problem, pass, target, &plan);
  EXPECT_EQ(plan != nullptr, status == FAL_OK);
  fal_plan_free(plan);
  return status;
}

}  // namespace falchion::testing
