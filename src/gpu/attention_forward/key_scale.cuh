// src/gpu/attention_forward/key_scale.cuh: the scales of an 8-bit cache.
#pragma once

#include "args/gpu_attention_args.hpp"
#include "base/host_device.hpp"

namespace falchion::gpu {

/// The scale of K or V at a place of the cache.
FALCHION_DEVICE float scale_of_key(const View& scales, const KeyPlace& place, int h) {
  if (scales.data == nullptr) return 1;
  return static_cast<const float*>(
      scales.data)[place.batch * scales.stride[0] + place.row * scales.stride[1] + h * scales.stride[2]];
}

}  // namespace falchion::gpu
