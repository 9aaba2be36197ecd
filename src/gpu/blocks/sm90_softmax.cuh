// src/gpu/blocks/sm90_softmax.cuh: the online softmax of gpu/blocks/softmax.cuh for wgmma, where a thread has two rows
// of a tile. It computes no maxima while the scores stay in range. docs/design/sm90_forward.md, "Why no maxima", has
// the measurements.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/softmax.cuh"

namespace falchion::sm90 {

using namespace gpu;

using namespace cute;

/// The row of element i of a thread's part of S: two neighbouring columns of its first row, two of its second one, and
/// so on.
constexpr int row_of(int i) { return i / 2 % 2; }

/// The maximum of each row over this thread's columns, in four independent chains, to shorten the dependency. A NaN is
/// ignored; it reaches l instead.
template <class Scores>
FALCHION_DEVICE void maxima(const Scores& S, float (&top)[2]) {
  constexpr int kChains = 4, kColumns = decltype(size<1>(S))::value;
  static_assert(kColumns % kChains == 0);
  CUTE_UNROLL
  for (int r = 0; r < 2; ++r) {
    float chain[kChains];
    CUTE_UNROLL
    for (int j = 0; j < kColumns; ++j) chain[j % kChains] = j < kChains ? S(r, j) : fmaxf(chain[j % kChains], S(r, j));
    top[r] = fmaxf(fmaxf(chain[0], chain[1]), fmaxf(chain[2], chain[3]));
  }
}
/// The largest x of the four lanes that share a row.
FALCHION_DEVICE float largest_of_row(float x) {
  return over_quad(x, [](float y, float z) { return fmaxf(y, z); });
}

/// The sums of the probabilities of one tile, over this thread's columns of each of its two rows. Each has two chains
/// of additions side by side.
struct TileSums {
  float chain[2][2] = {};

  /// Sums that are above every limit.
  static FALCHION_DEVICE TileSums unknown() { return {{{FALCHION_INF, 0}, {FALCHION_INF, 0}}}; }
  FALCHION_DEVICE void add(int i, float p) { chain[row_of(i)][i % 2] += p; }
  FALCHION_DEVICE float of(int row) const { return chain[row][0] + chain[row][1]; }
};

/// The state of the two rows. While the tensor cores multiply, every other instruction takes 1.3 to 2.5 times as long,
/// so the number of instructions counts. Therefore m is left alone at first: all P of a tile are computed with the old
/// m and summed. Only if such a sum is above kMost may a P be too large; then the maxima are computed, m is raised, and
/// P is computed again from S, which is still in registers. For the first keys there is no old m, and start_tile()
/// computes the maxima.
///
/// m of a row is raised only because of the row's own scores, never because of another row in the warp. So the bits of
/// a row's result do not depend on its neighbours (except where scores pass 2^20, see `far`). This matters in a packed
/// batch, where the last warp of a sequence also has rows of the next one.
struct Softmax : SoftmaxRows<2> {
  static constexpr float kMost = 256;  // 2^8, the largest P that OnlineSoftmax allows too
  static_assert(kMost == 1 << static_cast<int>(OnlineSoftmax<2>::kSlack));
  float base[2];  // m c
  int far;        // 1: some |m c| is so large that s c - m c would lose digits
  float limit;    // no sum may be above it: kMost, or -1 if `far` is set, since no P is right then

  /// P = exp2((s - m) c) of element i of S. It is added to the sums of the tile. This takes one FFMA, one ex2 and one
  /// FADD.
  FALCHION_DEVICE float update(float s, int i, float c, TileSums& sums) const {
    const float p = exp2(fmaf(s, c, -base[row_of(i)]));
    sums.add(i, p);
    return p;
  }
  /// Whether some sum is above the limit; all lanes of the warp get the same answer. If so, the caller calls raise()
  /// and computes all P of the tile again. A NaN is not above the limit, because no other m would help its row.
  FALCHION_DEVICE bool outgrown(const TileSums& sums) const {
    return __any_sync(~0u, sums.of(0) > limit || sums.of(1) > limit);
  }
  /// Adds the sums of a tile whose P are final.
  FALCHION_DEVICE void add(const TileSums& sums) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) l[r] += sums.of(r);
  }

  /// Sets m to the maxima of the first keys.
  template <class Scores>
  FALCHION_DEVICE void start_tile(Scores&& S, float c) {
    reset();
    float top[2];
    maxima(S, top);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) m[r] = largest_of_row(top[r]);
    set_base(S, c);
  }
  /// Raises m of the rows whose sum is above the limit to the maximum so far. O must be multiplied by shrink, as l is.
  template <class Scores>
  FALCHION_DEVICE void raise(Scores&& S, const TileSums& sums, float c, float (&shrink)[2]) {
    float top[2];
    maxima(S, top);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      // Both use shuffles of the whole warp, so neither may be conditional.
      const float sum = largest_of_row(sums.of(r)), highest = largest_of_row(top[r]);
      const float after = sum > limit ? fmaxf(m[r], highest) : m[r];
      // While a row has seen no key, O and l are 0, and -inf - -inf must not turn them into NaN.
      shrink[r] = after == m[r] ? 1.f : exp2((m[r] - after) * c);
      m[r] = after;
      l[r] *= shrink[r];
    }
    set_base(S, c);
  }

 private:
  /// Computes base, far and limit from m. A row that has seen no key gets a base that makes its first P infinite, so
  /// that its m is raised. If `far` is set (by masks of -1e30 and the like), m is subtracted from S before the
  /// multiplication, which is exact where it matters.
  template <class Scores>
  FALCHION_DEVICE void set_base(Scores& S, float c) {
    bool now_far = false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      base[r] = m[r] == -FALCHION_INF ? -3.4e38f : m[r] * c;
      now_far |= fabsf(m[r] * c) > 1048576.f && m[r] != -FALCHION_INF;
    }
    far = __any_sync(~0u, now_far);
    limit = far ? -1.f : kMost;
    // This is a loop, although it runs at most once: ptxas would turn an `if` into predicated instructions.
    CUTE_NO_UNROLL
    for (int i = 0; i < far; ++i) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        base[r] = 0;
        CUTE_UNROLL
        for (int j = 0; j < size<1>(S); ++j) S(r, j) -= m[r] == -FALCHION_INF ? 0.f : m[r];
      }
    }
  }
};

}  // namespace falchion::sm90
