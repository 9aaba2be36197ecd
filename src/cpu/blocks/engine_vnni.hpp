// src/cpu/blocks/engine_vnni.hpp: the products of attention where q and k are of i8. S = Q K^T is made of vpdpbusd,
// which adds four products of an unsigned and a signed byte to each i32: a quarter of the instructions of f32, and
// exact. V of any type is multiplied as SimdEngine does it.
#pragma once

#include "cpu/blocks/engine_simd.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The lanes of a vector are 16 query rows, and each has four dims of its row: Q^T is (tiles, d_qk / 4, kM) words. Its
/// bytes have 128 added, which makes them unsigned and adds 128 times the sum of K's row to each sum; so sums begin at
/// -128 times that.
template <class T>
class VnniEngine : public SimdEngine<T, Any> {
  using Base = SimdEngine<T, Any>;

 public:
  VnniEngine(const AttentionArgs& a, Arena& arena, int tiles) : Base(a, arena, tiles), words_(ceil_div(a.d_qk, 4)) {
    start_ = arena.take<std::int32_t>(a.keys);
    q_ = reinterpret_cast<std::int32_t*>(Base::q_);  // a quarter of the memory for f32
    k_ = reinterpret_cast<std::int32_t*>(Base::k_);
  }

  void load_q(int tile) {
    const TileRows& t = Base::tiles_[tile];
    std::int32_t* out = q_ + tile * words_ * kM;
    for (int half = 0; half < kM; half += 16) {
      for (std::int64_t first = 0; first < words_; first += 16) {
        __m512i line[16];
        for (int i = 0; i < 16; ++i) {
          const int lane = half + i;
          const __m512i bytes = lane < t.count ? load_bytes(t.row<const std::int8_t>(Base::a_.q, lane), first * 4)
                                               : _mm512_setzero_si512();
          line[i] = _mm512_xor_si512(bytes, _mm512_set1_epi8(-128));
        }
        transpose_16x16(line);
        for (std::int64_t w = 0; w < 16 && first + w < words_; ++w)
          _mm512_storeu_si512(out + (first + w) * kM + half, line[w]);
      }
    }
  }
  void finish() {
    if (Base::has_values_) Base::values();  // before the scores, which overwrite P
    if (Base::has_scores_) scores();
    Base::has_scores_ = Base::has_values_ = false;
  }

 private:
  static constexpr int kKeys = 8;  // 16 of 32 registers are sums

  /// Up to 64 bytes of a row, from c on, and 0 past its end.
  FALCHION_INLINE __m512i load_bytes(const std::int8_t* row, std::int64_t c) const {
    const std::int64_t n = Base::a_.d_qk - c;
    return _mm512_maskz_loadu_epi8(n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1, row + c);
  }
  void load_k() {
    const Step& step = Base::scores_;
    if (step.block == Base::k_block_) return;
    Base::k_block_ = step.block;
    const TileRows& t = Base::tiles_[step.tile];
    const std::int64_t key0 = step.block * Base::a_.keys;
    for (int key = 0; key < Base::a_.keys; ++key) {
      const bool inside = key0 + key < t.sequence.k_len;
      const std::int8_t* row = inside ? t.key_row<std::int8_t>(Base::a_.k, key0 + key) : nullptr;
      __m512i sum = _mm512_setzero_si512();
      for (std::int64_t first = 0; first < words_; first += 16) {
        const __m512i bytes = inside ? load_bytes(row, first * 4) : _mm512_setzero_si512();
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), bytes);
        const std::int64_t left = words_ - first;
        const auto some = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
        _mm512_mask_storeu_epi32(k_ + key * words_ + first, some, bytes);
      }
      start_[key] = -128 * _mm512_reduce_add_epi32(sum);
    }
  }
  void scores() {
    load_k();
    const Chunk& chunk = Base::scores_;
    const std::int32_t* q = q_ + chunk.tile * words_ * kM;
    for (int key = chunk.begin; key < chunk.stop; key += kKeys)
      multiply(k_ + key * words_, start_ + key, q, Base::S_ + (key - chunk.first) * kM);
  }
  /// S of kKeys keys.
  FALCHION_INLINE void multiply(const std::int32_t* k, const std::int32_t* start, const std::int32_t* q,
                                float* S) const {
    __m512i sum[kKeys][kVecs];
#pragma GCC unroll 8
    for (int key = 0; key < kKeys; ++key) {
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) sum[key][v] = _mm512_set1_epi32(start[key]);
    }
    for (std::int64_t w = 0; w < words_; ++w, q += kM) {
      const __m512i rows[kVecs] = {_mm512_loadu_si512(q), _mm512_loadu_si512(q + 16)};
#pragma GCC unroll 8
      for (int key = 0; key < kKeys; ++key) {
        const __m512i word = _mm512_set1_epi32(k[key * words_ + w]);
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) sum[key][v] = _mm512_dpbusd_epi32(sum[key][v], rows[v], word);
      }
    }
#pragma GCC unroll 8
    for (int key = 0; key < kKeys; ++key) {
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) _mm512_storeu_ps(S + key * kM + v * 16, _mm512_cvtepi32_ps(sum[key][v]));
    }
  }

  std::int64_t words_;  // of four dims, in a row
  std::int32_t *q_, *k_, *start_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
