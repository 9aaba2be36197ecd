// src/sm90/linear_attention_thirds_config.hpp: layouts, barriers and shared memory of linear attention in f32 on
// Hopper.
#pragma once

#include "sm90/linear_attention_config.hpp"

namespace falchion::sm90 {

/// f32 as the sum of three bf16, of whose 9 products 6 are taken. The twin of LinearAttentionConfig, whose tiles and
/// products these are, three times; a warpgroup takes q, k and v apart.
template <int kD_>
struct LinearThirdsConfig : LinearAttentionConfig<bf16, kD_> {
  using Base = LinearAttentionConfig<bf16, kD_>;
  using Base::kD, Base::kChunk, Base::kColumns;
  static constexpr int kThirds = 3, kStages = kD <= 64 ? 2 : 1, kSlots = 1, kThreads = 3 * 128,
                       kThreadsOfSums = 2 * 128;

  // One copy: each stage and each third of it is addressed by itself.
  using LayoutQ = typename Base::template ByRows<kChunk, kD, 1>;            // (C, E)
  using LayoutKt = typename Base::template ByColumns<kChunk, 64, 1>;        // (E, C), 64 of E
  using LayoutVt = typename Base::template ByColumns<kChunk, kColumns, 1>;  // (M, C)
  using LayoutSt = typename Base::template ByColumns<kD, kColumns, 1>;      // (M, E)

  using Barrier = typename Base::Barrier;
  struct Chunks {                                               // what the splitter fills
    alignas(1024) bf16 k[kThirds][kStages][kChunk * kD];        // (C, E)
    alignas(1024) bf16 v[kThirds][kStages][kChunk * kColumns];  // (C, M)
    Barrier full[kStages], empty[kStages];
    CUTE_DEVICE void init_chunks(int warps) {
      for (int i = 0; i < kStages; ++i) full[i].init(4), empty[i].init(warps);
      cutlass::arch::fence_barrier_init();
    }
  };
  struct Shared : Chunks {
    alignas(1024) bf16 q[kThirds][kStages][kChunk * kD];   // (C, E)
    alignas(1024) bf16 s[kThirds][kSlots][kD * kColumns];  // (E, M), before its chunk
    Barrier s_full[kSlots], s_empty[kSlots];
    CUTE_DEVICE void init() {
      for (int i = 0; i < kSlots; ++i) s_full[i].init(4), s_empty[i].init(4);
      Chunks::init_chunks(8);
    }
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static constexpr int kSharedBytesOfSums = static_cast<int>(sizeof(Chunks));
  static_assert(kSharedBytes <= 227 << 10);
};

}  // namespace falchion::sm90
