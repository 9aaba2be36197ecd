// src/sm90/attention_forward/decode/launch.cuh: the host side of Hopper's forward kernel for few query rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/launch_number.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "sm90/attention_forward/decode/parts.cuh"

namespace falchion::sm90 {

/// Enqueues the kernel with the grid that the plan has chosen: a.walkers CTAs, in groups of a.section.
template <auto kKernel, class Config>
int launch_decode(const AttentionArgs& a, void* stream) {
  if (a.walkers == 0) return cudaSuccess;
  // The plan has checked the number of tiles, but it knows packed rows only from a hint.
  const bool packed_keys = has_packed_keys(a);
  if (a.packed) {
    const auto rows = static_cast<double>(a.total_q * a.group), sequences = static_cast<double>(a.b);
    const auto keys = static_cast<double>(packed_keys ? a.total_k : a.s_k);
    const double tiles = packed_keys ? (rows / Config::kRows + 1) * (keys / Config::kKeys + sequences)
                                     : (rows / Config::kRows + sequences) * (keys / Config::kKeys + 1);
    if (std::max(rows, keys) > kDecodeMostLength || tiles * static_cast<double>(a.h_q / a.group) > INT32_MAX)
      return cudaErrorInvalidConfiguration;
  }
  // With split_keys the parts have the places, and not the CTAs.
  const std::int64_t places = Config::kParts ? DecodePlaces<Config>::of_problem(a) : a.walkers;
  auto* const workspace = reinterpret_cast<std::byte*>(a.partial_o);
  const DecodeGrid grid{.band = DecodeBand::make(a.left, a.right, a.bottom_right, a.diagonal),
                        .by_width = Divisor(a.section),
                        .by_groups = Divisor(a.walkers / a.section),
                        .by_blocks = Divisor(a.h_q / a.group / a.section),
                        .s_q = static_cast<int>(a.packed ? a.total_q : a.s_q),
                        .s_k = static_cast<int>(packed_keys ? a.total_k : a.s_k),
                        .number = launch_number(),
                        .places = reinterpret_cast<float4*>(workspace),
                        .numbers = reinterpret_cast<std::uint64_t*>(
                            workspace + DecodeWorkspace::numbers(places, Config::kRows, Config::kD))};
  return launch_kernel<kKernel>(static_cast<unsigned>(a.walkers), Config::kThreads, Config::kSharedBytes, stream,
                                a.early, a, Divisors(a), grid);
}

}  // namespace falchion::sm90
