// src/gpu/attention_forward/scales.cuh: the scales of q, k and v of 8 bits, where there is no cache.
#pragma once

#include "args/gpu_attention_args.hpp"
#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/softmax.cuh"

namespace falchion::gpu {

/// A scale of q or k as it counts: NaN unless it is 0 or above, and finite.
FALCHION_DEVICE float valid_scale(float x) { return x >= 0 && x < FALCHION_INF ? x : __int_as_float(0x7FC00000); }

/// The scale of a row of Q of a tile.
FALCHION_DEVICE float scale_of_row(const AttentionArgs& a, const AttentionTile& t, int row) {
  const View& x = a.q_scale;
  if (x.data == nullptr) return 1;
  return valid_scale(static_cast<const float*>(
      x.data)[t.q.batch * x.stride[0] + (t.q.begin + t.query(row)) * x.stride[1] + t.head(row) * x.stride[2]]);
}
/// The scale of the keys of a tile, of which `key` is the first: a block has whole tiles, or all keys. Packed sequence
/// i has its blocks from cu_seqlens_k[i] / k_scale_rows + i on.
FALCHION_DEVICE float scale_of_keys(const AttentionArgs& a, const AttentionTile& t, int key) {
  const View& x = a.k_scale;
  if (x.data == nullptr) return 1;
  const unsigned rows = static_cast<unsigned>(a.k_scale_rows);
  const unsigned before = a.packed ? static_cast<unsigned>(t.k.begin) / rows + t.b : 0;
  return valid_scale(static_cast<const float*>(
      x.data)[t.k.batch * x.stride[0] + (before + static_cast<unsigned>(key) / rows) * x.stride[1] +
              t.h_kv * x.stride[2]]);
}
/// The scale of V of a head, any factor.
FALCHION_DEVICE float scale_of_v(const AttentionArgs& a, const AttentionTile& t) {
  const View& x = a.v_scale;
  if (x.data == nullptr) return 1;
  return static_cast<const float*>(x.data)[t.k.batch * x.stride[0] + t.h_kv * x.stride[2]];
}
/// The factor of a row of O with the scale of V, which joins 1 / l because O itself times a large scale could be above
/// what f32 can hold. As the scale is a plain factor, a product of 0 is -0, which hides no NaN (normalise_rows); a
/// factor of +0, of a row that saw nothing, stays.
FALCHION_DEVICE float with_scale_of_v(float factor, float scale) {
  if (__float_as_uint(factor) == 0) return factor;
  const float product = factor * scale;
  return product == 0 ? -0.f : product;
}

}  // namespace falchion::gpu
