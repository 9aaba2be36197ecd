// src/sm90/linear_attention/cta.cuh: the work of a CTA of linear attention on Hopper (its chunks, its columns of v and
// o, its tensor maps), and how its warps synchronise: arrivals at the barriers of rings, and named barriers. All roles
// of all variants use it.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/fragments.cuh"
#include "gpu/blocks/sm90_tma.cuh"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "gpu/linear_attention/block.cuh"

namespace falchion::sm90 {

using namespace gpu;

struct LinearMaps {
  CUtensorMap q, k, v, o;
};
struct AllLinearMaps {
  LinearMaps of[3];
};

/// Chunks in the order of the sweep: chunk i is chunk first + i * step of the sequence.
struct ChunkRange {
  int first = 0, step = 1, count = 0;
  /// The chunks of piece number `piece`: each segment is cut into `parts` pieces, numbered in the order of the sweep.
  FALCHION_DEVICE ChunkRange(const LinearAttentionArgs& a, const LinearSweep& sweep, int parts, int piece) {
    const int all = static_cast<int>((a.s + 63) / 64), each = static_cast<int>(a.segment / 64) / parts;
    const int pieces = a.segments * parts;
    const int at = sweep.reverse ? pieces - 1 - piece : piece;
    const int begin = min(at * each, all);
    const int end = at + 1 == pieces ? all : min(begin + each, all);
    step = sweep.reverse ? -1 : 1;
    first = sweep.reverse ? end - 1 : begin;
    count = end - begin;
  }
  FALCHION_DEVICE int row(int i) const { return (first + i * step) * 64; }
};

/// The work of a CTA: some columns of v and o of one head, in one segment of its tokens.
struct LinearCta {
  const LinearAttentionArgs& a;
  const LinearBlock block;
  const LinearSweep& sweep;
  const LinearMaps& maps;
  const std::uint64_t number;  // a different number for each launch (gpu/blocks/launch_number.hpp)
  const int column0;
  const bool sums;  // whether it first sums K^T V of part number block.segment, for later segments
  const ChunkRange summed, chunks;

  FALCHION_DEVICE LinearCta(const LinearAttentionArgs& a, const LinearSweeps& sweeps, const AllLinearMaps& maps,
                            std::uint64_t number)
      : a(a),
        block(a, sweeps),
        sweep(sweeps.sweep[block.which]),
        maps(maps.of[block.which]),
        number(number),
        column0(block.column_tile * 64),
        sums(block.segment < (a.segments - 1) * a.parts),
        summed(a, sweep, a.parts, block.segment),
        chunks(a, sweep, 1, block.segment) {}
  FALCHION_DEVICE int to_sum() const { return sums ? summed.count : 0; }
};

template <class Element, class Layout_>
FALCHION_DEVICE auto in_shared(Element* data, Layout_ layout) {
  return make_tensor(make_smem_ptr(data), layout);
}

/// Lane 0 arrives for its warp. The arrival is predicated instead of branched: where control flow diverges while
/// products are running, ptxas makes the warp wait for these products.
template <class Barrier>
FALCHION_DEVICE void arrive_by_warp(Barrier& barrier, int times = 1) {
  asm volatile(
      "{\n"
      ".reg .pred first;\n"
      "setp.eq.u32 first, %1, 0;\n"
      "@first mbarrier.arrive.shared::cta.b64 _, [%0], %2;\n"
      "}\n" ::"r"(cast_smem_ptr_to_uint(&barrier)),
      "r"(threadIdx.x % 32), "r"(times)
      : "memory");
}

/// Like arrive_by_warp, but not before `value`, which depends on the loads, is known; `value` is never 0xffffffff. An
/// arrival alone does not wait for loads of the same thread that are in flight, and the compiler may move the use of
/// what they load behind it. Without this, TMA overwrote rows before they were read.
FALCHION_DEVICE void arrive_by_warp_having(unsigned value, Barrier& barrier) {
  asm volatile(
      "{\n"
      ".reg .pred first;\n"
      "setp.eq.u32 first, %1, 0;\n"
      "setp.ne.and.u32 first, %2, 0xffffffff, first;\n"
      "@first mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}\n" ::"r"(cast_smem_ptr_to_uint(&barrier)),
      "r"(threadIdx.x % 32), "r"(value)
      : "memory");
}

/// The named barriers, on which some warps of a CTA wait for others.
enum NamedBarrier {
  kOfState = 1,                  // among the warps that carry S
  kOfSums,                       // the output warps wait until the warps that carry S have made the sums
  kOfTiles,                      // the warps that carry S wait until the first output warpgroup has prepared the tiles
  kOfEmptied,                    // among the threads of that output warpgroup, which each empty a share of the tiles
  kOfSplitters,                  // among the splitters of a team; one barrier for each team
  kOfOutputs = kOfSplitters + 2  // wide CTAs: among the warps that store the same 64 columns of o
};
/// The output warps call this before their first chunk. While sums are made they take no part in the rings, and the
/// warps that carry S arrive in their place. A wait on a barrier only sees the parity of its phase. So an output warp
/// that skipped phases would mistake one phase for the next but one.
template <class Config>
FALCHION_DEVICE void wait_for_sums() {
  sync_threads<128 * (1 + Config::kOutputs)>(kOfSums);
}
template <class Config>
FALCHION_DEVICE void sums_are_made() {
  arrive_threads<128 * (1 + Config::kOutputs)>(kOfSums);
}

}  // namespace falchion::sm90
