// src/gpu/linear_attention/block.cuh: works out the sweep, head and segment of a block of the grid.
#pragma once

#include "base/host_device.hpp"
#include "gpu/linear_attention/sweep.cuh"

namespace falchion::gpu {

/// The work of a block of the grid. Blocks that share rows of q and k are neighbours, so that these rows are in the L2.
struct LinearBlock {
  int column_tile, which, h, b, segment;
  FALCHION_DEVICE LinearBlock(const LinearAttentionArgs& a, const LinearSweeps& sweeps) {
    int x = static_cast<int>(blockIdx.x);
    column_tile = x % sweeps.column_tiles;
    x /= sweeps.column_tiles;
    which = x % sweeps.count;
    x /= sweeps.count;
    h = x % static_cast<int>(a.h_v);
    x /= static_cast<int>(a.h_v);
    b = x % static_cast<int>(a.b);
    segment = x / static_cast<int>(a.b);
  }
};

/// Points to the state of sequence b and head h in x, or is null where x is absent.
FALCHION_DEVICE float* state_of(const View& x, int b, int h) {
  return x.data == nullptr ? nullptr : static_cast<float*>(x.data) + b * x.stride[0] + h * x.stride[1];
}

}  // namespace falchion::gpu
