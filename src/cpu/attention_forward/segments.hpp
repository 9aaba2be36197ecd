// src/cpu/attention_forward/segments.hpp: O and l of f32 over many keys. Each addition to a running sum rounds at the
// magnitude of the sum, so a sum of n keys drifts by some sqrt(n) roundings: with V near 1 the error of O was 5.6e-6
// over 30,000 keys and 3e-5 over 2^20. So a running sum covers the keys of one segment only, and the sums of the
// segments are added with a correction (Kahan 1965), whose error does not grow with their number.
// docs/design/cpu_forward.md has the measurements.
#pragma once

#include <type_traits>

#include "args/cpu_attention_args.hpp"
#include "cpu/blocks/arena.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Whether sums of this type are made in segments. Rounding P to 16 bits costs more than the drift of its sums.
template <class T>
inline constexpr bool kSegments = std::is_same_v<T, f32>;

/// total + low += part, where low is the rounding error of total so far; then part = 0. n is a multiple of kLanes.
FALCHION_INLINE void close_segment(float* part, float* total, float* low, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const Floats before = load(total + i), added = hn::Add(load(part + i), load(low + i));
    const Floats after = hn::Add(before, added), lost = hn::Sub(added, hn::Sub(after, before));
    const auto is_finite = hn::Eq(hn::Sub(after, after), splat(0.F));  // the correction is 0 beside an infinity
    store(after, total + i);
    store(hn::IfThenElseZero(is_finite, lost), low + i);
    store(splat(0.F), part + i);
  }
}

/// The sums O and l of some tiles (decode: heads) before their current segment.
class SegmentSums {
 public:
  /// None, for types without segments.
  SegmentSums() = default;
  /// Each tile has `floats` sums of O, and then kM of l. Both numbers are multiples of kLanes. Allocates no memory if
  /// no tile has more than one segment.
  SegmentSums(const AttentionArgs& a, Arena& arena, std::int64_t tiles, std::int64_t floats, std::int64_t most)
      : floats_(floats), most_(most) {
    if (!a.packed && a.s_k <= most) return;
    total_ = arena.take<float>(tiles * (floats + kM));
    low_ = arena.take<float>(tiles * (floats + kM));
    keys_ = arena.take<std::int64_t>(tiles);
    begun_ = arena.take<std::uint8_t>(tiles);
    any_ = true;
  }
  void reset(int tile) {
    if (!any_) return;
    keys_[tile] = 0;
    begun_[tile] = 0;
  }
  /// Counts the keys that have been added to O. If they complete a segment, O and l (kM) are added to the sums of the
  /// segments and restart at 0. O may lag behind l by the last keys, since both are complete in the end.
  FALCHION_INLINE void count(int tile, std::int64_t keys, float* O, float* l) {
    if (!any_ || (keys_[tile] += keys) < most_) return;
    keys_[tile] = 0;
    close(tile, O, l);
  }
  bool begun(int tile) const { return any_ && begun_[tile] != 0; }
  /// The sums of O, followed by those of l, then their corrections. A caller that rescales O and l must rescale these
  /// too.
  float* total(int tile) const { return total_ + tile * (floats_ + kM); }
  float* low(int tile) const { return low_ + tile * (floats_ + kM); }
  /// Turns O and l into the sums over all segments.
  void finish(int tile, float* O, float* l) {
    if (!begun(tile)) return;
    close(tile, O, l);
    std::memcpy(O, total(tile), static_cast<std::size_t>(floats_) * sizeof(float));
    std::memcpy(l, total(tile) + floats_, kM * sizeof(float));
  }

 private:
  __attribute__((noinline)) void close(int tile, float* O, float* l) {
    if (begun_[tile] == 0) {
      begun_[tile] = 1;
      std::memset(total(tile), 0, static_cast<std::size_t>(floats_ + kM) * sizeof(float));
      std::memset(low(tile), 0, static_cast<std::size_t>(floats_ + kM) * sizeof(float));
    }
    close_segment(O, total(tile), low(tile), floats_);
    close_segment(l, total(tile) + floats_, low(tile) + floats_, kM);
  }

  std::int64_t floats_ = 0, most_ = 0;       // sums of a tile; the keys that make a segment
  float *total_ = nullptr, *low_ = nullptr;  // (tiles, floats + kM)
  std::int64_t* keys_ = nullptr;             // of the current segment, by tile
  std::uint8_t* begun_ = nullptr;            // whether a tile has closed a segment
  bool any_ = false;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
