// src/sm80/attention_backward/once/order.hpp: which tile of keys each block of the kernel of kind once owns. It is
// plain C++, so tests/sm80_backward_order_test.cpp runs it on the host.
#pragma once

#include "base/host_device.hpp"

namespace falchion::sm80 {

/// Tile `x` % tiles of head `x` / tiles belongs to the block whose number is given. Where sums have a fixed order the
/// CTAs of a head add one after another. CTAs that start at the same time should then belong to several heads, or each
/// waits for the one before it when it begins: blocks go through the tiles of `together` heads at once. Blocks of a
/// head own its tiles in their order.
FALCHION_HD constexpr int tile_of_block(int block, int tiles, int heads, int together) {
  const int group = block / (tiles * together), within = block - group * tiles * together;
  const int left = heads - group * together, size = together < left ? together : left;
  const int tile = within / size, head = group * together + within - tile * size;
  return head * tiles + tile;
}

}  // namespace falchion::sm80
