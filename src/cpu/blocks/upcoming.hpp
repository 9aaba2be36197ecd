// src/cpu/blocks/upcoming.hpp: prefetches rows that a CPU kernel will need soon, a few at a time, during other work. A
// core stalls once it has some 16 misses outstanding, so prefetching all rows at once would stall it.
// docs/design/cpu_linear_attention.md, "Memory", has the measurements.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// A list of rows and the rate at which they are prefetched. The compute loops call step() or long_step(), and each
/// call prefetches the rows that are due by then.
class Upcoming {
 public:
  /// Call it before each chunk. It drops the remaining rows and expects as many steps until the next start() as there
  /// were since the last one. The rows that are added now are spread evenly over these steps.
  void start() {
    expected_ = steps_;
    steps_ = 0;
    lists_ = next_ = 0;
    rows_ = 0;
    due_ = 0;
  }

  /// Adds `count` rows of `bytes` bytes. `step` is the distance in bytes from one row to the next. to_write: the rows
  /// will be written. The list holds kMost such calls; rows beyond that are not prefetched.
  void add(const void* first, std::int64_t step, std::int64_t count, std::int64_t bytes, bool to_write) {
    if (count <= 0 || lists_ == kMost) return;
    list_[lists_++] = {static_cast<const char*>(first), step, count, bytes, to_write};
    rows_ += count;
  }

  /// Prefetches one row into the L2 if one is due. For loops with many more steps than rows.
  FALCHION_INLINE void step() {
    ++steps_;
    if ((due_ += rows_) < expected_ || next_ == lists_) return;
    due_ -= expected_;
    fetch(list_[next_]);
  }
  /// Prefetches all rows that are due. For loops with few and long steps.
  FALCHION_INLINE void long_step() {
    ++steps_;
    for (due_ += rows_; due_ >= expected_ && next_ < lists_; due_ -= expected_) fetch(list_[next_]);
  }

 private:
  /// Rows of one call of add() that have not been prefetched yet; `row` is the next one.
  struct List {
    const char* row;
    std::int64_t step, count, bytes;
    bool to_write;
  };
  FALCHION_INLINE void fetch(List& x) {
    for (std::int64_t at = 0; at < x.bytes; at += 64) {
      if (x.to_write) {
        __builtin_prefetch(x.row + at, 1, 2);
      } else {
        __builtin_prefetch(x.row + at, 0, 2);
      }
    }
    x.row += x.step;
    if (--x.count == 0) ++next_;
  }

  static constexpr int kMost = 8;
  List list_[kMost];
  int lists_ = 0, next_ = 0;
  // Each step adds rows_ to due_, and each prefetched row subtracts expected_. So rows_ rows are due in expected_
  // steps.
  std::int64_t rows_ = 0, expected_ = 0, due_ = 0;
  // Steps since the last start(). Before the first start() 64 is assumed: with 0 all rows would be due at once.
  std::int64_t steps_ = 64;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
