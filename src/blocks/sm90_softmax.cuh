// src/blocks/sm90_softmax.cuh: the online softmax of blocks/sm80_softmax.cuh where a thread has two rows of one tile,
// and the time from a score to its probability is what the tensor cores wait for.
#pragma once

#include "blocks/sm80_softmax.cuh"

namespace falchion::sm90 {

using namespace cute;

struct Softmax : sm80::OnlineSoftmax<2> {
  /// As OnlineSoftmax's, with four chains of maxima a row: one would wait for each result before the next.
  template <class Scores>
  __device__ __forceinline__ bool outgrown(const Scores& S, float c, float (&top)[2]) const {
    constexpr int kChains = 4, kColumns = decltype(size<1>(S))::value;
    static_assert(kColumns % kChains == 0);
    float chain[2][kChains];
    CUTE_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) chain[r][j % kChains] = j < kChains ? S(r, j) : fmaxf(chain[r][j % kChains], S(r, j));
    }
    bool any = false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(fmaxf(chain[r][0], chain[r][1]), fmaxf(chain[r][2], chain[r][3]));
      any |= top[r] > m[r] + kSlack / c;
    }
    return __any_sync(~0u, any);
  }
};

}  // namespace falchion::sm90
