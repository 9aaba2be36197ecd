// src/sm90/gemm/few/store.cuh: the end of a tile of the GEMM kernel for few rows: the CTAs that have it exchange their
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

/// x += y.
FALCHION_DEVICE void add(float4& x, const float4& y) {
  x.x += y.x;
  x.y += y.y;
  x.z += y.z;
  x.w += y.w;
}

/// Adds the parts of this CTA's rows of a tile up, in place: no other CTA reads these rows here. The loads of kParts
/// parts of kTogether times four columns are on their way together.
template <class Config>
FALCHION_DEVICE void add_parts(const GemmArgs& a, const GemmFewPlace& place, typename Config::Shared& shared,
                               int count) {
  constexpr int kThreads = 128 * Config::kConsumers, kTogether = 4, kParts = 4;
#pragma unroll 1
  for (int begin = static_cast<int>(threadIdx.x); begin < count; begin += kThreads * kTogether) {
    float4 *own[kTogether], sum[kTogether]{};
    CUTE_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      const int at = begin + i * kThreads;
      const auto four = GemmFewFour::of(at < count ? at : begin, place.part, place.parts, a.columns);
      own[i] = reinterpret_cast<float4*>(&shared.sums[four.row][four.column]);
    }
#pragma unroll 1
    for (int part = 0; part < place.parts; part += kParts) {
      float4 x[kParts][kTogether];
      CUTE_UNROLL
      for (int p = 0; p < kParts; ++p) {
        const int rank = place.rank_of_part(part + p < place.parts ? part + p : part);
        CUTE_UNROLL
        for (int i = 0; i < kTogether; ++i) x[p][i] = load_from_cluster(address_in(own[i], rank));
      }
      CUTE_UNROLL
      for (int p = 0; p < kParts; ++p) {
        if (part + p >= place.parts) continue;
        CUTE_UNROLL
        for (int i = 0; i < kTogether; ++i) add(sum[i], x[p][i]);
      }
    }
    CUTE_UNROLL
    for (int i = 0; i < kTogether; ++i)
      if (begin + i * kThreads < count) *own[i] = sum[i];
  }
}

/// Stores this CTA's rows of a tile.
template <class Config>
FALCHION_DEVICE void store_rows(const GemmArgs& a, const GemmFewTile& t, const GemmFewPlace& place,
                                typename Config::Shared& shared) {
  const std::int64_t below = a.m - t.row0;
  const int rows = below < Config::kWidth ? static_cast<int>(below) : Config::kWidth;
  const int count = GemmFewFour::count(rows, place.part, place.parts, a.columns);
  if (place.parts > 1) add_parts<Config>(a, place, shared, count);
  const Epilogue<typename Config::Element> epilogue(a);
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < count; at += 128 * Config::kConsumers) {
    const auto four = GemmFewFour::of(at, place.part, place.parts, a.columns);
    const std::int64_t j = t.column0 + four.column;
    if (j >= a.n) continue;
    const float* const from = &shared.sums[four.row][four.column];
    float z[4] = {from[0], from[1], from[2], from[3]}, up[4] = {};
    epilogue.run(t.batch, t.row0 + four.row, j, z, up);
  }
}

/// turn: the number of tiles that this CTA has stored before.
template <class Config, class Fragment>
FALCHION_DEVICE void store_tile(const GemmArgs& a, const GemmFewTile& t, const GemmFewPlace& place,
                                typename Config::Shared& shared, int turn, const Fragment& sums) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  // Wait until no CTA still reads the sums of the previous tile.
  if (turn > 0) wait_for_cluster(&shared.read, static_cast<unsigned>(turn - 1) % 2);
  put_sums<Config>(shared, sums);
  sync_threads<128 * Config::kConsumers>(1);
  if (thread < place.parts) arrive_in(&shared.written, place.rank_of_part(thread));
  wait_for_cluster(&shared.written, static_cast<unsigned>(turn) % 2);
  store_rows<Config>(a, t, place, shared);
  __syncwarp();
  if (lane < place.parts) arrive_in(&shared.read, place.rank_of_part(lane));
}

}  // namespace falchion::sm90
