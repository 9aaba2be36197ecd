// src/ladder/gemm/one_tile.cuh: one tile of C, or some of its products along k, by one block of threads, on TMA and
// wgmma. Step 10 and the branches that split k share it.
#pragma once

#include "base/host_device.hpp"
#include "ladder/gemm/hopper.cuh"

namespace falchion::ladder::gemm::on_gpu {

/// C's tile at (i0, j0): adds up blocks [first, end) of k, and returns when the sums are done. One thread issues the
/// loads of all tiles of A and B, and all threads synchronise at a barrier in each round.
template <class Tile>
FALCHION_DEVICE void multiply_tile(const TensorMaps& maps, typename Tile::Ring& ring, int i0, int j0, int first,
                                   int end, TileProduct<Tile>& product) {
  const bool leader = threadIdx.x == 0;
  if (leader) {
    for (int s = 0; s < Tile::kStages; ++s) ring.full[s].init(1);
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  const auto load = [&](int block) {
    const int stage = (block - first) % Tile::kStages;
    ring.full[stage].arrive_and_expect_tx(Tile::kBytes);
    load_a<Tile>(maps, ring, stage, i0, block * Tile::kDepth);
    for (int box = 0; box < Tile::kBoxesB; ++box) load_b<Tile>(maps, ring, stage, block * Tile::kDepth, j0, box);
  };
  if (leader)
    for (int block = first; block < min(first + Tile::kStages - 1, end); ++block) load(block);
  product.clear();
  typename Tile::Position at;
  CUTE_NO_UNROLL
  for (int block = first; block < end; ++block) {
    ring.full[at.stage].wait(at.parity);
    product.start(ring, at.stage);
    at.advance();
    product.template wait<1>();  // the product before this one is complete,
    __syncthreads();             // for all threads: its stage may be filled again
    if (const int ahead = block + Tile::kStages - 1; leader && ahead < end) load(ahead);
  }
  product.template wait<0>();
}

}  // namespace falchion::ladder::gemm::on_gpu
