// src/gpu/gemm/store.cuh: the end of a tile of a GEMM: its sums in shared memory become D, or a part of the sums where
// k is split.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/epilogue.cuh"
#include "gpu/gemm/tile.hpp"

namespace falchion::gpu {

/// The address of the sums of a part, from a row of the tile on. With swiglu the second half of a row has the sums of
/// "up".
FALCHION_DEVICE float* partials_of(const GemmArgs& a, const GemmTile& t, std::int64_t row) {
  return a.partials + (t.part * a.part_rows + row) * a.part_columns;
}

/// Stores a tile of kRows x kColumns sums, in rows of kPitch floats. With swiglu its columns are kGroup gates, then the
/// kGroup matching columns of "up", and so on.
template <class Element, int kRows, int kColumns, int kPitch, int kGroup, int kThreads>
FALCHION_DEVICE void store_tile(const GemmArgs& a, const GemmTile& t, const float* sums) {
  const Epilogue<Element> epilogue(a);
  const bool pairs = a.activation == GemmActivation::swiglu;
  const int fours = pairs ? kColumns / 8 : kColumns / 4;
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < kRows * fours; at += kThreads) {
    const int row = at / fours, four = at % fours * 4;
    const std::int64_t i = t.row0 + row, j = t.column0 + four;
    if (i >= a.m) return;
    if (j >= a.n) continue;
    const float* from = sums + row * kPitch + (pairs ? four / kGroup * (2 * kGroup) + four % kGroup : four);
    const float4 z = *reinterpret_cast<const float4*>(from);
    const float4 up = pairs ? *reinterpret_cast<const float4*>(from + kGroup) : float4{};
    if (t.part >= 0) {
      float* const to = partials_of(a, t, row) + four;
      *reinterpret_cast<float4*>(to) = z;
      if (pairs) *reinterpret_cast<float4*>(to + kColumns / 2) = up;
    } else {
      float of_z[4] = {z.x, z.y, z.z, z.w}, of_up[4] = {up.x, up.y, up.z, up.w};
      epilogue.run(t.batch, i, j, of_z, of_up);
    }
  }
}

}  // namespace falchion::gpu
