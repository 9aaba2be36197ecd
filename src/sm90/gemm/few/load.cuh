// src/sm90/gemm/few/load.cuh: the tiles of a cluster, and the producer, one thread of a CTA, which loads the blocks of
// its part of k.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "sm90/gemm/few/config.hpp"

namespace falchion::sm90 {

using gpu::GemmArgs;

struct GemmFewMaps {
  CUtensorMap a, b;
};

/// This CTA's place in its cluster, which is also the number of its part of k.
struct PlaceInCluster {
  int rank, ctas;
};
FALCHION_DEVICE PlaceInCluster place_in_cluster() {
  return {static_cast<int>(cute::block_rank_in_cluster()), static_cast<int>(cute::cluster_shape().x)};
}

/// The tiles of a cluster: with n clusters every n-th tile. As many clusters run as fit on the device.
class TilesOfCluster {
 public:
  FALCHION_DEVICE TilesOfCluster(const GemmArgs& a, const PlaceInCluster& place)
      : a_(a), id_(blockIdx.x / place.ctas), step_(gridDim.x / place.ctas), end_(GemmFewTile::count(a)) {}
  FALCHION_DEVICE bool more() const { return id_ < end_; }
  FALCHION_DEVICE GemmFewTile next() {
    const GemmFewTile t = GemmFewTile::of(a_, id_);
    id_ += step_;
    return t;
  }

 private:
  const GemmArgs& a_;
  std::int64_t id_;
  const int step_;
  const std::int64_t end_;
};

/// Issues the loads of `lines` rows of an operand from `row` on, 64 numbers of k each.
template <Major kMajor, class Element>
FALCHION_DEVICE void load_rows(const CUtensorMap& map, std::uint64_t* full, std::uint64_t hint, Element* to, int lines,
                               int row, int k1, int k2, int batch) {
  if constexpr (kMajor == Major::k) {
    cute::SM90_TMA_LOAD_4D::copy(&map, full, hint, to, k1, k2, row, batch);
  } else {
    for (int i = 0; i < lines; i += 64)
      cute::SM90_TMA_LOAD_4D::copy(&map, full, hint, to + i * 64, row + i, k1, k2, batch);
  }
}

template <class Config>
FALCHION_DEVICE void produce(const GemmArgs& a, const GemmFewMaps& maps, typename Config::Shared& shared,
                             const PlaceInCluster& place) {
  const GemmFewPart part = GemmFewPart::of(a, place.rank, place.ctas);
  const auto k_end = static_cast<std::uint32_t>(part.k1), k_of_k1 = static_cast<std::uint32_t>(a.k1);
  const bool once = a.tiles_m == 1 && (a.batch == 1 || a.b.stride[0] != 0);
  const std::uint64_t hint_b = once ? kReadOnce : kReadByOthers;
  const int bytes = (a.columns + Config::kWidth) * Config::kLineBytes;
  RingPosition<Config::kStages> at;
  for (TilesOfCluster tiles(a, place); tiles.more();) {
    const GemmFewTile t = tiles.next();
    const int row = static_cast<int>(t.row0), column = static_cast<int>(t.column0);
    const int batch_a = a.a.stride[0] != 0 ? static_cast<int>(t.batch) : 0;
    const int batch_b = a.b.stride[0] != 0 ? static_cast<int>(t.batch) : 0;
    for (auto k = static_cast<std::uint32_t>(part.k0); k < k_end; k += Config::kDepth) {
      const int k2 = a.k1 < a.k ? static_cast<int>(k / k_of_k1) : 0;
      const int k1 = static_cast<int>(k) - k2 * static_cast<int>(a.k1);
      shared.empty[at.stage].wait(at.parity ^ 1);
      auto& full = shared.full[at.stage];
      full.arrive_and_expect_tx(bytes);
      const auto bar = reinterpret_cast<std::uint64_t*>(&full);
      load_rows<Config::kMajorB>(maps.b, bar, hint_b, shared.b[at.stage], a.columns, column, k1, k2, batch_b);
      load_rows<Config::kMajorA>(maps.a, bar, kReadByOthers, shared.a[at.stage], Config::kWidth, row, k1, k2, batch_a);
      at.advance();
    }
  }
}

}  // namespace falchion::sm90
