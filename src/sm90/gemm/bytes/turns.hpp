// src/sm90/gemm/bytes/turns.hpp: the order of blocks of k in two alternating accumulators.
// tests/gemm_bytes_turns_test.cpp runs it on the host.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"

namespace falchion::sm90 {

/// Starts the products of `blocks` blocks, alternating between two accumulators, and finishes each after the next one
/// has been started, so that one is computed while the sums of the other are read. start(accumulator);
/// finish(accumulator, running): `running`, an integral constant, is how many later products may still run.
template <class Accumulator, class Start, class Finish>
FALCHION_HD void take_turns(std::int64_t blocks, Accumulator& even, Accumulator& odd, Start start, Finish finish) {
  constexpr std::integral_constant<int, 0> kNone{};
  constexpr std::integral_constant<int, 1> kOne{};
  if (blocks <= 0) return;
  start(even);
  while (--blocks > 0) {
    start(odd);
    finish(even, kOne);
    if (--blocks == 0) return finish(odd, kNone);
    start(even);
    finish(odd, kOne);
  }
  finish(even, kNone);
}

}  // namespace falchion::sm90
