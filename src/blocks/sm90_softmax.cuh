// src/blocks/sm90_softmax.cuh: the online softmax of blocks/gpu_softmax.cuh for wgmma, where a thread has two rows of a
// tile. The tensor cores wait for the time from a score to its probability, so the chains of dependent instructions are
// kept short. docs/design/sm90_forward.md has the measurements.
#pragma once

#include "blocks/gpu_softmax.cuh"

namespace falchion::sm90 {

using namespace gpu;

using namespace cute;

/// The maximum of each row, as four chains of maxima side by side: in a single chain each one waits for the one before
/// it.
template <class Scores>
__device__ __forceinline__ void maxima(const Scores& S, float (&top)[2]) {
  constexpr int kChains = 4, kColumns = decltype(size<1>(S))::value;
  static_assert(kColumns % kChains == 0);
  float chain[2][kChains];
  CUTE_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) chain[r][j % kChains] = j < kChains ? S(r, j) : fmaxf(chain[r][j % kChains], S(r, j));
  }
  CUTE_UNROLL
  for (int r = 0; r < 2; ++r) top[r] = fmaxf(fmaxf(chain[r][0], chain[r][1]), fmaxf(chain[r][2], chain[r][3]));
}

struct Softmax : OnlineSoftmax<2> {
  /// To be called once for a tile, before update. kFirst: the tile has the first keys of its rows. Returns true if m
  /// was raised, and then O must be multiplied by shrink.
  template <bool kFirst, class Scores>
  __device__ __forceinline__ bool start(Scores& S, float c, float (&shrink)[2]) {
    float top[2];
    const bool raised = outgrown(S, c, top);
    if (raised) raise(top, c, shrink);
    start_update(S, c);
    return raised;
  }

 private:
  template <class Scores>
  __device__ __forceinline__ bool outgrown(const Scores& S, float c, float (&top)[2]) const {
    maxima(S, top);
    return __any_sync(~0u, top[0] > m[0] + kSlack / c || top[1] > m[1] + kSlack / c);
  }
};

/// A softmax that takes maxima only where they are needed: in the first tile, and where a score outgrows its row's m.
/// The bits of the scores tell whether one does. Of two positive floats the greater has the greater bits, so the DPX
/// instruction that takes the maximum of three integers compares two scores at once. What it makes of negative scores
/// does not matter.
///
/// It is used at d 256, where warpgroups do not take turns. There it makes 1024 keys 4 % faster, 16k full 8 % and 16k
/// causal 1 % (an H200). At d 128 it is as fast as Softmax, and at d 64 it is 2 % slower.
///
/// m of a row is raised only because of the row's own scores, never because of another row in the warp. So the bits of
/// a row's result do not depend on the rows beside it (except where scores pass 2^20, see `far`). This matters in a
/// packed batch, where the last warp of a sequence also has rows of the next one.
struct SoftmaxByBits : OnlineSoftmax<2> {
  float most[2];  // m + kSlack / c, which a score may not exceed
  int careful;    // 1: the bits do not tell, because `most` of some row is not positive or `far` is set

  /// The same as Softmax::start.
  template <bool kFirst, class Scores>
  __device__ __forceinline__ bool start(Scores& S, float c, float (&shrink)[2]) {
    const int runs = kFirst ? 1 : careful | any_above(S);
    bool raised = false;
    CUTE_NO_UNROLL
    for (int i = 0; i < runs; ++i) {  // it runs once at most; ptxas would turn an `if` into predicated instructions
      float top[2];
      if constexpr (kFirst) most[0] = most[1] = -FALCHION_INF;
      raised = outgrown(S, top);
      if (raised) raise(top, c, shrink);
      start_update(S, c);
      careful = far | __any_sync(~0u, !(most[0] > 0 && most[1] > 0));
    }
    return raised;
  }

 private:
  /// Do the bits of some score of the warp exceed those of `most`?
  template <class Scores>
  __device__ __forceinline__ int any_above(const Scores& S) const {
    int high[2] = {0, 0};
    CUTE_UNROLL
    for (int j = 0; j < size<1>(S); j += 2) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) high[r] = __vimax3_s32(high[r], __float_as_int(S(r, j)), __float_as_int(S(r, j + 1)));
    }
    return __any_sync(~0u, high[0] > __float_as_int(most[0]) || high[1] > __float_as_int(most[1]));
  }
  template <class Scores>
  __device__ __forceinline__ bool outgrown(const Scores& S, float (&top)[2]) const {
    maxima(S, top);
    return __any_sync(~0u, top[0] > most[0] || top[1] > most[1]);
  }
  /// The same as OnlineSoftmax::raise, except that it raises only the rows whose own scores ask for it.
  __device__ __forceinline__ void raise(const float (&top)[2], float c, float (&shrink)[2]) {
    bool now_far = false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float highest = over_quad(top[r], [](float x, float y) { return fmaxf(x, y); });
      const float after = highest > most[r] ? highest : m[r];
      shrink[r] = after == m[r] ? 1.f : exp2((m[r] - after) * c);
      m[r] = after;
      l[r] *= shrink[r];
      most[r] = after + kSlack / c;
      now_far |= fabsf(after * c) > 1048576.f && after != -FALCHION_INF;
    }
    far = __any_sync(~0u, now_far);
  }
};

}  // namespace falchion::sm90
