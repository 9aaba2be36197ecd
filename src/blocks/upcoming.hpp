// src/blocks/upcoming.hpp: rows of memory that will be wanted soon, fetched a few at a time while something else is
// computed. A core stands still once it has some 16 misses under way, so all rows at once would be waited for.
#pragma once

#include "blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

class Upcoming {
 public:
  /// Forgets what is left. Until the next call as many steps are expected as there were since the last one: the rows
  /// that are added now are spread over them.
  void start() { expected_ = steps_, steps_ = 0, lists_ = next_ = 0, rows_ = 0, due_ = 0; }

  /// `count` rows of `bytes` bytes, `step` bytes from one to the next.
  void add(const void* first, std::int64_t step, std::int64_t count, std::int64_t bytes, bool to_write) {
    if (count <= 0 || lists_ == kMost) return;
    list_[lists_++] = {static_cast<const char*>(first), step, count, bytes, to_write};
    rows_ += count;
  }

  /// Fetches a row into L2, if it is time for one: where steps are many more than rows.
  FALCHION_INLINE void step() {
    ++steps_;
    if ((due_ += rows_) < expected_ || next_ == lists_) return;
    due_ -= expected_;
    fetch(list_[next_]);
  }
  /// Fetches all rows it is time for: where steps are few.
  FALCHION_INLINE void long_step() {
    ++steps_;
    for (due_ += rows_; due_ >= expected_ && next_ < lists_; due_ -= expected_) fetch(list_[next_]);
  }

 private:
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
  std::int64_t rows_ = 0, expected_ = 0, due_ = 0;
  std::int64_t steps_ = 64;  // the first time there is no last time: not all rows at once
};

}  // namespace falchion::cpu::FALCHION_LEVEL
