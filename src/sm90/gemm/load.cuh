// src/sm90/gemm/load.cuh: the tiles of a cluster, and the producer, which loads their blocks of k.
#pragma once

#include "base/host_device.hpp"
#include "gpu/gemm/tile.hpp"
#include "sm90/gemm/config.hpp"
#include "sm90/gemm/maps.cuh"

namespace falchion::sm90 {

using gpu::GemmArgs;
using gpu::GemmTile;

struct GemmMaps {
  CUtensorMap a, b, d, c, residual;
};

/// The position of a column of D on the two axes of which n may consist.
struct ColumnOfD {
  int n2, n1;
  FALCHION_DEVICE ColumnOfD(const GemmArgs& a, std::int64_t column)
      : n2(a.n1 < a.n ? static_cast<int>(static_cast<std::uint32_t>(column) / static_cast<std::uint32_t>(a.n1)) : 0),
        n1(static_cast<int>(column) - n2 * static_cast<int>(a.n1)) {}
};

/// The tiles of this CTA's cluster: with n clusters every n-th tile. As many clusters run as fit on the device.
template <class Config>
class GemmTilesOfCluster {
 public:
  explicit FALCHION_DEVICE GemmTilesOfCluster(const GemmArgs& a)
      : a_(a),
        rank_(static_cast<int>(cute::block_rank_in_cluster())),
        id_(blockIdx.x / Config::kCluster),
        end_(static_cast<std::uint32_t>(gpu::GemmPiece::count(a))) {}
  FALCHION_DEVICE bool more() const { return id_ < end_; }
  /// This CTA's part of the next tile.
  FALCHION_DEVICE GemmTile next() {
    const bool pairs = a_.activation == GemmActivation::swiglu;
    GemmTile t(a_, gpu::GemmPiece::of(a_, id_), Config::kRows * Config::kCluster,
               pairs ? Config::kColumns / 2 : Config::kColumns);
    t.first_row = rank_ * Config::kRows;
    // All of these are below 2^31, as TMA's coordinates are, and a number of 32 bits takes one register.
    t.row0 = static_cast<int>(t.row0 + t.first_row);
    t.column0 = static_cast<int>(t.column0);
    t.part = static_cast<int>(t.part);
    id_ += gridDim.x / Config::kCluster;
    return t;
  }

 private:
  const GemmArgs& a_;
  const int rank_;
  std::uint32_t id_;
  const std::uint32_t end_;
};

/// Issues the loads of kLines rows of an operand from `row` on, for a block of k.
template <Major kMajor, int kLines, class Load, class Element>
FALCHION_DEVICE void load_block(Load load, Element* to, int row, int k1, int k2, int batch) {
  if constexpr (kMajor == Major::k) {
    load(to, k1, k2, row, batch);
  } else {
    CUTE_UNROLL
    for (int i = 0; i < kLines / 64; ++i) load(to + i * 64 * 64, row + 64 * i, k1, k2, batch);
  }
}

/// Issues the loads of C or the residual of a tile, after its blocks of k: 64 columns of a stage lie in the place of A,
/// and where B has room for them, 64 more there.
template <class Config>
FALCHION_DEVICE void load_addend(const GemmArgs& a, const GemmTile& t, const View& x, const CUtensorMap& map,
                                 typename Config::Shared& shared, RingPosition<Config::kStages>& at) {
  constexpr int kBoxes = Config::kAddendColumns / 64;
  static_assert(kBoxes == 1 || sizeof(shared.b[0]) >= sizeof(shared.a[0]));
  if (x.data == nullptr) return;
  const int boxes = a.activation == GemmActivation::swiglu ? Config::kBoxes / 2 : Config::kBoxes;
  CUTE_NO_UNROLL
  for (int box = 0; box < boxes; box += kBoxes) {
    const int count = box + 1 < boxes ? kBoxes : 1;
    shared.empty[at.stage].wait(at.parity ^ 1);
    auto& full = shared.full[at.stage];
    full.arrive_and_expect_tx(count * sizeof(shared.a[0]));
    for (int i = 0; i < count; ++i) {
      // A box beyond n is never read. The first box is loaded in its place, since the barrier counts the bytes of both.
      const std::int64_t column = t.column0 + 64 * (box + i);
      const ColumnOfD of(a, column < a.n ? column : 0);
      cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadOnce,
                                   i == 0 ? shared.a[at.stage] : shared.b[at.stage], of.n1, of.n2,
                                   static_cast<int>(t.row0), x.stride[0] != 0 ? static_cast<int>(t.batch) : 0);
    }
    at.advance();
  }
}

/// The producer, one thread. It loads its own rows of A, and its share of the rows of B by multicast to all CTAs of the
/// cluster. With swiglu the first half of a tile of B are gates and the second half the matching rows of "up", and no
/// box has rows of both.
template <class Config>
FALCHION_DEVICE void produce(const GemmArgs& a, const GemmMaps& maps, typename Config::Shared& shared) {
  constexpr auto kEveryCta = static_cast<std::uint16_t>((1 << Config::kCluster) - 1);
  const int rank = static_cast<int>(cute::block_rank_in_cluster());
  const bool pairs = a.activation == GemmActivation::swiglu;
  RingPosition<Config::kStages> at;
  for (GemmTilesOfCluster<Config> tiles(a); tiles.more();) {
    const GemmTile t = tiles.next();
    const int row = static_cast<int>(t.row0), batch_a = a.a.stride[0] != 0 ? static_cast<int>(t.batch) : 0;
    const int batch_b = a.b.stride[0] != 0 ? static_cast<int>(t.batch) : 0;
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
      for (int first = rank * Config::kBoxRows; first < Config::kColumns;
           first += Config::kCluster * Config::kBoxRows) {
        constexpr int kHalf = Config::kColumns / 2;
        const int column =
            static_cast<int>(t.column0) + (pairs && first >= kHalf ? static_cast<int>(a.n) + first - kHalf : first);
        load_block<Config::kMajorB, Config::kBoxRows>(
            [&](auto* to, int x, int y, int z, int batch) {
              cute::SM90_TMA_LOAD_MULTICAST_4D::copy(&maps.b, bar, kEveryCta, kReadByOthers, to, x, y, z, batch);
            },
            shared.b[at.stage] + first * Config::kDepth, column, k1, k2, batch_b);
      }
      at.advance();
    }
    if (!a.d_boxes || t.part >= 0) continue;
    load_addend<Config>(a, t, a.c, maps.c, shared, at);
    load_addend<Config>(a, t, a.residual, maps.residual, shared, at);
  }
}

}  // namespace falchion::sm90
