// src/tiles/attention_forward/turned_v.hpp: V as kind fp8 of Hopper's forward pass has it in the workspace: turned, so
// that the keys of a column lie side by side. It is plain C++: the plan reads the bytes even if the variants are not
// built. docs/design/sm90_fp8.md describes it.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion::sm90 {

/// V^T is (b, h_k, d_v, columns), of packed sequences (1, h_k, d_v, columns). A sequence begins with a block.
inline constexpr int kTurnedBlock = 128;

/// The block with which a packed sequence begins, from the row of k at which it does. Since blocks are whole, sequence
/// i has one more than it may need.
FALCHION_HD constexpr std::int64_t turned_block_of(std::int64_t begin, std::int64_t sequence) {
  return begin / kTurnedBlock + sequence;
}
/// keys: of a sequence, with no `sequences`; of all of them together, where they are packed.
FALCHION_HD constexpr std::int64_t turned_columns(std::int64_t keys, std::int64_t sequences) {
  return ((keys + kTurnedBlock - 1) / kTurnedBlock + sequences) * kTurnedBlock;
}
/// The key at a place of each 16. A lane has columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of S, and it must have four
/// neighbours in a row of P.
FALCHION_HD constexpr int key_of_turned(int place) {
  const int lane = place % 16 / 4, which = place % 4;
  return place / 16 * 16 + 2 * lane + which % 2 + which / 2 * 8;
}

}  // namespace falchion::sm90
