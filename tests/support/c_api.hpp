// tests/support/c_api.hpp: problems, operands and targets of the C API, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "falchion/falchion.h"
#include "support/paths.hpp"

namespace falchion::testing {

inline fal_tensor to_c(const Tensor& x) {
  fal_tensor out = {};
  out.data = x.data;
  out.dtype = static_cast<std::int32_t>(x.dtype);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    out.shape[axis] = x.shape[axis];
    out.stride[axis] = x.stride[axis];
  }
  return out;
}
inline fal_operands to_c(const Operands& x) {
  fal_operands out = {};
  out.size = sizeof out;
  out.q = to_c(x.q);
  out.k = to_c(x.k);
  out.v = to_c(x.v);
  out.o = to_c(x.o);
  out.lse = to_c(x.lse);
  out.row_max = to_c(x.row_max);
  out.probabilities = to_c(x.probabilities);
  out.bias = to_c(x.bias);
  out.mask = to_c(x.mask);
  out.alibi = to_c(x.alibi);
  out.cu_seqlens_q = x.cu_seqlens_q;
  out.cu_seqlens_k = x.cu_seqlens_k;
  out.used_q = x.used_q;
  out.used_k = x.used_k;
  out.first_k = x.first_k;
  out.rng = {x.rng.seed, x.rng.offset, x.rng.at, 0};
  return out;
}
inline fal_attention to_c(const Attention& x) {
  fal_attention out = {};
  out.size = sizeof out;
  out.dtype = static_cast<std::int32_t>(x.dtype);
  out.b = x.b;
  out.s_q = x.s_q;
  out.s_k = x.s_k;
  out.h_q = x.h_q;
  out.h_k = x.h_k;
  out.d_qk = x.d_qk;
  out.d_v = x.d_v;
  out.band = {x.band.left, x.band.right, static_cast<std::int32_t>(x.band.align), 0};
  out.scale = x.score.scale;
  out.softcap = x.score.softcap;
  out.dropout = x.dropout;
  out.packed = x.packed;
  out.used_q = x.used_q;
  out.used_k = x.used_k;
  out.first_k = x.first_k;
  out.alibi = x.alibi;
  out.bias = x.bias;
  out.mask = x.mask;
  out.lse = x.lse;
  out.row_max = x.row_max;
  out.probabilities = x.probabilities;
  return out;
}

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
