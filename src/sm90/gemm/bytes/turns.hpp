// src/sm90/gemm/bytes/turns.hpp: in which order blocks of k go through two accumulators.
// tests/gemm_bytes_turns_test.cpp runs it on the host.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"

namespace falchion::sm90 {

/// Starts the products of so many blocks, in two accumulators in turn, and finishes each when the next one has been
/// started, so that one is computed while the sums of the other are read. start(accumulator); finish(accumulator,
/// running): `running` products have been started later and may go on; it is an integral constant.
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
