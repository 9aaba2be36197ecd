// src/sm90/gemm_load.cuh: which tiles a cluster has, and the producer, which loads their blocks of k.
#pragma once

#include "blocks/sm90_tma.cuh"
#include "gpu/gemm_tile.hpp"
#include "sm90/gemm_config.hpp"

namespace falchion::sm90 {

using gpu::GemmArgs;
using gpu::GemmTile;

struct GemmMaps {
  CUtensorMap a, b, d;
};

/// The tiles of this CTA's cluster, every so many: as many clusters run as fit on the device.
template <class Config>
class GemmTilesOfCluster {
 public:
  explicit __device__ __forceinline__ GemmTilesOfCluster(const GemmArgs& a)
      : a_(a),
        rank_(static_cast<int>(cute::block_rank_in_cluster())),
        id_(blockIdx.x / Config::kCluster),
        end_(a.tiles_m * a.tiles_n * a.batch * a.splits) {}
  __device__ __forceinline__ bool more() const { return id_ < end_; }
  /// The part of the tile that is this CTA's.
  __device__ __forceinline__ GemmTile next() {
    const bool pairs = a_.activation == GemmActivation::swiglu;
    GemmTile t =
        GemmTile::of<8>(a_, id_, Config::kRows * Config::kCluster, pairs ? Config::kColumns / 2 : Config::kColumns);
    t.row0 += rank_ * Config::kRows;
    id_ += gridDim.x / Config::kCluster;
    return t;
  }

 private:
  const GemmArgs& a_;
  const int rank_;
  std::int64_t id_;
  const std::int64_t end_;
};

/// Asks for kLines rows of an operand from `row` on, for a block of k.
template <Major kMajor, int kLines, class Load, class Element>
__device__ __forceinline__ void load_block(Load load, Element* to, int row, int k1, int k2, int batch) {
  if constexpr (kMajor == Major::k) {
    load(to, k1, k2, row, batch);
  } else {
    CUTE_UNROLL
    for (int i = 0; i < kLines / 64; ++i) load(to + i * 64 * 64, row + 64 * i, k1, k2, batch);
  }
}

/// The producer, one thread. It loads its own rows of A, and of the rows of B, which all CTAs of the cluster need, its
/// share for all of them. With swiglu the first half of a tile of B are gates and the second half the rows of "up" that
/// belong to them.
template <class Config>
__device__ __forceinline__ void produce(const GemmArgs& a, const GemmMaps& maps, typename Config::Shared& shared) {
  constexpr int kShare = Config::kColumns / Config::kCluster;  // rows of B
  constexpr auto kEveryCta = static_cast<std::uint16_t>((1 << Config::kCluster) - 1);
  const int rank = static_cast<int>(cute::block_rank_in_cluster());
  const bool pairs = a.activation == GemmActivation::swiglu;
  RingPosition<Config::kStages> at;
  for (GemmTilesOfCluster<Config> tiles(a); tiles.more();) {
    const GemmTile t = tiles.next();
    const int row = static_cast<int>(t.row0), batch_a = a.a.stride[0] != 0 ? static_cast<int>(t.batch) : 0;
    const int batch_b = a.b.stride[0] != 0 ? static_cast<int>(t.batch) : 0;
    const int first = rank * kShare, half = Config::kColumns / 2;
    const int column =
        static_cast<int>(t.column0) + (pairs && first >= half ? static_cast<int>(a.n) + first - half : first);
    const auto k_of_k1 = static_cast<std::uint32_t>(a.k1);
    for (auto k = static_cast<std::uint32_t>(t.k0); k < static_cast<std::uint32_t>(t.k1); k += Config::kDepth) {
      const int k2 = a.k1 < a.k ? static_cast<int>(k / k_of_k1) : 0;
      const int k1 = static_cast<int>(k) - k2 * static_cast<int>(a.k1);
      shared.empty[at.stage].wait(at.parity ^ 1);
      auto& full = shared.full[at.stage];
      full.arrive_and_expect_tx(sizeof(shared.a[0]) + sizeof(shared.b[0]));
      const auto bar = reinterpret_cast<std::uint64_t*>(&full);
      load_block<Config::kMajorA, Config::kRows>(
          [&](auto* to, int x, int y, int z, int batch) {
            cute::SM90_TMA_LOAD_4D::copy(&maps.a, bar, kReadByOthers, to, x, y, z, batch);
          },
          shared.a[at.stage], row, k1, k2, batch_a);
      load_block<Config::kMajorB, kShare>(
          [&](auto* to, int x, int y, int z, int batch) {
            if constexpr (Config::kCluster == 1)
              cute::SM90_TMA_LOAD_4D::copy(&maps.b, bar, kReadByOthers, to, x, y, z, batch);
            else
              cute::SM90_TMA_LOAD_MULTICAST_4D::copy(&maps.b, bar, kEveryCta, kReadByOthers, to, x, y, z, batch);
          },
          shared.b[at.stage] + first * Config::kDepth, column, k1, k2, batch_b);
      at.advance();
    }
  }
}

/// The map of an operand of the product, for boxes of `lines` rows.
template <class Element>
cudaError_t make_operand_map(CUtensorMap* map, const View& x, Major major, int lines, std::int64_t batch,
                             std::int64_t rows, const GemmArgs& a) {
  constexpr int kBox = 128 / static_cast<int>(sizeof(Element));
  const std::int64_t entries = x.stride[0] != 0 ? batch : 1;
  if (major == Major::k)
    return make_tensor_map<Element>(map, x, TensorBox{entries, rows, a.k / a.k1, a.k1, kBox, 1, lines}, nullptr);
  const View turned{x.data, {x.stride[0], x.stride[2], x.stride[3], 1}};  // (batch, k2, k1, rows)
  return make_tensor_map<Element>(map, turned, TensorBox{entries, a.k / a.k1, a.k1, rows, 64, 64, 1}, nullptr);
}

}  // namespace falchion::sm90
