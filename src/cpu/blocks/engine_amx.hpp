// src/cpu/blocks/engine_amx.hpp: the two products of attention on AMX tiles, in steps small enough to hide under
// softmax. For S^T (keys, kM) = K Q^T operand A is K as it is, and operand B is Q^T in pairs of dims. For O^T (d_v, kM)
// += V^T P^T operand A is V^T, and operand B is P^T in pairs of keys, which are two rows of S^T interleaved. A step is
// one slice of the depth of a 2 x 2 block of C tiles: 4 loads and 4 products, which take 64 cycles of the AMX unit.
// That unit works beside the vector units, so softmax calls step() every few vectors, and the core overlaps the two
// streams of instructions out of order. Where vdpbf16ps makes the products (tile_block.hpp) they do not overlap, and
// finish() does the work.
#pragma once

#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/engine_amx_blocks.hpp"
#include "cpu/blocks/step.hpp"
#include "cpu/blocks/tile_block.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

template <class T>
class AmxEngine : public AmxBlocks<T> {
  using Blocks = AmxBlocks<T>;

 public:
  using typename Blocks::Bits;
  using Cached = T;  // of K and V
  using Scope = TileScope;
  static constexpr bool kOverlap = kTileSteps, kPacked = true;
  static constexpr int kProductsT = kProducts<T>;
  using Blocks::kPartsT, Blocks::output_rows, Blocks::k_slices, Blocks::k_bytes, Blocks::v_bytes;

  AmxEngine(const AttentionArgs& a, Arena& arena, int tiles)
      : a_(a),
        slices_(k_slices(a)),
        q_bytes_(2 * kPartsT * slices_ * kTileBytes),
        k_bytes_(k_bytes(a)),
        v_bytes_(v_bytes(a)),
        k_stride_(a.h_k * k_bytes_),
        v_stride_(a.h_k * v_bytes_),
        k_in_place_(k_in_place(a)) {
    q_ = arena.take<std::byte>(tiles * q_bytes_);
    spoiled_q_ = arena.take<std::uint8_t>(tiles * kM);
    sum_ = arena.take<float>(32 * kM);
  }
  static FALCHION_INLINE std::int64_t p_floats(const AttentionArgs& a) { return a.keys * kM * kPartsT / 2; }
  static FALCHION_INLINE int chunk_keys(const AttentionArgs&) { return 64; }  // 2 x 8 KB of S in L1
  static FALCHION_INLINE int value_groups(const AttentionArgs& a) { return static_cast<int>(output_rows(a) / 32); }

  void start_item(const TileRows* tiles) {
    tiles_ = tiles;
    const std::int64_t index = block_index(a_, tiles->sequence, tiles->b, tiles->hk, 0);
    k_first_ = a_.packed_k + index * k_bytes_;
    v_first_ = a_.packed_v + index * v_bytes_;
  }
  void load_q(int tile) {  // makes (2 x 16 rows, parts, d / 32) tiles of (16 pairs of dims, 16 rows, 2)
    const TileRows& t = tiles_[tile];
    for (int half = 0; half < 2; ++half) {
      for (std::int64_t slice = 0; slice < slices_; ++slice) {
        __m512i row[kPartsT][16];
        for (int i = 0; i < 16; ++i) {
          const int lane = half * 16 + i;
          if (slice == 0) spoiled_q_[tile * kM + lane] = 0;
          __m256i low[kPartsT] = {}, high[kPartsT] = {};
          if (lane < t.count) {
            const Bits* q = t.row<const Bits>(a_.q, lane) + slice * 32;
            const std::int64_t n = a_.d_qk - slice * 32;
            if (load_pair(q, n, low, high) != 0) spoiled_q_[tile * kM + lane] = 1;
          }
          for (int p = 0; p < kPartsT; ++p) row[p][i] = join(low[p], high[p]);
        }
        for (int p = 0; p < kPartsT; ++p) {
          transpose_16x16(row[p]);
          auto* out =
              reinterpret_cast<__m512i*>(q_ + tile * q_bytes_ + ((half * kPartsT + p) * slices_ + slice) * kTileBytes);
          for (int i = 0; i < 16; ++i) _mm512_store_si512(out + i, row[p][i]);
        }
      }
    }
  }

  // ---- the products ------------------------------------------------------------------------------------------------
  void start_scores(const Chunk& chunk, float* S) {
    const std::int64_t row = kPartsT * slices_ * kTileBytes;
    const bool here = lies_whole(chunk.block);
    const std::int64_t line = here ? key_bytes() : 64;
    const std::int64_t a_row = here ? 16 * line : row;
    scores_ = {k_block(chunk) + chunk.begin / 16 * a_row,
               q_ + chunk.tile * q_bytes_,
               S,
               slices_ * kTileBytes,
               row,
               slices_,
               chunk.keys() / 32,
               line,
               here ? 64 : kTileBytes,
               a_row};
    if (values_.groups == 0) open_group<false>(scores_);
  }
  void start_values(const Step& step, const float* P, float* O, int first, int end) {
    if (first >= end) return;
    const std::int64_t slices = a_.keys / 32;
    const std::int64_t row = kPartsT * slices * kTileBytes;
    const std::int64_t start = step.first / 32 * kTileBytes;
    values_ = {v_block(step) + start + first * 2 * row,
               reinterpret_cast<const std::byte*>(P) + start,
               O + first * 32 * kM,
               slices * kTileBytes,
               row,
               (step.end - step.first) / 32,
               end - first,
               64,
               kTileBytes,
               row};
    open_group<true>(values_);
  }
  FALCHION_INLINE int steps() const {
    return static_cast<int>(values_.groups * values_.slices + scores_.groups * scores_.slices) * kProductsT;
  }
  FALCHION_INLINE void step() {
    prefetch_.step();
    if (values_.groups > 0) {
      advance<true>(values_);
    } else if (scores_.groups > 0) {
      advance<false>(scores_);
    }
  }
  /// Starts to prefetch share `index` of `count` of the next block's K and V into L2, a few lines at each step. L3
  /// delivers only a third of the rate that the products need.
  void start_prefetch(const Step& step, int index, int count) {
    const bool last = (step.block + 1) * a_.keys >= tiles_[step.tile].sequence.k_len;
    Step next = step;
    ++next.block;
    const std::int64_t k_share = (lies_whole(next.block) ? a_.keys * key_bytes() : k_bytes_) / count;
    const std::int64_t v_share = v_bytes_ / count;
    prefetch_ = {k_block(next) + index * k_share, v_block(step) + v_stride_ + index * v_share,
                 last ? 0 : (k_share > v_share ? k_share : v_share) / 128};
  }
  void finish() {
    if constexpr (!kOverlap) {
      while (values_.groups > 0) run_group<true>(values_);
      while (scores_.groups > 0) run_group<false>(scores_);
      return;
    }
    while (values_.groups > 0) advance<true>(values_);
    while (scores_.groups > 0) advance<false>(scores_);
    add_sum();
  }

  /// Stores P^T for the second product: rows key and key + 1 of 16 lanes each become 16 pairs, in each part.
  FALCHION_INLINE void put(const Step&, float* P, int key, int v, Floats p0, Floats p1) const {
    const std::int64_t slices = a_.keys / 32;
    auto* tile = reinterpret_cast<std::byte*>(P) + (v * kPartsT * slices + key / 32) * kTileBytes + key % 32 / 2 * 64;
    __m512i part[kPartsT];
    split(p0.raw, p1.raw, part);
#pragma GCC unroll 3
    for (int p = 0; p < kPartsT; ++p, tile += slices * kTileBytes) _mm512_store_si512(tile, interleave(part[p]));
  }
  float p_at(const Step&, const float* P, int key, int lane) const {
    const std::int64_t slices = a_.keys / 32;
    float sum = 0;
    for (int p = kPartsT - 1; p >= 0; --p) {
      const auto* tile = reinterpret_cast<const std::uint16_t*>(
          reinterpret_cast<const std::byte*>(P) + ((lane / 16 * kPartsT + p) * slices + key / 32) * kTileBytes);
      sum += bf16::to_float(tile[key % 32 / 2 * 32 + lane % 16 * 2 + key % 2]);
    }
    return sum;
  }
  /// Whether pack_v() replaced this element of V by 0.
  static FALCHION_INLINE bool spoiled(float x) { return kPartsT == 1 ? x - x != 0 : !has_parts(x); }
  const std::uint8_t* spoiled_values(const Step& step) const { return flags(v_block(step) + v_bytes_); }

  /// Recomputes, from the inputs themselves and following IEEE, the scores of rows and keys with a number that cannot
  /// be split into parts (has_parts()), such as a NaN or an infinity.
  void repair_scores(const Chunk& chunk, float* S) {
    if constexpr (kPartsT == 1) return;  // nothing was replaced
    const TileRows& t = tiles_[chunk.tile];
    const std::uint8_t *bad_q = spoiled_q_ + chunk.tile * kM, *bad_k = flags(k_block(chunk) + k_bytes_);
    bool any = bad_k != nullptr;
    for (int lane = 0; lane < t.count; ++lane) any |= bad_q[lane] != 0;
    if (!any) return;
    const std::int64_t key0 = chunk.block * a_.keys;
    const std::int64_t keys = min(chunk.stop, t.sequence.k_len - key0);
    for (int key = chunk.begin; key < keys; ++key) {
      for (int lane = 0; lane < t.count; ++lane) {
        if (bad_q[lane] == 0 && (bad_k == nullptr || bad_k[key] == 0)) continue;
        const Bits *q = t.row<const Bits>(a_.q, lane), *k = t.key_row<Bits>(a_.k, key0 + key);
        if (k == nullptr) continue;  // hide_holes() follows
        float sum = 0;
        for (std::int64_t c = 0; c < a_.d_qk; ++c) sum += T::to_float(q[c]) * T::to_float(k[c]);
        S[(key - chunk.begin) * kM + lane] = sum;
      }
    }
  }

 private:
  using Blocks::block_index, Blocks::flag_bytes, Blocks::join, Blocks::k_in_place, Blocks::load_pair;

  // Types of one part sum O in the tiles. The others sum each step from 0, small products first, so that a small sum
  // has small rounding errors, and then add it to O once. Summed into O directly, each of their many small products
  // would round at the magnitude of O.
  static constexpr bool kSumInTiles = kPartsT == 1;

  /// A whole group, where products do not overlap with softmax.
  template <bool kValues>
  FALCHION_INLINE void run_group(TileStream& s) {
    static_assert(kOverlap || kPartsT == 1);
    TileBlock sums(s.c, kM, kValues);
    sums.add({s.a_group, s.b_group, s.a_row, s.row, s.slices, s.a_line, s.a_slice}, prefetch_);
    sums.store();
    next_group(s);
  }
  FALCHION_INLINE void next_group(TileStream& s) {
    s.a_group += 2 * s.a_row;
    s.c += 32 * kM;
    --s.groups;
  }
  template <bool kValues>
  FALCHION_INLINE void open_group(TileStream& s) {
    if constexpr (!kOverlap) return;
    if constexpr (kValues && kSumInTiles) {
      tile_load_2x2(s.c, kM);
    } else {
      tile_zero_2x2();
    }
    s.slice = s.product = 0;
  }
  template <bool kValues>
  FALCHION_INLINE void close_group(TileStream& s) {
    float* c = s.c;
    if constexpr (kValues && !kSumInTiles) {
      add_sum();
      c = sum_;
      sum_of_ = s.c;
    }
    tile_store_2x2(c, kM);
    next_group(s);
  }
  /// Adds the last group's sum to O, one group later, when its stores from the tiles are done.
  FALCHION_INLINE void add_sum() {
    if (sum_of_ == nullptr) return;
    for (int i = 0; i < 32 * kM; i += kLanes) store(hn::Add(load(sum_of_ + i), load(sum_ + i)), sum_of_ + i);
    sum_of_ = nullptr;
  }
  template <bool kValues>
  FALCHION_INLINE void advance(TileStream& s) {
    const std::byte* a = s.a_group + s.slice * s.a_slice + kProduct<T>[s.product].a * s.part;
    const std::byte* b = s.b_group + s.slice * kTileBytes + kProduct<T>[s.product].b * s.part;
    tile_dot_2x2(a, s.a_line, s.a_row, b, s.row);
    if (++s.slice < s.slices) return;
    s.slice = 0;
    if (++s.product < kProductsT) return;
    close_group<kValues>(s);
    if (s.groups > 0) {
      open_group<kValues>(s);
    } else if (kValues && scores_.groups > 0) {
      open_group<false>(scores_);
    }
  }

  FALCHION_INLINE std::int64_t key_bytes() const { return a_.k.stride[1] * static_cast<std::int64_t>(sizeof(Bits)); }
  FALCHION_INLINE bool lies_whole(std::int64_t block) const {
    return k_in_place_ && (block + 1) * a_.keys <= tiles_->sequence.k_len;
  }
  FALCHION_INLINE const std::byte* k_block(const Step& step) const {
    if (lies_whole(step.block))
      return reinterpret_cast<const std::byte*>(tiles_->template key_row<Bits>(a_.k, step.block * a_.keys));
    return k_first_ + step.block * k_stride_;
  }
  FALCHION_INLINE const std::byte* v_block(const Step& step) const { return v_first_ + step.block * v_stride_; }
  /// The flags at the end of a packed block, or null if none is set.
  const std::uint8_t* flags(const std::byte* block_end) const {
    const auto* f = reinterpret_cast<const std::uint8_t*>(block_end - flag_bytes(a_));
    return f[a_.keys] == 0 ? nullptr : f;
  }

  const AttentionArgs& a_;
  // k_stride_ and v_stride_ are the bytes from one packed block of a head to its next one.
  std::int64_t slices_, q_bytes_, k_bytes_, v_bytes_, k_stride_, v_stride_;
  const std::byte *k_first_ = nullptr, *v_first_ = nullptr;  // block 0 of the item's head
  bool k_in_place_;
  std::byte* q_;
  std::uint8_t* spoiled_q_;
  float *sum_, *sum_of_ = nullptr;  // a finished group's sum, and its destination in O
  const TileRows* tiles_ = nullptr;
  TileStream scores_, values_;
  L2Prefetch prefetch_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
