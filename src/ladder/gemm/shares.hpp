// src/ladder/gemm/shares.hpp: who computes which part of C in step 13. Most tiles are computed whole, one after
// another. Those of the last wave, which would not fill it, and of the wave before are cut along k, so that all end
// together.
#pragma once

#include "base/host_device.hpp"

namespace falchion::ladder::gemm {

/// Products [first, end) of the `blocks` that make up tile number `tile`.
struct Share {
  int tile, first, end;
};

/// A part that does not begin its tile leaves its sums to the one that does. Writing and
/// reading them is estimated to take as long as 10 products. So tiles are cut only where more than twice that is idle.
inline constexpr int kWorthIt = 20;
/// The fewest products of a part.
inline constexpr int kLeastPart = 8;

/// `tiles` tiles of `blocks` products each, by `workers`.
class Shares {
 public:
  FALCHION_HD Shares(int tiles, int blocks, int workers)
      : blocks_(blocks), workers_(workers), parts_(workers), whole_(tiles) {
    const int rest = tiles % workers;
    const bool cut = rest > 0 && static_cast<long long>(workers - rest) * blocks / workers > kWorthIt;
    if (cut) whole_ = tiles < workers ? 0 : tiles - rest - workers;
    cut_ = static_cast<long long>(tiles - whole_) * blocks;
    if (cut && cut_ / kLeastPart < workers) parts_ = static_cast<int>(cut_ / kLeastPart);
  }

  /// Calls f(share) for each share of a worker. A share that others wait for, the end of a tile, comes first.
  template <class F>
  FALCHION_HD void for_each(int worker, const F& f) const {
    const int end = begin_of(worker + 1);
    for (int at = begin_of(worker); at < end;) {
      const int first = at % blocks_, rest = blocks_ - first;
      const int count = rest < end - at ? rest : end - at;
      f(Share{whole_ + at / blocks_, first, first + count});
      at += count;
    }
    for (int tile = worker; tile < whole_; tile += workers_) f(Share{tile, 0, blocks_});
  }

  /// The parts that follow `share`, which begins a tile: workers worker + 1 to worker + others() have them, in the
  /// order of k.
  FALCHION_HD int others(int worker, const Share& share) const {
    int count = 0;
    if (share.end < blocks_)
      for (int at = begin_of(worker + 1), end = at - share.end + blocks_; at < end; at = begin_of(worker + 1 + count))
        ++count;
    return count;
  }

 private:
  /// Where the part of a worker begins among all products of the tiles that are cut.
  FALCHION_HD int begin_of(int worker) const {
    return static_cast<int>(worker < parts_ ? cut_ * worker / parts_ : cut_);
  }

  int blocks_, workers_, parts_, whole_;
  long long cut_;
};

}  // namespace falchion::ladder::gemm
