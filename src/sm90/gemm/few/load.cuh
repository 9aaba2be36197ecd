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

/// The tiles of a CTA: with n clusters that of every n-th group. As many clusters run as fit on the device.
class TilesOfCta {
 public:
  FALCHION_DEVICE TilesOfCta(const GemmArgs& a, const GemmFewPlace& place)
      : a_(a),
        neighbour_(place.neighbour),
        id_(blockIdx.x / place.ctas()),
        step_(gridDim.x / place.ctas()),
        end_(GemmFewTile::count(a)) {}
  FALCHION_DEVICE bool more() const { return id_ < end_; }
  FALCHION_DEVICE GemmFewTile next() {
    const GemmFewTile t = GemmFewTile::of(a_, id_, neighbour_);
    id_ += step_;
    return t;
  }

 private:
  const GemmArgs& a_;
  const int neighbour_;
  std::int64_t id_;
  const int step_;
  const std::int64_t end_;
};

/// Issues the loads of `lines` rows of an operand from `row` on, 64 numbers of k each.
template <Major kMajor, class Load, class Element>
FALCHION_DEVICE void load_rows(const Load& load, Element* to, int lines, int row, int k1, int k2, int batch) {
  if constexpr (kMajor == Major::k) {
    load(to, k1, k2, row, batch);
  } else {
    for (int i = 0; i < lines; i += 64) load(to + i * 64, row + i, k1, k2, batch);
  }
}

/// The producer, one thread. It loads its own rows of B. The CTAs with the same part of k of tiles side by side load
/// blocks of A in turns, each for all of them: of 64 rows A is as many bytes as 64 columns of B, and reading it again
/// for each tile takes the L2 longer than reading B takes the memory.
template <class Config>
FALCHION_DEVICE void produce(const GemmArgs& a, const GemmFewMaps& maps, typename Config::Shared& shared,
                             const GemmFewPlace& place) {
  const GemmFewPart part = GemmFewPart::of(a, place.part, place.parts);
  const auto sharers = static_cast<std::uint16_t>(place.ranks_of_neighbours());
  int whose_turn = 0;  // to load A
  const auto k_end = static_cast<std::uint32_t>(part.k1), k_of_k1 = static_cast<std::uint32_t>(a.k1);
  const bool once = a.tiles_m == 1 && (a.batch == 1 || a.b.stride[0] != 0);
  const std::uint64_t hint_b = once ? kReadOnce : kReadByOthers;
  const int bytes = (a.columns + Config::kWidth) * Config::kLineBytes;
  RingPosition<Config::kStages> at;
  for (TilesOfCta tiles(a, place); tiles.more();) {
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
      const auto load_a = [&](auto* to, int x, int y, int z, int batch) {
        cute::SM90_TMA_LOAD_MULTICAST_4D::copy(&maps.a, bar, sharers, kReadByOthers, to, x, y, z, batch);
      };
      const auto load_b = [&](auto* to, int x, int y, int z, int batch) {
        cute::SM90_TMA_LOAD_4D::copy(&maps.b, bar, hint_b, to, x, y, z, batch);
      };
      if (whose_turn == place.neighbour)
        load_rows<Config::kMajorA>(load_a, shared.a[at.stage], Config::kWidth, row, k1, k2, batch_a);
      whose_turn = whose_turn + 1 == place.neighbours ? 0 : whose_turn + 1;
      load_rows<Config::kMajorB>(load_b, shared.b[at.stage], a.columns, column, k1, k2, batch_b);
      at.advance();
    }
  }
}

}  // namespace falchion::sm90
