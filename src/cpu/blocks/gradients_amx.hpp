// src/cpu/blocks/gradients_amx.hpp: the five products of gradients_simd.hpp on AMX tiles. Operand A of S^T, dP^T, dV
// and dK is K, V, P^T and dS^T as they are; that of dQ^T is K^T, which is transposed once for each block of keys.
// Operand B of S^T and dP^T is Q^T and dO^T in pairs of dims, that of dV and dK is dO and Q in pairs of rows, and that
// of dQ^T is dS^T in pairs of keys. dV and dK are summed over the rows of four tiles at a time, because a block of them
// moves into the tile registers and back again for each sum: for one tile of rows that would take longer than its
// products.
#pragma once

#include "cpu/blocks/amx_pack.hpp"
#include "cpu/blocks/gradient_operands.hpp"
#include "cpu/blocks/tile_block.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

template <class T>
class AmxGradients : public GradientOperands<T, 4> {
  using Base = GradientOperands<T, 4>;
  using Base::a_, Base::k_, Base::v_, Base::dk_, Base::dv_, Base::q_, Base::do_;

 public:
  using Base::kGroup;
  using Scope = TileScope;
  static constexpr bool kPuts = true;
  static constexpr int kStepKeys = 256, kChunkKeys = 64;  // S and dP of a chunk take 16 KB

  AmxGradients(const AttentionBackwardArgs& a, Arena& arena) : Base(a, arena) {
    const std::int64_t keys = round_up(a.keys, kBlock), step = min(keys, kStepKeys);
    const auto take = [&](std::int64_t rows, std::int64_t depth) {
      const std::int64_t tiles = round_up(rows, kBlock) / 16 * ceil_div(depth, kDepth);
      return arena.take<std::byte>(tiles * kPartsT * kTileBytes);
    };
    turned_ = Matrix::take(arena, a.d_qk, keys);
    k_rows_ = take(keys, a.d_qk);
    v_rows_ = take(keys, a.d_v);
    k_turned_ = take(a.d_qk, keys);
    for (int i = 0; i < kGroup; ++i) {
      q_turned_[i] = take(kM, a.d_qk);
      do_turned_[i] = take(kM, a.d_v);
      q_pairs_[i] = take(a.d_qk, kM);
      do_pairs_[i] = take(a.d_v, kM);
      p_rows_[i] = take(step, kM);
      ds_rows_[i] = take(step, kM);
      ds_pairs_[i] = take(kM, kStepKeys);
    }
    if constexpr (kPartsT == 1) staged_ = arena.take<std::uint16_t>(kM * 256);
    sum_ = arena.take<float>(kBlock * kBlock);
  }
  static FALCHION_INLINE std::int64_t query_rows(const AttentionBackwardArgs& a) { return round_up(a.d_qk, kBlock); }

  void load_keys(const TileRows& of, const KeyBlock& block) {
    this->load_key_rows(of, block);
    k_bad_ = !pack_tiles<kPartsT, Order::kRows>(Source{k_}, block.count, a_.d_qk, k_rows_, upcoming_);
    v_bad_ = !pack_tiles<kPartsT, Order::kRows>(Source{v_}, block.count, a_.d_v, v_rows_, upcoming_);
    slices_ = ceil_div(block.count, kDepth);
    if (!a_.wants_q) return;
    for (std::int64_t key = 0; key < block.count; key += 16) {
      for (std::int64_t c = 0; c < a_.d_qk; c += 16)
        transpose_16x16(k_.row(key) + c, k_.ld, turned_.row(c) + key, turned_.ld);
    }
    pack_tiles<kPartsT, Order::kRows>(Source{turned_}, a_.d_qk, block.count, k_turned_, upcoming_);
  }
  void load_queries(int slot, const GradientTile& t) {
    bad_[slot] = q_bad_[slot] = do_bad_[slot] = false;
    if constexpr (kPartsT == 1) {
      this->q_spoiled_[slot] = !pack_rows(a_.q, 1, t, a_.d_qk, q_turned_[slot], q_pairs_[slot]);
      this->do_spoiled_[slot] =
          !pack_rows(a_.grad_o, a_.grad_o.stride[3], t, a_.d_v, do_turned_[slot], do_pairs_[slot]);
    } else {
      this->load_query_rows(slot, t);
      q_bad_[slot] = !pack_rows(Source{q_[slot]}, a_.d_qk, q_turned_[slot], q_pairs_[slot]);
      do_bad_[slot] = !pack_rows(Source{do_[slot]}, a_.d_v, do_turned_[slot], do_pairs_[slot]);
    }
  }

  /// The same as in SimdGradients. n and first are multiples of 32.
  void scores(int slot, int first, int n, float* S, float* dP) {
    score_blocks(k_rows_, q_turned_[slot], a_.d_qk, first, n, S);
    score_blocks(v_rows_, do_turned_[slot], a_.d_v, first, n, dP);
  }
  /// Computes S and dP again, following IEEE, if an operand has a number that cannot be split into parts.
  void repair(int slot, int first, int n, float* S, float* dP) {
    if (k_bad_ || q_bad_[slot]) multiply_rows(k_, q_[slot], a_.d_qk, first, n, S);
    if (v_bad_ || do_bad_[slot]) multiply_rows(v_, do_[slot], a_.d_v, first, n, dP);
  }
  void start_step(int first) { step_ = first; }
  bool finish_queries(int tiles, const GradientTile* tile) {
    if (kPartsT > 1) return true;
    bool spoiled = this->k_spoiled_;
    for (int i = 0; i < tiles; ++i) spoiled |= this->q_spoiled_[i] || this->do_spoiled_[i];
    for (int i = 0; spoiled && i < tiles; ++i)
      this->load_query_rows(i, tile[i]);  // the pair-by-pair fallback reads f32
    return spoiled;
  }
  /// The destination of P and dS of one tile, from one key of the step on. It is held by value, because the compiler
  /// cannot know that its writes do not alias the engine, and would reload the engine's fields for each vector.
  struct Put {
    std::byte *p_rows, *ds_rows, *ds_pairs;  // null: not needed
    unsigned first;                          // of the step
    bool* bad;

    FALCHION_INLINE void operator()(int of_chunk, int v, Floats p0, Floats p1, Floats ds0, Floats ds1) const {
      const unsigned key = first + static_cast<unsigned>(of_chunk), half = static_cast<unsigned>(v);
      __m512i part[kPartsT];
      if (p_rows != nullptr) {
        split(p0.raw, p1.raw, part);
        put_rows(part, p_rows, key, half);
      }
      split(ds0.raw, ds1.raw, part);
      if (ds_rows != nullptr) put_rows(part, ds_rows, key, half);
      if (ds_pairs != nullptr) {
        std::byte* tile = ds_pairs + (half * kPartsT * kSlices + key / unsigned{kDepth}) * kTileBytes +
                          key % unsigned{kDepth} / 2 * 64;
#pragma GCC unroll 3
        for (int p = 0; p < kPartsT; ++p, tile += kSlices * kTileBytes) _mm512_store_si512(tile, interleave(part[p]));
      }
      if constexpr (kPartsT > 1)
        *bad |= (too_large(p0.raw) | too_large(p1.raw) | too_large(ds0.raw) | too_large(ds1.raw)) != 0;
    }
  };
  FALCHION_INLINE Put put(int slot, int first) {
    return {a_.wants_kv ? p_rows_[slot] : nullptr, a_.wants_kv ? ds_rows_[slot] : nullptr,
            a_.wants_q ? ds_pairs_[slot] : nullptr, static_cast<unsigned>(first - step_), &bad_[slot]};
  }
  void put_nothing(int slot, int first, int end) {
    const Floats zero = splat(0.F);
    const Put put_zero = put(slot, first);
    for (int key = 0; key < end - first; key += 2) {
      for (int v = 0; v < kVecs; ++v) put_zero(key, v, zero, zero, zero, zero);
    }
  }

  /// The same as in SimdGradients, for `tiles` tiles. Masked pairs, and NaN or Inf, which cannot be split into bf16
  /// parts, are multiplied one pair at a time.
  template <class Buffers, class Seen, class Kept>
  void products(int tiles, int first, int end, bool masked, bool dropped, const Buffers& x, const Seen& seen,
                const Kept& kept) {
    bool v_by_pairs = false, k_by_pairs = false;
    for (int i = 0; i < tiles; ++i) {
      v_by_pairs |= bad_[i] || do_bad_[i] || (this->do_spoiled_[i] && (masked || dropped));
      k_by_pairs |= bad_[i] || q_bad_[i] || (this->q_spoiled_[i] && masked);
    }
    if (a_.wants_kv && !v_by_pairs) sum_rows(tiles, p_rows_, do_pairs_, first, end, a_.d_v, dv_);
    if (a_.wants_kv && !k_by_pairs) sum_rows(tiles, ds_rows_, q_pairs_, first, end, a_.d_qk, dk_);
    for (int i = 0; i < tiles; ++i) {
      const auto seen_here = [&](int lane, int key) { return seen(i, lane, key); };
      const auto kept_here = [&](int lane, int key) { return kept(i, lane, key); };
      if (a_.wants_kv && v_by_pairs) this->add_seen_rows(x.P(i, first), do_[i], first, end, a_.d_v, dv_, kept_here);
      if (a_.wants_kv && k_by_pairs) this->add_seen_rows(x.dS(i, first), q_[i], first, end, a_.d_qk, dk_, seen_here);
      if (!a_.wants_q) continue;
      if (bad_[i] || k_bad_ || (this->k_spoiled_ && masked)) {
        this->add_seen_queries(x.dS(i, first), first, end, x.dQ(i), seen_here);
      } else {
        sum_queries(i, first, end, x.dQ(i));
      }
      bad_[i] = false;
    }
  }

 private:
  static constexpr int kPartsT = kParts<T>;
  using Packed = Tiles<kPartsT>;
  using Source = FloatSource<kPartsT>;
  static constexpr unsigned kSlices = kStepKeys / kDepth;  // space in ds_pairs_

  /// Packs 32 rows as operand B of two products: transposed, and in pairs of rows. Returns false if a number is bad.
  template <class Rows>
  bool pack_rows(const Rows& rows, std::int64_t d, std::byte* turned, std::byte* pairs) {
    const bool good = pack_tiles<kPartsT, Order::kTurnedRows>(rows, kM, d, turned, upcoming_);
    if (a_.wants_kv) pack_tiles<kPartsT, Order::kPairs>(rows, kM, d, pairs, upcoming_);
    return good;
  }
  /// The same for bf16 rows in the caller's memory. They go through a copy, because the rows of a tile may be those of
  /// several heads, and because rows that see no key are 0.
  bool pack_rows(const View& from, std::int64_t stride, const GradientTile& t, std::int64_t d, std::byte* turned,
                 std::byte* pairs) {
    constexpr std::int64_t kRow = 256;
    for (int i = 0; i < kM; ++i) {
      std::uint16_t* row = staged_ + i * kRow;
      const auto* x = t.has_row(i) ? t.template row<const std::uint16_t>(from, i) : nullptr;
      for (std::int64_t c = 0; c < d; c += 32) {
        if (x != nullptr && stride != 1) {
          for (std::int64_t e = c; e < min(d, c + 32); ++e) row[e] = x[e * stride];
          continue;
        }
        const __mmask32 there = x == nullptr ? 0 : d - c >= 32 ? ~0U : (1U << (d - c)) - 1;
        _mm512_store_si512(row + c, _mm512_maskz_loadu_epi16(there, x + c));
      }
    }
    return pack_rows(InPlaceSource<true>{staged_, kRow}, d, turned, pairs);
  }
  static FALCHION_INLINE __mmask16 too_large(__m512 x) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(kPartsBelow), _CMP_NLT_UQ);
  }
  /// Stores one vector of rows of keys `key` and key + 1 as operand A: its rows are keys.
  static FALCHION_INLINE void put_rows(const __m512i (&part)[kPartsT], std::byte* to, unsigned key, unsigned v) {
    std::byte* row = to + key / 16 * kPartsT * kTileBytes + key % 16 * 64 + v * 32;
#pragma GCC unroll 3
    for (int p = 0; p < kPartsT; ++p, row += kTileBytes) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(row), _mm512_castsi512_si256(part[p]));
      _mm256_store_si256(reinterpret_cast<__m256i*>(row + 64), _mm512_extracti64x4_epi64(part[p], 1));
    }
  }

  /// f16 has one product more here than elsewhere, that of the two small parts. Without it S and dP have errors of up
  /// to 2^-16, and G = P (dP - D) is the difference of two numbers that may be nearly equal.
  static constexpr int kScoreProducts = std::is_same_v<T, f16> ? 4 : kProducts<T>;
  static constexpr Product score_product(int i) {
    if constexpr (std::is_same_v<T, f16>) return i == 0 ? Product{1, 1} : kProduct<f16>[i - 1];
    return kProduct<T>[i];
  }

  /// C (32, 32) = or += the sum over the products of parts, each added by add(parts, sums). As in AmxProducts,
  /// types of one part sum in the tiles, and the others sum from 0, small products first.
  template <bool kAccumulate, class Add>
  FALCHION_INLINE void block(const Add& add, float* c, std::int64_t ld) {
    constexpr bool kFromC = kAccumulate && kPartsT == 1, kToC = !kAccumulate || kFromC;
    constexpr int kSums = kAccumulate ? kProducts<T> : kScoreProducts;
    TileBlock sums(kToC ? c : sum_, kToC ? ld : kBlock, kFromC);
    for (int i = 0; i < kSums; ++i) add(kAccumulate ? kProduct<T>[i] : score_product(i), &sums);
    sums.store();
    if (kToC) return;
    for (int i = 0; i < kBlock; ++i) {
      for (int v = 0; v < kBlock; v += kLanes)
        store(hn::Add(load(c + i * ld + v), load(sum_ + i * kBlock + v)), c + i * ld + v);
    }
  }
  void score_blocks(std::byte* rows, std::byte* turned, std::int64_t depth, int first, int n, float* S) {
    const Packed of_rows{rows, ceil_div(depth, kDepth)}, of_turned{turned, of_rows.slices};
    for (int key = first; key < first + n; key += kBlock) {
      const auto add = [&](Product parts, TileBlock* sums) {
        const std::byte* x = of_rows.from(key).data + parts.a * of_rows.part();
        const std::byte* y = of_turned.data + parts.b * of_turned.part();
        sums->add({x, y, of_rows.row(), of_turned.row(), of_rows.slices});
      };
      block<false>(add, S + (key - first) * kM, kM);
    }
  }
  /// Adds X Y to rows [first, end) of C, where X is P^T or dS^T and Y is dO or Q of all tiles of the group.
  void sum_rows(int tiles, std::byte* const* x, std::byte* const* y, int first, int end, std::int64_t width,
                Matrix to) {
    constexpr std::int64_t kRow = kPartsT * kTileBytes;  // bytes from 16 keys, or from 16 columns, to the next ones
    for (std::int64_t c = 0; c < width; c += kBlock) {
      for (int key = first; key < end; key += kBlock) {
        const auto add = [&](Product parts, TileBlock* sums) {
          for (int i = 0; i < tiles; ++i)
            sums->add({x[i] + (key - step_) / 16 * kRow + parts.a * kTileBytes,
                       y[i] + c / 16 * kRow + parts.b * kTileBytes, kRow, kRow, 1});
        };
        block<true>(add, to.row(key) + c, to.ld);
      }
    }
  }
  /// dQ^T (d_qk, kM) += K^T dS^T over the keys [first, end).
  void sum_queries(int slot, int first, int end, float* dQ) {
    const Packed of_k{k_turned_, slices_}, of_ds{ds_pairs_[slot], kSlices};
    for (std::int64_t c = 0; c < a_.d_qk; c += kBlock) {
      const auto add = [&](Product parts, TileBlock* sums) {
        const std::byte* x = of_k.from(c).data + parts.a * of_k.part() + first / kDepth * kTileBytes;
        const std::byte* y = of_ds.data + parts.b * of_ds.part();
        sums->add({x, y, of_k.row(), of_ds.row(), (end - first) / kDepth});
      };
      block<true>(add, dQ + c * kM, kM);
    }
  }
  /// S (keys, kM) = X Y^T, number by number.
  static void multiply_rows(Matrix x, Matrix y, std::int64_t d, int first, int n, float* S) {
    for (int key = 0; key < n; ++key) {
      for (int i = 0; i < kM; ++i) {
        float sum = 0;
        for (std::int64_t c = 0; c < d; ++c) sum += x.row(first + key)[c] * y.row(i)[c];
        S[key * kM + i] = sum;
      }
    }
  }

  std::int64_t slices_ = 0;          // of the depth, in K^T of the current block
  int step_ = 0;                     // the first key of the step
  Matrix turned_;                    // K^T (d_qk, keys), to be packed into k_turned_
  std::uint16_t* staged_ = nullptr;  // 32 rows of bf16, to be packed into tiles
  std::byte *k_rows_, *v_rows_, *k_turned_;
  std::byte *q_turned_[kGroup], *do_turned_[kGroup], *q_pairs_[kGroup], *do_pairs_[kGroup];
  std::byte *p_rows_[kGroup], *ds_rows_[kGroup], *ds_pairs_[kGroup];  // P and dS of one step
  float* sum_;                                                        // (32, 32)
  // Whether a number cannot be split into parts: in K, V, Q, dO, and in P or dS of the step.
  bool k_bad_ = false, v_bad_ = false, q_bad_[kGroup] = {}, do_bad_[kGroup] = {}, bad_[kGroup] = {};
  Upcoming upcoming_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
