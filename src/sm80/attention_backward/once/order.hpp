// src/sm80/attention_backward/once/order.hpp: the number of blocks of the kernel of kind once that add to grad_q before
// another. It is plain C++, so tests/sm80_turns_test.cpp runs it on the host.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion::sm80 {

/// The keys of a sequence of `length` keys that have an owning block. The grid has `tiles` tiles from the one that
/// begins at key own0 on. Invalid lengths on the device may give sequences that overlap, and so more tiles than the
/// grid has. Then the last tiles have no block, and a block that waited for those would wait for ever.
FALCHION_HD constexpr int keys_with_owner(int own0, int length, std::int64_t tiles, int tile_keys) {
  const std::int64_t past = own0 + tiles * tile_keys;
  return past < length ? static_cast<int>(past) : length;
}

/// The number of blocks that add to a tile of rows before the owner of the tile of keys from own0 on. They own later
/// keys. The rows see no key from `past` on, and `keys` of the sequence have an owner.
FALCHION_HD constexpr int adders_before(int own0, std::int64_t past, int keys, int tile_keys) {
  return static_cast<int>((past < keys ? past : keys) - 1) / tile_keys - own0 / tile_keys;
}

}  // namespace falchion::sm80
