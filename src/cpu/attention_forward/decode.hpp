// src/cpu/attention_forward/decode.hpp: attention for a few query rows (decode). It is bound by memory, so K and V are
// read once, in place, without packing. The lanes of a vector are head dims here, because with so few rows a tile of 32
// rows would be mostly padding. The steps are those of cpu/attention_forward/kernel.hpp: load, S = Q K^T, score.apply,
// mask.keep, softmax.update, O += P V, store.
#pragma once

#include <math.h>

#include "cpu/attention_forward/decode_products.hpp"
#include "cpu/attention_forward/items.hpp"
#include "cpu/attention_forward/key_scales.hpp"
#include "cpu/attention_forward/page_block.hpp"
#include "cpu/attention_forward/segments.hpp"
#include "cpu/attention_forward/store.hpp"
#include "cpu/blocks/any_type.hpp"
#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/engine_simd.hpp"
#include "cpu/blocks/scales_of_q.hpp"
#include "cpu/blocks/score_mask.hpp"
#include "cpu/blocks/sum_lanes.hpp"
#include "policy/dropout.hpp"
#include "policy/score.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

inline constexpr int kDecodeRows = 8;  // the most rows, which are g * s_q of the problem
// Keys of a block. L2 holds K and V of two blocks, for all heads of the item. The fewer, the more the next rows that
// are fetched lie in the order of memory; docs/design/cpu_forward.md has numbers.
#if defined(FALCHION_LEVEL_AMX)
inline constexpr int kDecodeKeys = 32, kFetchInto = 2;  // L2
#else
inline constexpr int kDecodeKeys = 16, kFetchInto = 3;  // L1
#endif
inline constexpr int kDecodeSegment = 1024;  // keys of a segment in f32, with one addition for each key under a mask
inline constexpr int kDecodeAhead = 64;      // how many rows ahead K and V of one head are fetched, without pages

/// T: the type of O. K, V: those of K and V. Where K has 8 bits, Q has them too or is of type T. kPages: K and V lie in
/// the pages of a cache.
template <class T, class K, class V, bool kPages>
class DecodeWorker {
 public:
  using BitsK = typename K::Bits;
  using BitsV = typename V::Bits;

  DecodeWorker(const AttentionArgs& a, Arena& arena)
      : a_(a),
        width_qk_(round_up(a.d_qk, 4 * kLanes)),
        width_v_(round_up(a.d_v, 4 * kLanes)),
        dropout_(dropout_of(a)),
        segments_(kSegments<T> ? SegmentSums(a, arena, a.heads, kDecodeRows * width_v_, kDecodeSegment)
                               : SegmentSums()) {
    heads_ = arena.take<Head>(a.heads);
    q_ = arena.take<float>(a.heads * kDecodeRows * width_qk_);
    o_ = arena.take<float>(a.heads * kDecodeRows * width_v_);
    s_ = arena.take<float>(kDecodeRows * kDecodeKeys);
    dots_ = arena.take<float>(4 * kDecodeKeys);
    if constexpr (kPairs) p_ = arena.take<std::uint16_t>(kDecodeRows * kDecodeKeys);
    if constexpr (kPages) now_ = arena.take<Pages>(1);
    if constexpr (kPages) next_ = arena.take<Pages>(1);
  }

  /// All heads of the item go through the keys together. If the heads of a key are adjacent, memory is then read
  /// sequentially.
  void run(const WorkItem& item) {
    count_ = item.heads;
    for (int h = 0; h < count_; ++h) start(item, h);
    const Range visible = heads_[0].tile.visible;
    const Range keys{max(item.keys.begin, visible.begin), min(item.keys.end, visible.end)};
    if constexpr (kPages) next_->find(a_, item.sequence, keys.begin);
    for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += kDecodeKeys) {
      const int count = static_cast<int>(min(kDecodeKeys, keys.end - key0));
      if constexpr (kPages) turn_pages(item.sequence, key0 + kDecodeKeys);
      for (int h = 0; h < count_; ++h) {
        select(h);
        scores(key0, count);
        if constexpr (kScaled) scale_scores(key0, count);
        score_and_mask(key0, count);
        softmax(key0, count);
        if (kScaled && a_.cache) multiply_keys<kDecodeKeys>(a_, a_.v_scale, *tile_, key0, count, s_);
        values(key0, count);
        if constexpr (kSegments<T>) segments_.count(h, count, head_o_, l_);
      }
    }
    for (int h = 0; h < count_; ++h) {
      select(h);
      if constexpr (kSegments<T>) segments_.finish(h, head_o_, l_);
      for (int r = 0; r < tile_->count; ++r)
        finish_row<T>(a_, *tile_, r, item.part, {m_[r], l_[r], m_[r]}, head_o_ + r * width_v_);
      if (a_.probabilities.data != nullptr) store_probabilities(keys);
    }
  }

 private:
  static constexpr bool kScaled = !std::is_same_v<T, K>;
  static constexpr bool kPairs = kHasPairs && std::is_same_v<T, bf16> && std::is_same_v<K, bf16>;
  using Pages = PageBlock<kDecodeKeys>;
  struct Head {
    TileRows tile;
    float m[kDecodeRows], l[kM];
    float of_q[kScaled ? kDecodeRows : 1];  // the scales of q of 8 bits
  };

  void select(int h) {
    head_ = h;
    tile_ = &heads_[h].tile;
    m_ = heads_[h].m;
    l_ = heads_[h].l;
    head_q_ = q_ + h * kDecodeRows * width_qk_;
    head_o_ = o_ + h * kDecodeRows * width_v_;
    if (!kPages && tile_->sequence.k_len > 0) {
      first_k_ = tile_->template key_row<BitsK>(a_.k, 0);
      first_v_ = tile_->template key_row<BitsV>(a_.v, 0);
    }
  }
  void start(const WorkItem& item, int h) {
    heads_[h].tile = TileRows::of(a_, item.sequence, item.b, item.hk + h, item.rows.begin, item.rows.end);
    select(h);
    std::memset(head_q_, 0, static_cast<std::size_t>(kDecodeRows * width_qk_) * sizeof(float));
    std::memset(head_o_, 0, static_cast<std::size_t>(kDecodeRows * width_v_) * sizeof(float));
    std::memset(l_, 0, sizeof(heads_[h].l));
    segments_.reset(h);
    for (int r = 0; r < tile_->count; ++r) {
      m_[r] = -__builtin_inff();
      if constexpr (kPairs) {
        const auto bytes = static_cast<std::size_t>(a_.d_qk) * sizeof(BitsK);
        std::memcpy(head_q_ + r * width_qk_, tile_->template row<const BitsK>(a_.q, r), bytes);
        continue;
      }
      with_type<T, std::conditional_t<kScaled, Any, T>>(a_.type_q, [&](auto type) {
        using Row = decltype(type);
        convert<Row>(tile_->template row<const typename Row::Bits>(a_.q, r), a_.d_qk, head_q_ + r * width_qk_);
      });
    }
    if constexpr (kScaled) load_scales_of_q(a_, *tile_, kDecodeRows, heads_[h].of_q);
  }

  void turn_pages(const Sequence& sequence, std::int64_t next_key) {
    Pages* done = now_;
    now_ = next_;
    next_ = done;
    next_->find(a_, sequence, next_key);
  }
  FALCHION_INLINE bool exists(std::int64_t key) const { return !kPages || now_->exists[key - now_->first] != 0; }
  FALCHION_INLINE bool has_holes() const { return kPages && now_->has_holes; }
  /// Row `key` of K and of V, of the block and the head that are computed now.
  FALCHION_INLINE const BitsK* row_of_k(std::int64_t key) const {
    return kPages ? in_page<BitsK>(a_.k, key, &Pages::k) : first_k_ + key * a_.k.stride[1];
  }
  FALCHION_INLINE const BitsV* row_of_v(std::int64_t key) const {
    return kPages ? in_page<BitsV>(a_.v, key, &Pages::v) : first_v_ + key * a_.v.stride[1];
  }
  template <class Bits>
  FALCHION_INLINE const Bits* in_page(const View& x, std::int64_t key, std::int64_t (Pages::*at)[kDecodeKeys]) const {
    return static_cast<const Bits*>(x.data) + (now_->*at)[key - now_->first] + tile_->hk * x.stride[2];
  }

  /// S (rows, keys) = Q K^T. All rows share each load of K.
  void scores(std::int64_t key0, int count) {
    for (int r = 0; r < tile_->count; r += 4) {
      switch (tile_->count - r) {
        case 1: scores_of<1>(key0, count, r); break;
        case 2: scores_of<2>(key0, count, r); break;
        case 3: scores_of<3>(key0, count, r); break;
        default: scores_of<4>(key0, count, r);
      }
    }
  }
  template <int kRows>
  FALCHION_INLINE void scores_of(std::int64_t key0, int count, int r0) {
    const std::int64_t whole = kPairs ? a_.d_qk : a_.d_qk / kLanes * kLanes;
    const float* q = head_q_ + r0 * width_qk_;
    Ahead ahead = first_ahead(key0);
    for (int key = 0; key < count; ++key) {
      if (r0 == 0) fetch(&ahead);
      if (!exists(key0 + key)) {
        for (int r = 0; r < 4; ++r) dots_[key * 4 + r] = 0;
        continue;
      }
      const BitsK* k = row_of_k(key0 + key);
      Floats sum[kRows], rows[4];
      if constexpr (kPairs) {
        dots_of_pairs(k, reinterpret_cast<const BitsK*>(q), 2 * width_qk_, a_.d_qk, sum);
      } else {
        dots<K>(k, q, width_qk_, whole, sum);
      }
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) rows[r] = r < kRows ? sum[r % kRows] : splat(0.f);
      sum_lanes_of_4(rows, dots_ + key * 4);
    }
    for (int key = 0; key < count; key += kLanes)
      store_dots<kRows>(dots_ + key * 4, s_ + r0 * kDecodeKeys + key, kDecodeKeys);
    for (int r = 0; r < kRows && whole < a_.d_qk; ++r) {
      float* s = s_ + (r0 + r) * kDecodeKeys;
      for (int key = 0; key < count; ++key) {
        if (!exists(key0 + key)) continue;
        const BitsK* k = row_of_k(key0 + key);
        for (std::int64_t i = whole; i < a_.d_qk; ++i) s[key] += q[r * width_qk_ + i] * K::to_float(k[i]);
      }
    }
  }

  /// What is fetched next: a row of the keys, of one of the item's heads. If the heads are adjacent, the next block is
  /// prefetched in the order of memory, which the hardware's own prefetcher follows too. The rows of one head alone are
  /// too far apart for that prefetcher, because it does not cross pages.
  struct Ahead {
    std::int64_t row;
    int head, heads;  // the head, and how many are fetched of a row
  };
  FALCHION_INLINE Ahead first_ahead(std::int64_t key0) const {
    const bool side_by_side = count_ > 1 && a_.k.stride[2] < a_.k.stride[1];
    if (!side_by_side) return {key0 + (kPages ? kDecodeKeys : kDecodeAhead), 0, 1};
    const int before = head_ * kDecodeKeys;
    return {key0 + kDecodeKeys + before / count_, before % count_, count_};
  }
  /// Prefetches a row of K and one of V.
  FALCHION_INLINE void fetch(Ahead* ahead) const {
    const std::int64_t row = ahead->row, other = ahead->heads == 1 ? 0 : ahead->head - head_;
    if (row >= tile_->sequence.k_len) return;
    if (++ahead->head == ahead->heads) {
      ahead->head = 0;
      ++ahead->row;
    }
    const BitsK* k;
    const BitsV* v;
    if constexpr (kPages) {
      const std::int64_t at = row - next_->first;  // both are rows of the next block
      if (next_->exists[at] == 0) return;
      k = static_cast<const BitsK*>(a_.k.data) + next_->k[at] + (tile_->hk + other) * a_.k.stride[2];
      v = static_cast<const BitsV*>(a_.v.data) + next_->v[at] + (tile_->hk + other) * a_.v.stride[2];
    } else {
      k = row_of_k(row) + other * a_.k.stride[2];
      v = row_of_v(row) + other * a_.v.stride[2];
    }
    for (std::int64_t c = 0; c < a_.d_qk; c += 64 / static_cast<std::int64_t>(sizeof(BitsK)))
      __builtin_prefetch(k + c, 0, kFetchInto);
    for (std::int64_t c = 0; c < a_.d_v; c += 64 / static_cast<std::int64_t>(sizeof(BitsV)))
      __builtin_prefetch(v + c, 0, kFetchInto);
  }

  /// S times the scales of K, and of Q of 8 bits.
  void scale_scores(std::int64_t key0, int count) {
    if (!has_bytes_of_q(a_)) return multiply_keys<kDecodeKeys>(a_, a_.k_scale, *tile_, key0, count, s_);
    each_scale_of_k(a_, *tile_, key0, key0 + count, [&](std::int64_t first, std::int64_t end, float scale) {
      for (int r = 0; r < tile_->count; ++r) {
        float* s = s_ + r * kDecodeKeys - key0;
        for (std::int64_t key = first; key < end; ++key) s[key] = s[key] * heads_[head_].of_q[r] * scale;
      }
    });
  }

  void score_and_mask(std::int64_t key0, int count) {
    const TileRows& t = *tile_;
    const std::int64_t shift = t.sequence.shift(a_);
    const bool needs_asking = key0 < t.unmasked.begin || key0 + count > t.unmasked.end || a_.bias.data != nullptr ||
                              a_.mask.data != nullptr || has_holes();
    for (int r = 0; r < t.count; ++r) {
      float* s = s_ + r * kDecodeKeys;
      const ScoreMod<float> score = score_of(a_, t, r);
      if (score.only_scales()) {
        for (int key = 0; key < count; ++key) s[key] *= score.scale;
      } else {
        for (int key = 0; key < count; ++key)
          s[key] = score.apply(s[key], static_cast<float>(t.query(r) + shift - (key0 + key)));
      }
      if (!needs_asking) continue;
      for (int key = 0; key < count; ++key) {
        const std::int64_t j = key0 + key;
        s[key] = sees<T>(a_, t, r, j) ? s[key] + bias_of<T>(a_, t, r, j) : -__builtin_inff();
      }
    }
  }

  /// P = exp(S - m) in place. When the maximum rises, l and O are rescaled at once,
  /// which is cheap because O is small here.
  void softmax(std::int64_t key0, int count) {
    for (int r = 0; r < tile_->count; ++r) {
      float* s = s_ + r * kDecodeKeys;
      const int padded = static_cast<int>(round_up(count, kLanes));
      for (int key = count; key < padded; ++key) s[key] = -__builtin_inff();
      Floats highs = splat(m_[r]);  // a NaN is not higher
      for (int key = 0; key < padded; key += kLanes)
        highs = hn::IfThenElse(hn::Gt(load(s + key), highs), load(s + key), highs);
      const float high = hn::GetLane(hn::MaxOfLanes(kFloats, highs));
      const float base = high == -__builtin_inff() ? 0 : high;
      if (high > m_[r]) {
        const float shrink = ::expf(m_[r] - base);  // 0 from -inf
        shrink_row(r, shrink, head_o_, l_);
        if (segments_.begun(head_)) {
          const std::int64_t floats = kDecodeRows * width_v_;
          shrink_row(r, shrink, segments_.total(head_), segments_.total(head_) + floats);
          shrink_row(r, shrink, segments_.low(head_), segments_.low(head_) + floats);
        }
        m_[r] = high;
      }
      Floats sum = splat(0.f);
      for (int key = 0; key < padded; key += kLanes) {
        const Floats p = exp2<6>(hn::Mul(hn::Sub(load(s + key), splat(base)), splat(kLog2e)));
        sum = hn::Add(sum, p);
        store(p, s + key);
      }
      l_[r] += sum_of_lanes(sum);
      if (a_.dropout > 0) drop(r, key0, count);
    }
  }
  void shrink_row(int r, float shrink, float* O, float* l) const {
    l[r] *= shrink;
    float* o = O + r * width_v_;
    for (std::int64_t c = 0; c < width_v_; ++c) o[c] *= shrink;
  }
  bool keeps(int r, std::int64_t j) const {
    return a_.dropout == 0 || dropout_.keep(tile_->b, tile_->head(r), tile_->query(r), j);
  }
  void drop(int r, std::int64_t key0, int count) {
    float* s = s_ + r * kDecodeKeys;
    for (int key = 0; key < count; ++key) s[key] = keeps(r, key0 + key) ? s[key] * dropout_.keep_scale : 0;
  }

  /// O (rows, d_v) += P V. If every row sees every key, all rows share each load of V. Otherwise a key is added only to
  /// the rows that see it, so that a NaN in V reaches no other row.
  void values(std::int64_t key0, int count) {
    const TileRows& t = *tile_;
    const bool shared = key0 >= t.unmasked.begin && key0 + count <= t.unmasked.end && a_.bias.data == nullptr &&
                        a_.mask.data == nullptr && a_.dropout == 0 && !has_holes();
    if (!shared) {
      for (int r = 0; r < t.count; ++r) {
        for (int key = 0; key < count; ++key) {
          if (sees<T>(a_, t, r, key0 + key) && keeps(r, key0 + key))
            values_of<1>(key0 + key, 1, r, s_ + r * kDecodeKeys + key);
        }
      }
      return;
    }
    for (int r = 0; r < t.count; r += 4) {
      const float* p = s_ + r * kDecodeKeys;
      switch (t.count - r) {
        case 1: values_of<1>(key0, count, r, p); break;
        case 2: values_of<2>(key0, count, r, p); break;
        case 3: values_of<3>(key0, count, r, p); break;
        default: values_of<4>(key0, count, r, p);
      }
    }
  }
  template <int kRows>
  FALCHION_INLINE void values_of(std::int64_t key0, int count, int r0, const float* p) {
    constexpr int kWide = kLanes == 8 ? 2 : 4;  // 4 rows x kWide vectors of accumulators; AVX2 has 16 registers
    std::int64_t c = 0;
    float* o = head_o_ + r0 * width_v_;
    const auto v = [&](int key) { return row_of_v(key0 + key) + c; };
    if constexpr (kPairs) {
      for (int r = 0; r < kRows && count > 1; ++r) {
        for (int key = 0; key < count; key += kLanes)
          T::store(load(p + r * kDecodeKeys + key), p_ + r * kDecodeKeys + key);
      }
      for (; count > 1 && c + kPairColumns <= a_.d_v; c += kPairColumns)
        values_of_pairs<kRows>(p_, kDecodeKeys, count, v, o + c, width_v_);
    }
    for (; c + kWide * kLanes <= a_.d_v; c += kWide * kLanes)
      values_of_rows<V, kRows, kWide>(p, kDecodeKeys, count, v, o + c, width_v_);
    for (; c + kLanes <= a_.d_v; c += kLanes) values_of_rows<V, kRows, 1>(p, kDecodeKeys, count, v, o + c, width_v_);
    for (; c < a_.d_v; ++c) {
      float sum[kRows] = {};
      for (int key = 0; key < count; ++key) {
        const float v = V::to_float(row_of_v(key0 + key)[c]);
        for (int r = 0; r < kRows; ++r) sum[r] += p[r * kDecodeKeys + key] * v;
      }
      for (int r = 0; r < kRows; ++r) head_o_[(r0 + r) * width_v_ + c] += sum[r];
    }
  }
  void store_probabilities(Range keys) {
    clear_probabilities(a_, *tile_);
    for (std::int64_t key0 = keys.begin; key0 < keys.end; key0 += kDecodeKeys) {
      const int count = static_cast<int>(min(kDecodeKeys, keys.end - key0));
      scores(key0, count);
      score_and_mask(key0, count);
      for (int r = 0; r < tile_->count; ++r)
        weigh_keys<T>(a_, *tile_, r, key0, key0 + count, {m_[r], l_[r], m_[r]}, s_ + r * kDecodeKeys, 1);
    }
    divide_by_sums(a_, *tile_, m_);
  }

  const AttentionArgs& a_;
  std::int64_t width_qk_, width_v_;  // row strides of q_, o_
  DropoutMask dropout_;
  SegmentSums segments_;  // f32
  Head* heads_;
  float *q_, *o_, *s_, *dots_;              // q_, o_: (heads, kDecodeRows, width); s_ (kDecodeRows, kDecodeKeys)
  std::uint16_t* p_ = nullptr;              // kPairs: P of four rows
  Pages *now_ = nullptr, *next_ = nullptr;  // kPages: this block's keys and those of the next
  int count_ = 0;                           // heads of the item
  // Set by select() for the current head:
  int head_ = 0;
  TileRows* tile_ = nullptr;
  float *m_ = nullptr, *l_ = nullptr, *head_q_ = nullptr, *head_o_ = nullptr;
  const BitsK* first_k_ = nullptr;  // the row of key 0, without pages
  const BitsV* first_v_ = nullptr;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
