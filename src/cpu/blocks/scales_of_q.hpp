// src/cpu/blocks/scales_of_q.hpp: the scales that go with q of 8 bits. Those of q and k multiply S; that of v, which
// all keys share, multiplies O. An 8-bit cache has other rules (cpu/attention_forward/key_scales.hpp).
#pragma once

#include "args/cpu_attention_args.hpp"
#include "cpu/blocks/rows.hpp"
#include "cpu/blocks/score_mask.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

FALCHION_INLINE bool has_bytes_of_q(const AttentionCall& a) {
  return a.type_q == Number::e4m3 || a.type_q == Number::i8;
}

/// A scale of q or k as it counts: NaN unless it is 0 or above, and finite.
FALCHION_INLINE float valid_scale(float x) { return x >= 0 && x < __builtin_inff() ? x : __builtin_nanf(""); }

/// The scales of q of the rows of a tile, 1 past its last one.
FALCHION_INLINE void load_scales_of_q(const AttentionCall& a, const TileRows& t, int count, float* out) {
  for (int i = 0; i < count; ++i)
    out[i] = a.q_scale.data != nullptr && i < t.count ? valid_scale(*t.row<const float>(a.q_scale, i)) : 1.F;
}

/// f(begin, end, scale of k) for the keys [begin, end) of a sequence, by runs of keys that share it.
template <class F>
FALCHION_INLINE void each_scale_of_k(const AttentionCall& a, const TileRows& t, std::int64_t begin, std::int64_t end,
                                     const F& f) {
  const Sequence& s = t.sequence;
  if (a.k_scale.data == nullptr) return f(begin, end, 1.F);
  const auto* scales =
      static_cast<const float*>(a.k_scale.data) + s.keys.batch * a.k_scale.stride[0] + t.hk * a.k_scale.stride[2];
  if (a.k_scale_rows <= 1) return f(begin, end, valid_scale(*scales));
  const std::int64_t first = has_packed_keys(a) ? s.keys.begin / a.k_scale_rows + t.b : 0;
  while (begin < end) {
    const std::int64_t block = begin / a.k_scale_rows, stop = min(end, (block + 1) * a.k_scale_rows);
    f(begin, stop, valid_scale(scales[(first + block) * a.k_scale.stride[1]]));
    begin = stop;
  }
}

/// S^T (keys, kM) times the scales of q, one a lane, and of k.
FALCHION_INLINE void scale_scores(const AttentionCall& a, const TileRows& t, const KeySpan& keys, const float* of_q,
                                  float* S) {
  const std::int64_t end = min(keys.key0 + keys.stop, t.sequence.k_len);
  each_scale_of_k(a, t, keys.key0 + keys.begin, end, [&](std::int64_t first, std::int64_t stop, float scale) {
    for (int v = 0; v < kVecs; ++v) {
      const Floats q = load(of_q + v * kLanes), k = splat(scale);
      for (std::int64_t key = first; key < stop; ++key) {
        float* s = S + (key - keys.key0 - keys.begin) * kM + v * kLanes;
        store(hn::Mul(hn::Mul(load(s), q), k), s);
      }
    }
  });
}

/// The factor of O in the rows of a K/V head: the scale of v. 1 for a cache, whose scales have multiplied V.
FALCHION_INLINE float scale_of_o(const AttentionCall& a, const Sequence& s, std::int64_t hk) {
  if (!has_bytes_of_q(a) || a.v_scale.data == nullptr) return 1;
  return static_cast<const float*>(a.v_scale.data)[s.keys.batch * a.v_scale.stride[0] + hk * a.v_scale.stride[2]];
}

}  // namespace falchion::cpu::FALCHION_LEVEL
