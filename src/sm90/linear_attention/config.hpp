// src/sm90/linear_attention/config.hpp: tiles, layouts, barriers and shared memory of linear attention on Hopper: what
// all its kernels share (LinearTiles) and the config of the bf16 kernel. docs/design/linear_attention.md describes the
// roles.
#pragma once

#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "tiles/linear_attention/sm90.hpp"

namespace falchion::sm90 {

using bf16 = cutlass::bfloat16_t;
using f32 = float;

/// The layouts and products of a chunk. C is its number of tokens, E the head dim of q and k, M the columns of v and o.
/// A CTA has kColumns of the M columns.
template <class Element_, int kD_, int kColumns_ = kLinearColumns>
struct LinearTiles {
  using Element = Element_;
  static constexpr int kD = kD_, kChunk = kLinearChunk, kColumns = kColumns_;

  using AtomK = cute::GMMA::Layout_K_SW128_Atom<Element>;
  using AtomMN = cute::GMMA::Layout_MN_SW128_Atom<Element>;
  // A tile of kRows x kWidth numbers, stored row by row. ByRows is its layout as it is, ByColumns its transpose.
  template <int kRows, int kWidth, int kCopies>
  using ByRows =
      decltype(cute::tile_to_shape(AtomK{}, cute::Shape<cute::Int<kRows>, cute::Int<kWidth>, cute::Int<kCopies>>{}));
  template <int kRows, int kWidth, int kCopies>
  using ByColumns =
      decltype(cute::tile_to_shape(AtomMN{}, cute::Shape<cute::Int<kWidth>, cute::Int<kRows>, cute::Int<kCopies>>{},
                                   cute::Step<cute::_2, cute::_1, cute::_3>{}));

  template <int kN, int kK>
  using ShapeOf = cute::Shape<cute::_64, cute::Int<kN>, cute::Int<kK>>;
  template <int kN, int kK, cute::GMMA::Major kA, cute::GMMA::Major kB>
  using Ss =
      decltype(cute::make_tiled_mma(cute::GMMA::ss_op_selector<Element, Element, float, ShapeOf<kN, kK>, kA, kB>()));
  static constexpr auto kByK = cute::GMMA::Major::K, kByMN = cute::GMMA::Major::MN;
  using MmaQk = Ss<kChunk, kD, kByK, kByK>;       // P = Q K^T
  using MmaQs = Ss<kColumns, kD, kByK, kByMN>;    // O = Q S
  using MmaState = Ss<64, kChunk, kByMN, kByMN>;  // S += K^T V, for 64 x 64 of S
  using MmaPv = decltype(cute::make_tiled_mma(    // O += P V
      cute::GMMA::rs_op_selector<Element, Element, float, ShapeOf<kColumns, kChunk>, kByK, kByMN>()));
  // The accumulator of wgmma m64nN has the register layout of mma m16n8 with 4 warps of 16 rows each, one below the
  // other.
  using MmaOfRows = cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN>,
                                   cute::Layout<cute::Shape<cute::_4, cute::_1, cute::_1>>>;
};

/// The bf16 kernel: one warpgroup carries the state S, the others take turns with the outputs of the chunks, one warp
/// loads and one stores (roles.cuh). There is no f16 kernel, because a copy of S in f16 would overflow.
template <class Element_, int kD_>
struct LinearAttentionConfig : LinearTiles<Element_, kD_> {
  using Tiles = LinearTiles<Element_, kD_>;
  using Element = Element_;
  using Tiles::kD, Tiles::kChunk, Tiles::kColumns;
  static constexpr LinearTile kTile = linear_tile(kD);
  static constexpr int kOutputs = kTile.outputs, kStages = kTile.stages, kSlots = kTile.slots, kCtas = 1;
  static constexpr int kThreads = kTile.threads, kTiles = kTile.tiles;

  using LayoutQ = typename Tiles::template ByRows<kChunk, kD, kStages>;            // (C, E, stages)
  using LayoutKt = typename Tiles::template ByColumns<kChunk, kD, kStages>;        // (E, C, stages)
  using LayoutVt = typename Tiles::template ByColumns<kChunk, kColumns, kStages>;  // (M, C, stages)
  using LayoutSt = typename Tiles::template ByColumns<kD, kColumns, kSlots>;       // (M, E, slots)

  struct Shared {
    alignas(1024) Element k[kStages][kChunk * kD];        // (C, E)
    alignas(1024) Element v[kStages][kChunk * kColumns];  // (C, M)
    alignas(1024) Element q[kStages][kChunk * kD];        // (C, E)
    alignas(1024) Element s[kSlots][kD * kColumns];       // (E, M), the state before a chunk
    alignas(1024) Element o[kTiles][kChunk * kColumns];   // (C, M)
    // full: the stage, slot or tile has been filled. empty: all its readers have read it.
    BarrierOfBytes full[kStages];
    Barrier empty[kStages], s_full[kSlots], s_empty[kSlots], o_full[kTiles], o_empty[kTiles];
    /// Each barrier gets its number of arrivals: the loading or storing thread, or the four warps of a warpgroup.
    FALCHION_DEVICE void init() {
      // A stage is read by the warpgroup of the state and by one output warpgroup, 8 warps together.
      for (int i = 0; i < kStages; ++i) {
        full[i].init(1);
        empty[i].init(8);
      }
      for (int i = 0; i < kSlots; ++i) {
        s_full[i].init(4);
        s_empty[i].init(4);
      }
      for (int i = 0; i < kTiles; ++i) {
        o_full[i].init(4);
        o_empty[i].init(1);
      }
      cutlass::arch::fence_barrier_init();
    }
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kCtas * (kSharedBytes + 1024) <= 228 << 10);
};

}  // namespace falchion::sm90
