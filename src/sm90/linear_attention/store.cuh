// src/sm90/linear_attention/store.cuh: the thread of linear attention on Hopper that stores the outputs, in bf16 and in
// f32.
#pragma once

#include "base/host_device.hpp"
#include "sm90/linear_attention/cta.cuh"

namespace falchion::sm90 {

/// The thread that stores the outputs: it waits for each tile of O, stores it by TMA, and releases its place once TMA
/// has read it. A tile lies in shared memory as boxes whose rows have 128 bytes.
template <class Config>
FALCHION_DEVICE void store_chunks(const LinearCta& cta, typename Config::Shared& shared) {
  constexpr int kBox = 128 / sizeof(shared.o[0][0]),
                kBehind = Config::kTiles > 1 ? 1 : 0;  // how many stores may still be reading their tiles
  const int head = cta.block.h / cta.sweep.o.shared;
  RingPosition<Config::kTiles> at, read;
  CUTE_NO_UNROLL
  for (int i = 0; i < cta.chunks.count; ++i, at.advance()) {  // not unrolled, since this warp has few registers
    shared.o_full[at.stage].wait(at.parity);
    CUTE_UNROLL
    for (int column = 0; column < Config::kColumns; column += kBox)
      cute::SM90_TMA_STORE_4D::copy(&cta.maps.o, shared.o[at.stage] + column * Config::kChunk, cta.column0 + column,
                                    head, cta.chunks.row(i), cta.block.b);
    cute::tma_store_arrive();
    cute::tma_store_wait<kBehind>();
    if (i >= kBehind) {
      shared.o_empty[read.stage].arrive();
      read.advance();
    }
  }
  cute::tma_store_wait<0>();
}

}  // namespace falchion::sm90
