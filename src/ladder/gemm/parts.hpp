// src/ladder/gemm/parts.hpp: who has which part of k in the branches that share it.
#pragma once

#include "base/host_device.hpp"

namespace falchion::ladder::gemm {

/// Blocks [first, end) of the 64 columns of A and rows of B that are multiplied at a time.
struct Part {
  int first, end;
};

/// The fewest blocks of a part. To add up a part's sums is estimated to take as long as three or four blocks, so
/// shorter parts would cost more than they save.
inline constexpr int kLeastBlocks = 4;

/// The number of parts of k, if `wanted` are requested: fewer if they would be too short, and at least one.
FALCHION_HD int parts_of(int blocks, int wanted) {
  const int most = blocks / kLeastBlocks < wanted ? blocks / kLeastBlocks : wanted;
  return most > 1 ? most : 1;
}

/// The parts follow each other, and none is longer than another by more than one block. Those from number `parts` on
/// are empty.
FALCHION_HD Part part_of(int blocks, int part, int parts) {
  if (part >= parts) return {blocks, blocks};
  const auto begin_of = [&](int number) { return static_cast<int>(static_cast<long long>(blocks) * number / parts); };
  return {begin_of(part), begin_of(part + 1)};
}

/// Sliced-K: which 16 columns of A and rows of B warp `warp` of `warps` takes as its number `number`. The warps take
/// turns.
FALCHION_HD int slice_of(int number, int warp, int warps) { return number * warps + warp; }

}  // namespace falchion::ladder::gemm
