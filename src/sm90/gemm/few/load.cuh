// src/sm90/gemm/few/load.cuh: the tiles of a cluster, and the producer, one thread of a CTA, which loads the blocks of
// its part of k.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "sm90/gemm/few/config.hpp"
#include "sm90/gemm/maps.cuh"

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
  std::uint32_t id_;
  const std::uint32_t step_, end_;
};

/// The ring of stages and a position in it. A stage is as large as the columns of a tile need, so that narrow tiles
/// have more of them.
template <class Config>
class FewRing {
 public:
  int stage = 0;
  unsigned parity = 0;
  explicit FALCHION_DEVICE FewRing(const GemmArgs& a) : of_b_(a.columns * Config::kDepth * 2) {
    constexpr GemmFewTiles kTile = gemm_few_tiles();
    bytes_ = kTile.stage_bytes(a.columns, Config::kWidth);
    stages_ = kTile.stages_of(a.columns, Config::kWidth);
  }
  FALCHION_DEVICE void advance() {
    if (++stage < stages_) return;
    stage = 0;
    parity ^= 1;
  }
  /// Of a stage.
  FALCHION_DEVICE int bytes() const { return bytes_; }
  FALCHION_DEVICE int stages() const { return stages_; }
  FALCHION_DEVICE int begin() const { return stage * bytes_; }
  /// Where A begins in a stage.
  FALCHION_DEVICE int begin_of_a() const { return of_b_; }

 private:
  int of_b_, bytes_ = 0, stages_ = 0;
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

/// Brings the first blocks of B into the L2, as many as there are stages. That may be done before earlier kernels are
/// done: if they still write them, the L2 has what they write.
template <class Config>
FALCHION_DEVICE void fetch_first_blocks(const GemmArgs& a, const GemmFewMaps& maps, typename Config::Shared& shared,
                                        const GemmFewPlace& place) {
  TilesOfCta tiles(a, place);
  if (!tiles.more()) return;
  const GemmFewTile t = tiles.next();
  const GemmFewPart part = GemmFewPart::of(a, place.part, place.parts);
  const std::int64_t stages = FewRing<Config>(a).stages(), end = part.k0 + stages * Config::kDepth;
  const auto fetch = [&](auto*, int x, int y, int z, int batch) {
    cute::SM90_TMA_LOAD_4D::PREFETCH::copy(&maps.b, x, y, z, batch);
  };
  for (std::int64_t k = part.k0; k < part.k1 && k < end; k += Config::kDepth) {
    const auto [k2, k1] = PlaceOfK(a, static_cast<std::uint32_t>(k));
    load_rows<Config::kMajorB>(fetch, shared.ring, a.columns, static_cast<int>(t.column0), k1, k2,
                               a.b.stride[0] != 0 ? static_cast<int>(t.batch) : 0);
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
  const auto k_end = static_cast<std::uint32_t>(part.k1);
  const bool once = a.tiles_m == 1 && (a.batch == 1 || a.b.stride[0] != 0);
  const std::uint64_t hint_b = once ? kReadOnce : kReadByOthers;
  using Element = typename Config::Element;
  FewRing<Config> at(a);
  for (TilesOfCta tiles(a, place); tiles.more();) {
    const GemmFewTile t = tiles.next();
    const int row = static_cast<int>(t.row0), column = static_cast<int>(t.column0);
    const int batch_a = a.a.stride[0] != 0 ? static_cast<int>(t.batch) : 0;
    const int batch_b = a.b.stride[0] != 0 ? static_cast<int>(t.batch) : 0;
    for (auto k = static_cast<std::uint32_t>(part.k0); k < k_end; k += Config::kDepth) {
      const auto [k2, k1] = PlaceOfK(a, k);
      shared.empty[at.stage].wait(at.parity ^ 1);
      auto& full = shared.full[at.stage];
      full.arrive_and_expect_tx(at.bytes());
      const auto bar = reinterpret_cast<std::uint64_t*>(&full);
      const auto load_a = [&](auto* to, int x, int y, int z, int batch) {
        cute::SM90_TMA_LOAD_MULTICAST_4D::copy(&maps.a, bar, sharers, kReadByOthers, to, x, y, z, batch);
      };
      const auto load_b = [&](auto* to, int x, int y, int z, int batch) {
        cute::SM90_TMA_LOAD_4D::copy(&maps.b, bar, hint_b, to, x, y, z, batch);
      };
      const auto b = reinterpret_cast<Element*>(shared.ring + at.begin());
      const auto of_a = reinterpret_cast<Element*>(shared.ring + at.begin() + at.begin_of_a());
      if (whose_turn == place.neighbour) load_rows<Config::kMajorA>(load_a, of_a, Config::kWidth, row, k1, k2, batch_a);
      whose_turn = whose_turn + 1 == place.neighbours ? 0 : whose_turn + 1;
      load_rows<Config::kMajorB>(load_b, b, a.columns, column, k1, k2, batch_b);
      at.advance();
    }
  }
}

}  // namespace falchion::sm90
