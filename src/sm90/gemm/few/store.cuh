// src/sm90/gemm/few/store.cuh: the end of a tile of the GEMM kernel for few rows: the CTAs of a cluster exchange their
// sums through shared memory, and each turns some rows of the tile into D. That needs no workspace, and the sums are
// added in the order of k, so a plan gives the same bits each time.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/epilogue.cuh"
#include "gpu/blocks/sm90_cluster.cuh"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "sm90/gemm/few/load.cuh"

namespace falchion::sm90 {

/// Writes the 64 x width sums of a warpgroup to shared memory, transposed: row r there is row r of D.
template <class Config, class Fragment>
FALCHION_DEVICE void put_sums(typename Config::Shared& shared, const Fragment& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float* to = &shared.sums[lane % 4 * 2][16 * warp + lane / 4];
  CUTE_UNROLL
  for (int i = 0; i < decltype(size(sums))::value; ++i) {
    const int atom = i / 4, half = i / 2 % 2, row = 8 * atom + i % 2;
    to[row * Config::kPitch + 8 * half] = sums(i);
  }
}

/// sum = the sums of four columns over all parts of k. All loads are issued before the first one is used.
FALCHION_DEVICE void add_parts(const float* own, int parts, float (&sum)[4]) {
  constexpr int kMost = 8;
  float4 x[kMost];
  CUTE_UNROLL
  for (int part = 0; part < kMost; ++part)
    if (part < parts) x[part] = load_from_cluster(address_in(own, part));
  CUTE_UNROLL
  for (int part = 0; part < kMost; ++part) {
    if (part >= parts) continue;
    sum[0] += x[part].x;
    sum[1] += x[part].y;
    sum[2] += x[part].z;
    sum[3] += x[part].w;
  }
}

/// Stores this CTA's rows of a tile, one row a warp at a time: each lane has four neighbouring columns.
template <class Config>
FALCHION_DEVICE void store_rows(const GemmArgs& a, const GemmFewTile& t, const PlaceInCluster& place,
                                const typename Config::Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t j = t.column0 + 4 * lane, below = a.m - t.row0;
  const int rows = below < Config::kWidth ? static_cast<int>(below) : Config::kWidth;
  if (4 * lane >= a.columns || j >= a.n) return;
  const Epilogue<typename Config::Element> epilogue(a);
  const auto own = GemmFewRows::of(warp, place.rank, place.ctas);
#pragma unroll 1
  for (int row = own.first; row < rows; row += own.step) {
    float z[4] = {}, up[4] = {};
    add_parts(&shared.sums[row][4 * lane], place.ctas, z);
    epilogue.run(t.batch, t.row0 + row, j, z, up);
  }
}

/// turn: the number of tiles that this CTA has stored before.
template <class Config, class Fragment>
FALCHION_DEVICE void store_tile(const GemmArgs& a, const GemmFewTile& t, const PlaceInCluster& place,
                                typename Config::Shared& shared, int turn, const Fragment& sums) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  // Wait until no CTA still reads the sums of the previous tile.
  if (turn > 0) wait_for_cluster(&shared.read, static_cast<unsigned>(turn - 1) % 2);
  put_sums<Config>(shared, sums);
  sync_threads<128 * Config::kConsumers>(1);
  if (thread < place.ctas) arrive_in(&shared.written, thread);
  wait_for_cluster(&shared.written, static_cast<unsigned>(turn) % 2);
  store_rows<Config>(a, t, place, shared);
  __syncwarp();
  if (lane < place.ctas) arrive_in(&shared.read, lane);
}

}  // namespace falchion::sm90
