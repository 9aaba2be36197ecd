// src/sm90/attention_forward/decode/exchange.cuh: how the CTAs that share a segment add up their parts, in the same
// launch. It is the exchange of sm90/linear_attention/segments.cuh: a CTA waits for CTAs of lower index alone, which
// the device starts first, so nothing hangs where a part of the grid has to wait for an SM. No kernel runs before, and
// the workspace may hold anything: a CTA empties its place, and says so by storing the number of the launch.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_messages.cuh"
#include "sm90/attention_forward/decode/sums.cuh"

namespace falchion::sm90 {

template <class Config>
class DecodeMessages {
 public:
  FALCHION_DEVICE DecodeMessages(const DecodeGrid& grid, float c, typename Config::Shared& shared)
      : grid(grid), c(c), shared(shared) {}

  /// Empties the place of this CTA, for so many rows, and says so.
  FALCHION_DEVICE void empty(int rows) const {
    float4* const own = place(static_cast<int>(blockIdx.x));
    for (int i = static_cast<int>(threadIdx.x); i < rows * (Config::kFours + 1); i += Config::kConsumers)
      tell(own + (i < rows * Config::kFours ? i : i - rows * Config::kFours + kOfRows), no_message());
    sync_threads<Config::kConsumers>(kOfPlaces);
    if (threadIdx.x == 0) tell_number(grid.numbers + blockIdx.x, grid.number);
  }
  /// Tells this CTA's part of a row.
  FALCHION_DEVICE void tell_part(const DecodePart& part, int row, int four) const {
    float4* const to = place(static_cast<int>(blockIdx.x));
    tell(to + row * Config::kFours + four, part.o);
    if (four == 0) tell(to + kOfRows + row, make_float4(part.m, part.l, 0, 0));
  }
  /// Adds what other CTAs tell of a row to the part of its owner, always in the same order. Each of the threads that
  /// have the row hears some of the CTAs. All consumers call it, also those that have no row (row >= rows).
  FALCHION_DEVICE void hear_part(const DecodeWalk<Config>& walk, const DecodeThread<Config>& own, int row, int rows,
                                 DecodePart& part) const {
    const int count = static_cast<int>(shared.hears.count);
    const int each = (count + own.shares - 1) >> (kLogLines - own.log_lines);
    const int from = own.share * each, to = min(from + each, count);
    shared.emptied.wait(0);
    DecodePart heard = DecodePart::of_no_keys();
    if (row < rows) heard = hear_some(walk, row, own.four, from, to);
    if (own.shares == 1) return part.add(heard.o, heard.m, heard.l, c);
    // There is but one round of rows then, so nobody reads here any more what was heard of other ones.
    shared.heard[threadIdx.x] = heard.o;
    shared.heard_m_l[threadIdx.x] = {heard.m, heard.l};
    sync_threads<Config::kConsumers>(kOfHeard);
    if (own.share > 0 || row >= rows) return;
    for (int other = 0; other < own.shares; ++other) {
      const int thread = static_cast<int>(threadIdx.x) + other * own.lines * Config::kFours;
      part.add(shared.heard[thread], shared.heard_m_l[thread].x, shared.heard_m_l[thread].y, c);
    }
  }

 private:
  static constexpr int kOfRows = Config::kRows * Config::kFours;  // where m and l of the rows lie in a place
  static constexpr int kAtOnce = 8;
  static constexpr int kLogLines = Config::kLines == 16 ? 4 : Config::kLines == 8 ? 3 : 2;
  static_assert(1 << kLogLines == Config::kLines);

  FALCHION_DEVICE float4* place(int cta) const { return grid.places + std::int64_t{cta} * Config::kPlace; }

  /// What the CTAs number `from` to `to` tell of a row. The messages of eight of them are in flight at a time, and only
  /// those that are not there yet are asked for again.
  FALCHION_DEVICE DecodePart hear_some(const DecodeWalk<Config>& walk, int row, int four, int from, int to) const {
    DecodePart part = DecodePart::of_no_keys();
    for (int first = from; first < to; first += kAtOnce) {
      float4 o[kAtOnce];
      float2 m_l[kAtOnce];
      int at[kAtOnce];  // where the places begin, in messages
      CUTE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        at[i] = walk.cta(shared.hears.group(static_cast<std::uint32_t>(min(first + i, to - 1)))) * Config::kPlace;
        o[i] = no_message();
        m_l[i] = {o[i].x, 0};
      }
      bool all = false;
      while (!all) {
        all = true;
        // The compiler may not keep all addresses in registers.
        const float4* const places = grid.places + hidden(row * Config::kFours + four);
        const float4* const of_rows = grid.places + hidden(kOfRows + row);
        CUTE_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          if (!is_message(o[i])) o[i] = hear(places + at[i]);
          if (is_message(m_l[i])) continue;
          const float4 numbers = hear(of_rows + at[i]);
          m_l[i] = {numbers.x, numbers.y};
        }
        CUTE_UNROLL
        for (int i = 0; i < kAtOnce; ++i) all &= is_message(o[i]) && is_message(m_l[i]);
      }
      CUTE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < to) part.add(o[i], m_l[i].x, m_l[i].y, c);
      }
    }
    return part;
  }

  const DecodeGrid& grid;
  const float c;
  typename Config::Shared& shared;
};

}  // namespace falchion::sm90
