// src/sm90/attention_forward/decode/kernel.cuh: the forward variants of kind decode on Hopper, for few query rows a K/V
// head, where the time is that of reading K and V. One launch: the lengths are read and the tiles are dealt on the
// device, and CTAs that share the keys of a row add their parts up among themselves. docs/design/sm90_decode.md
// describes the kernel.
#pragma once

#include <cutlass/arch/barrier.h>

#include "base/host_device.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "sm90/attention_forward/decode/exchange.cuh"
#include "sm90/attention_forward/decode/launch.cuh"
#include "sm90/attention_forward/decode/load.cuh"
#include "sm90/attention_forward/decode/parts.cuh"
#include "sm90/attention_forward/decode/store.cuh"

namespace falchion::sm90 {

/// The end of a segment: adds up what the warps and other CTAs have of each row, and tells or stores it.
template <class Config>
FALCHION_DEVICE void end_segment(const AttentionArgs& a, const Divisors& by, const DecodeWalk<Config>& walk,
                                 const DecodeMessages<Config>& messages, typename Config::Shared& shared) {
  const float c = a.scale * kLog2e;
  const DecodeThread<Config> own(walk.rows);
  const bool hears = walk.shares_with_earlier() && shared.hears.count > 0;
  for (int row = own.line; row - own.line < walk.rows; row += own.lines) {
    const bool owns = own.share == 0 && row < walk.rows;
    // Read ahead: what others tell is on its way meanwhile.
    const float sink = owns && has_sinks(a) ? sink_of(a, walk.b, head_of(a, by, walk, row)) : -FALCHION_INF;
    DecodePart part = owns ? add_warps<Config>(shared, row, own.four, c, 0) : DecodePart::of_no_keys();
    if (hears) messages.hear_part(walk, own, row, walk.rows, part);
    if (!owns) continue;
    if (walk.tells()) {
      messages.tell_part(part, row, own.four);
    } else {
      store_part<Config>(a, by, walk, part, row, own.four, sink);
    }
  }
}

/// The end of a part: stores what the warps have of each row, or adds all parts of the segment up.
template <class Config>
FALCHION_DEVICE void end_part(const AttentionArgs& a, const Divisors& by, const DecodeWalk<Config>& walk,
                              typename Config::Shared& shared, int first_turn) {
  const float c = a.scale * kLog2e;
  const DecodeThread<Config> own(walk.rows);
  const DecodePlaces<Config> places(walk);
  const bool tells = walk.tells_parts(), adds = !tells && walk.is_first_of_segment();
  if (adds && walk.part > walk.parts().begin_part()) shared.emptied.wait(0);
  for (int row = own.line; row < walk.rows && own.share == 0; row += own.lines) {
    const float sink = adds && has_sinks(a) ? sink_of(a, walk.b, head_of(a, by, walk, row)) : -FALCHION_INF;
    const DecodePart part = add_warps<Config>(shared, row, own.four, c, first_turn);
    if (adds) {
      store_part<Config>(a, by, walk, places.add_parts(part, row, own.four, c), row, own.four, sink);
    } else {
      places.keep(part, row, own.four);
    }
  }
  if (!tells) return;
  sync_threads<Config::kConsumers>(kOfPlaces);
  if (threadIdx.x == 0) tell_number(places.number(walk.part), walk.grid.number);
}

/// The consumer warps.
template <class Config>
FALCHION_DEVICE void consume(const AttentionArgs& a, const Divisors& by, DecodeWalk<Config> walk,
                             typename Config::Shared& shared) {
  const DecodeMessages<Config> messages(walk.grid, a.scale * kLog2e, shared);
  if (!Config::kParts && walk.tells()) messages.empty(walk.rows);
  int tiles = 0;  // of the segments before
  for (bool first = true;; first = false, walk.go_back()) {
    DecodeRows<Config> rows(a, by, walk, shared);
    if (!Config::kParts && threadIdx.x == 0) shared.hears = walk.heard();
    const int begin = walk.begin_tile(), end = walk.end_tile();
    const int skipped = (rows.place.turn - tiles) & (Config::kTurns - 1);  // tiles of other warps
    int n = tiles + skipped;
    for (int t = begin + skipped; t < end; t += Config::kTurns, n += Config::kTurns) {
      const int stage = n % Config::kStages;
      const KeyRows::Look found = rows.look_up(t);
      shared.full[stage].wait(n / Config::kStages % 2);
      rows.multiply(walk, shared, stage, t, found);
      shared.empty[stage].arrive();
    }
    const int first_turn = tiles & (Config::kTurns - 1);
    tiles += end - begin;
    leave_sums<Config>(rows, walk.rows, shared, first && a.rotation.dim == 0);
    if constexpr (Config::kParts) {
      end_part<Config>(a, by, walk, shared, first_turn);
    } else {
      end_segment<Config>(a, by, walk, messages, shared);
    }
    if (walk.is_first()) break;
  }
}

/// Reads the kernel's parameters before it waits for earlier ones: the first look at a line of them takes as long as
/// one at the L2, and one after another they would come later.
template <class Parameters>
FALCHION_DEVICE void read_ahead(const Parameters& x) {
  constexpr int kLine = 64;  // bytes
  CUTE_UNROLL
  for (std::size_t i = 0; i < sizeof(x); i += kLine)
    asm volatile("" ::"r"(*reinterpret_cast<const std::uint32_t*>(reinterpret_cast<const char*>(&x) + i)));
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    attention_forward(const __grid_constant__ AttentionArgs a, const __grid_constant__ Divisors by,
                      const __grid_constant__ DecodeGrid grid) {
  extern __shared__ __align__(1024) unsigned char memory[];
  let_next_kernel_start();
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      shared.full[i].init(Config::kProducers);
      shared.empty[i].init(Config::kSlices * Config::kRowGroups);
    }
    shared.emptied.init(1);
    cutlass::arch::fence_barrier_init();
  }
  read_ahead(a);
  read_ahead(grid);
  __syncthreads();
  DecodeWalk<Config> walk(a, grid);
  DecodeProducer<Config> producer(a, shared);
  // Only lengths that lie on the device may come from an earlier kernel.
  if (walk.reads_lengths()) wait_for_earlier_kernels();
  walk.find(shared);
  if (!walk.reads_lengths()) wait_for_earlier_kernels();
  if (walk.share.empty()) return;
  if (threadIdx.x < Config::kConsumers) {
    consume<Config>(a, by, walk, shared);
  } else {
    producer.run(walk);
  }
}

template <class Config>
int launch_config(const AttentionArgs& a, void* stream) {
  if constexpr (!Config::kScaled) {
    using InParts = DecodeInParts<Config>;
    if (a.split_keys > 0) return launch_decode<attention_forward<InParts>, InParts>(a, stream);
  }
  return launch_decode<attention_forward<Config>, Config>(a, stream);
}

template <class Element, class Cached, int kD, int kRows>
int launch_rows(const AttentionArgs& a, void* stream) {
  return a.pages.size > 0 ? launch_config<DecodeConfig<Element, Cached, kD, kRows, true>>(a, stream)
                          : launch_config<DecodeConfig<Element, Cached, kD, kRows, false>>(a, stream);
}

template <class Element, class Cached, int kD>
int launch_any_rows(const AttentionArgs& a, void* stream) {
  switch (decode_rows(a.s_q * a.group)) {
    case 8: return launch_rows<Element, Cached, kD, 8>(a, stream);
    case 16: return launch_rows<Element, Cached, kD, 16>(a, stream);
    default: return launch_rows<Element, Cached, kD, 32>(a, stream);
  }
}

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_decode() {
  return {launch_any_rows<Element, Element, kD>, nullptr, nullptr, attention_decode_facts(VariantKind::decode, kD)};
}

}  // namespace falchion::sm90
