// src/sm80/attention_forward/f32/segments.cuh: O and l of the f32 kernel over many keys. Each addition to a running sum
// rounds at the magnitude of the sum: over 4326 keys, with V of 4, O had an error of 3e-5. So a running sum covers the
// keys of one segment only. The sum of the segments before it is kept, unnormalised, where O will be stored, since
// there are no registers for a second O. A thread writes and reads its own elements there. docs/design/sm80_forward.md
// has the cost.
#pragma once

#include "base/host_device.hpp"
#include "sm80/attention_forward/f32/softmax.cuh"
#include "sm80/attention_forward/f32/store.cuh"

namespace falchion::sm80 {

using namespace gpu;

template <class Config>
class SegmentSums {
 public:
  FALCHION_DEVICE SegmentSums(const AttentionArgs& a, const AttentionTile& t, const OwnPlace& at, const float* own_q)
      : a(a), at(at), own_q(own_q), begin(t.begin), end(t.end) {
    CUTE_UNROLL
    for (int r = 0; r < Config::kOwnRows; ++r) {
      const int number = t.row0 + at.row + 2 * r;
      if (at.key == 0) row(r)->line = number < t.rows ? line_of(a, t, number) : nullptr;
    }
    __syncwarp();  // all lanes of a row are in one warp
  }

  /// Whether a segment ends with tile n. The last one, at `begin`, is in O and l when the loop ends.
  FALCHION_DEVICE bool ends_at(int n) const { return n % Config::kSegmentTiles == 0 && n > begin; }

  /// The end of a segment: adds O and l to the sums in memory, and resets them to 0.
  template <class Softmax, class Output>
  FALCHION_DEVICE void put_aside(int n, Softmax& softmax, Output& O) const {
    const bool any = n + Config::kSegmentTiles < end;  // whether there are sums of earlier segments
    CUTE_UNROLL
    for (int r = 0; r < Config::kOwnRows; ++r) {
      const float shrink = any ? shrink_to(softmax.m[r], row(r)->m) : 0.f, before = any ? row(r)->l : 0.f;
      const float l = over_row(softmax.l[r], [](float x, float y) { return x + y; });
      __syncwarp();  // every lane of the row has read the old sums
      if (at.key == 0) {
        row(r)->m = softmax.m[r];
        row(r)->l = fmaf(before, shrink, l);
      }
      softmax.l[r] = 0;
      for_each_place(r, [&](float* to, int c, int count) {
        if (count == 4) {
          float4 x = any ? *reinterpret_cast<const float4*>(to) : float4{};  // the first segment has nothing to read
          x.x = fmaf(x.x, shrink, O(r, c));
          x.y = fmaf(x.y, shrink, O(r, c + 1));
          x.z = fmaf(x.z, shrink, O(r, c + 2));
          x.w = fmaf(x.w, shrink, O(r, c + 3));
          *reinterpret_cast<float4*>(to) = x;
        } else {
          *to = fmaf(any ? *to : 0.f, shrink, O(r, c));
        }
      });
    }
    __syncwarp();
    clear(O);
  }
  /// After the last key: adds the sums of the earlier segments to O and l.
  template <class Softmax, class Output>
  FALCHION_DEVICE void take_back(Softmax& softmax, Output& O) const {
    if (!ends_at((end - 1) / Config::kSegmentTiles * Config::kSegmentTiles)) return;
    CUTE_UNROLL
    for (int r = 0; r < Config::kOwnRows; ++r) {
      const float shrink = shrink_to(softmax.m[r], row(r)->m);
      if (at.key == 0) softmax.l[r] = fmaf(row(r)->l, shrink, softmax.l[r]);  // l is summed over the lanes of the row
      for_each_place(r, [&](float* from, int c, int count) {
        if (count == 4) {
          const float4 x = *reinterpret_cast<const float4*>(from);
          O(r, c) = fmaf(x.x, shrink, O(r, c));
          O(r, c + 1) = fmaf(x.y, shrink, O(r, c + 1));
          O(r, c + 2) = fmaf(x.z, shrink, O(r, c + 2));
          O(r, c + 3) = fmaf(x.w, shrink, O(r, c + 3));
        } else {
          O(r, c) = fmaf(*from, shrink, O(r, c));
        }
      });
    }
  }

 private:
  /// Stored behind the data of each row of Q, for all lanes of the row: m and l of the earlier segments, and the
  /// address of their O, null past the last row. The address is kept here because there are no registers for it, nor
  /// for its parts.
  struct Row {
    float m, l;
    float* line;
  };
  static_assert(sizeof(Row) <= 4 * (Config::kStrideQ - Config::kD));
  FALCHION_DEVICE Row* row(int r) const {
    return reinterpret_cast<Row*>(const_cast<float*>(own_q) + 2 * r * Config::kStrideQ + Config::kD);
  }

  /// The factor of sums that are relative to the maximum `before`. A row that has seen no key has 0, and -inf - -inf
  /// must not turn it into NaN.
  static FALCHION_DEVICE float shrink_to(float m, float before) {
    return m == -FALCHION_INF ? 1.f : exp2((before - m) * kLog2e);
  }
  /// Calls f(place in memory, column of O, count) for each element of row r that this thread owns, 4 at a time where
  /// the row is aligned.
  template <class F>
  FALCHION_DEVICE void for_each_place(int r, F f) const {
    float* const line = row(r)->line;
    if (line == nullptr) return;
    CUTE_UNROLL
    for (int c = 0; c < Config::kOwnColumns; c += 4) {
      const int column = static_cast<int>(get<1>(at(r, c))), left = static_cast<int>(a.d_v) - column;
      if (left >= 4 && reinterpret_cast<std::uintptr_t>(line + column) % 16 == 0) {
        f(line + column, c, 4);
      } else {
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (i < left) f(line + column + i, c + i, 1);
        }
      }
    }
  }

  const AttentionArgs& a;
  const OwnPlace& at;
  const float* const own_q;  // the thread's first row of Q
  const int begin, end;      // tiles of keys
};

}  // namespace falchion::sm80
