// src/cpu/attention_forward/key_scales.hpp: the scales of an 8-bit cache in decode. K's multiply S, V's multiply P.
#pragma once

#include "args/cpu_attention_args.hpp"
#include "cpu/blocks/rows.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Multiplies the numbers of `count` keys from key0 on, of t.count rows that lie kKeys apart. A scale that all keys of
/// the head share is looked up once.
template <int kKeys>
void multiply_keys(const AttentionArgs& a, const View& scales, const TileRows& t, std::int64_t key0, int count,
                   float* rows) {
  if (scales.data == nullptr) return;
  const bool paged = a.pages.size > 0, shared = scales.stride[1] == 0 && (!paged || scales.stride[0] == 0);
  float factor[kKeys];
  float of_head = 1;
  if (shared && !paged) of_head = t.key_scale(scales, key0);
  if (shared && a.pages.count > 0) of_head = static_cast<const float*>(scales.data)[t.hk * scales.stride[2]];
  for (int key = 0; key < count; ++key) factor[key] = shared ? of_head : t.key_scale(scales, key0 + key);
  for (int r = 0; r < t.count; ++r) {
    float* of_row = rows + r * kKeys;
    for (int key = 0; key < count; ++key) of_row[key] *= factor[key];
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL
