// src/gpu/attention_backward/order.hpp: the tile of keys of each CTA of a kernel whose CTAs add to common sums of
// grad_q. It is plain C++, so tests/backward_order_test.cpp and sm80_turns_test.cpp run it on the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/divide.hpp"
#include "base/host_device.hpp"

namespace falchion::gpu {

/// Returns the tile of a block: tile x % tiles of head x / tiles is number x. Where sums have a fixed order the CTAs of
/// a head add one after another. CTAs that start at the same time should then belong to several heads, or each waits
/// for its predecessor from the beginning: blocks go through the tiles of `together` heads at once. Blocks of a head
/// own its tiles in their order.
FALCHION_HD constexpr int tile_of_block(int block, int tiles, int heads, int together) {
  const int group = block / (tiles * together), within = block - group * tiles * together;
  const int left = heads - group * together, size = together < left ? together : left;
  const int tile = within / size, head = group * together + within - tile * size;
  return head * tiles + tile;
}

/// The heads whose tiles are gone through at once, if of each head about `deep` tiles are to start at a time: all
/// sections of heads are equally large, give or take one.
constexpr int heads_together(std::int64_t heads, std::int64_t ctas_at_once, std::int64_t deep) {
  const std::int64_t most = std::max(ctas_at_once / deep, std::int64_t{1});
  return static_cast<int>(heads == 0 ? 1 : ceil_div(heads, ceil_div(heads, most)));
}

}  // namespace falchion::gpu
