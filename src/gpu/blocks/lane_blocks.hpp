// src/gpu/blocks/lane_blocks.hpp: the addresses of mma.sync's operands in swizzled tiles of shared memory, for each
// lane.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion::gpu {

/// The 16 x 16 elements of a tile that one ldmatrix.x4 reads, as addresses of one lane. A tile consists of boxes of
/// kLines lines x 64 elements of 16 bits, and the 16-byte chunk c of line r lies at c ^ (r % 8), so that the 8 lines of
/// one phase lie in 8 different groups of banks.
struct LaneBlocks {
  std::uint32_t lane;      // offset of this lane's 16 bytes in the first block
  std::uint32_t tile = 0;  // offset of the tile, a multiple of 128, the same in all lanes

  /// Order of the four 8 x 8 matrices of a block: both of the first 8 columns, then both of the last 8.
  static FALCHION_HD constexpr std::uint32_t down_first(int lane) { return offset(lane % 16, lane / 16, lane); }
  /// Order of the matrices: both of the first 8 lines, then both of the last 8.
  static FALCHION_HD constexpr std::uint32_t across_first(int lane) {
    return offset(lane / 16 * 8 + lane % 8, lane / 8 % 2, lane);
  }
  /// Moves the first block to another line and column, which are multiples of 16.
  template <int kLines>
  FALCHION_HD constexpr LaneBlocks from(int line, int column) const {
    return {lane ^ static_cast<std::uint32_t>(column % 64 * 2), tile + lines_of<kLines>(line, column)};
  }
  /// The address in the block that begins `line` lines and `column` columns after the first one, inside of its box or
  /// of boxes after it.
  template <int kLines>
  FALCHION_HD constexpr std::uint32_t at(int line, int column) const {
    return (lane ^ static_cast<std::uint32_t>(column % 64 * 2)) + (tile + lines_of<kLines>(line, column));
  }

  /// across_first(lane) computed from down_first(lane), which saves a register: they differ where bits 3 and 4 of the
  /// lane do, by 8 lines and one chunk.
  static FALCHION_HD constexpr std::uint32_t across_of(std::uint32_t down) {
    return down ^ ((down ^ down >> 3 ^ down >> 6) & 16) * 65;
  }

 private:
  template <int kLines>
  static FALCHION_HD constexpr std::uint32_t lines_of(int line, int column) {
    return static_cast<std::uint32_t>((column / 64 * kLines + line) * 128);
  }
  static FALCHION_HD constexpr std::uint32_t offset(int line, int chunk, int lane) {
    return static_cast<std::uint32_t>(line * 128 + (chunk ^ lane % 8) * 16);
  }
};

/// The offset in elements of the chunk of 8 elements from (line, column) on in such a tile.
template <int kLines>
FALCHION_HD constexpr int swizzled(int line, int column) {
  return column / 64 * (kLines * 64) + line * 64 + ((column / 8 % 8) ^ (line % 8)) * 8;
}

/// The offset of a lane's first word in a block, for store_block: of line lane / 4, two columns for each lane.
FALCHION_HD constexpr std::uint32_t words_of_lane(int lane) {
  return static_cast<std::uint32_t>(lane / 4 * 128 + (lane / 4) * 16 + lane % 4 * 4);
}

}  // namespace falchion::gpu
