// src/blocks/sm90_softmax.cuh: the online softmax of blocks/gpu_softmax.cuh where a thread has two rows of one tile,
// and the time from a score to its probability is what the tensor cores wait for.
#pragma once

#include "blocks/gpu_softmax.cuh"

namespace falchion::sm90 {

using namespace gpu;

using namespace cute;

/// The maximum of each row, in four chains: one would wait for each result before the next.
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
  /// To be called once before update. kFirst: these are the first keys. true: m was raised, O is to be multiplied by
  /// shrink.
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

/// At d 256, where a warpgroup has nobody to take turns with, by bits: 1024 keys + 4 %, 16k full + 8 %, 16k causal
/// + 1 % (an H200); at d 128 as fast as the above, at d 64 2 % slower.
/// Maxima are looked for only where they are needed: in the first tile, and where a score outgrows its row's m. Whether
/// one does is asked of the bits: a positive float is greater than another if its bits are, so the DPX instruction that
/// takes the maximum of three integers asks two scores at once; what it makes of negative ones does not matter.
/// A row's m is raised when its own scores ask for it, never because of another row in the warp: so a row's bits do not
/// depend on what stands beside it (but where scores pass 2^20, see `far`), as in a packed batch, where the last warp
/// of a sequence also has rows of the next.
struct SoftmaxByBits : OnlineSoftmax<2> {
  float most[2];  // m + kSlack / c: what a score may be
  int careful;    // 1: some row may have no positive score, or `far`: bits do not tell

  /// As Softmax's.
  template <bool kFirst, class Scores>
  __device__ __forceinline__ bool start(Scores& S, float c, float (&shrink)[2]) {
    const int runs = kFirst ? 1 : careful | any_above(S);
    bool raised = false;
    CUTE_NO_UNROLL
    for (int i = 0; i < runs; ++i) {  // once at most, as all loops of this kind: of an if ptxas makes predicates
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
  /// As OnlineSoftmax's, but row by row.
  __device__ __forceinline__ void raise(const float (&top)[2], float c, float (&shrink)[2]) {
    bool now_far = false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float highest = over_quad(top[r], [](float x, float y) { return fmaxf(x, y); });
      const float after = highest > most[r] ? highest : m[r];
      shrink[r] = after == m[r] ? 1.f : exp2((m[r] - after) * c);
      m[r] = after, l[r] *= shrink[r], most[r] = after + kSlack / c;
      now_far |= fabsf(after * c) > 1048576.f && after != -FALCHION_INF;
    }
    far = __any_sync(~0u, now_far);
  }
};

}  // namespace falchion::sm90
