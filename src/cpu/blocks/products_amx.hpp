// src/cpu/blocks/products_amx.hpp: the products of products.hpp on AMX tiles, for bf16 (one part) and f16 (two parts).
#pragma once

#include "cpu/blocks/amx_pack.hpp"
#include "cpu/blocks/elements.hpp"
#include "cpu/blocks/tile_block.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

template <class T>
class AmxProducts {
 public:
  using Scope = TileScope;
  static constexpr bool kFetches = true;
  // With one chunk ahead the prefetches that are issued last arrive too late: it was 9 % slower at d 64 and 2 % at d
  // 128. (On Zen 5, where two chunks of all tensors fill half of L2, f32 is 3 % faster with one.)
  static constexpr int kAhead = 2;
  static constexpr bool kBf16 = kParts<T> == 1;
  static FALCHION_INLINE Floats rounded(Floats x) { return kBf16 ? Floats{from_bf16(to_bf16(x.raw))} : x; }

  AmxProducts(Arena& arena, std::int64_t widest) : plain_(arena, widest) {
    const std::int64_t wide = round_up(max(widest, kChunk), kBlock);
    const auto take = [&](std::int64_t rows, std::int64_t depth) {
      return arena.take<std::byte>(rows * depth / (16 * kDepth) * kPartsT * kTileBytes);
    };
    for (std::byte** p : {&x_, &x_s_, &y_, &w_}) *p = take(wide, kChunk);
    s_ = take(wide, wide);
    y_turned_ = take(kBand, kChunk);
    for (std::byte*& p : p_) p = take(kBlock, kChunk);
    for (float*& block : blocks_) block = arena.take<float>(kBlock * kBlock);
  }

  Upcoming& upcoming() { return plain_.upcoming(); }
  void start() { packed_y_ = packed_w_ = {}; }

  /// Like SimdProducts::outputs(), but one block of 32 x 32 at a time, so that the tiles' operands and results are in
  /// L1.
  template <class Keep, class Done>
  void outputs(std::int64_t n, const Rows& x, const Rows& y, const Rows& w, const Rows& x_s, const State& s,
               const Keep& keep, const Done& done) {
    // If a number cannot be split into parts (split_bf16.hpp), or w is not finite, so that the zeros of P may not be
    // multiplied by it, the chunk is computed in f32, following IEEE.
    const bool packed = !w.spoiled && pack_w<true>(n, w) && pack_y(n, y) && pack_s(s, x_s.width, w.width) &&
                        pack_x(n, x, x_s, s) && scores(n, x.width, keep);
    if (!packed) return plain_.outputs(n, in_f32(n, x), in_f32(n, y), in_f32(n, w), in_f32(n, x_s), s, keep, done);
    sum_outputs(n, x_s.width, w.width, s, done);
  }

  /// Updates S and also packs it for the next outputs(), while it is in L1.
  void update(std::int64_t n, const Rows& y, const Rows& w, State* s) {
    if ((packed_y_ != Made{y.m.data, y.width} && !pack_y(n, y)) ||
        (packed_w_ != Made{w.m.data, w.width} && !pack_w<false>(n, w)))
      return plain_.update(n, in_f32(n, y), in_f32(n, w), s);
    s->packed =
        s->zero ? update_blocks<false>(n, y.width, w.width, s->m) : update_blocks<true>(n, y.width, w.width, s->m);
    s->zero = false;
    packed_s_ = s->m.data;
  }

 private:
  static constexpr int kPartsT = kParts<T>;
  static constexpr std::int64_t kBand = 2 * kBlock;  // rows of S that share operand B while it is in L1
  static_assert(kChunk == 2 * kBlock);
  using Packed = Tiles<kPartsT>;
  using Source = FloatSource<kPartsT>;
  struct Operands {  // a product A B, as deep as A
    Packed a, b;
  };
  struct Made {  // which rows an operand was packed from
    const float* data = nullptr;
    std::int64_t width = 0;
    bool operator==(const Made&) const = default;
  };

  // A block is used while the tiles compute the next one, so two buffers alternate.
  Matrix place(int turn) const { return {blocks_[turn % 2], kBlock}; }
  /// Calls use(r, c, turn) for the block at (r, c), the turn-th one, after the next block has been started.
  template <class Use>
  class OneBehind {
   public:
    explicit OneBehind(Use use) : use_(use) {}
    int turn() const { return turn_; }
    void begun(std::int64_t r, std::int64_t c) {
      end();
      r_ = r;
      c_ = c;
      ++turn_;
    }
    void end() {
      if (turn_ > 0) use_(r_, c_, turn_ - 1);
    }

   private:
    Use use_;
    std::int64_t r_ = 0, c_ = 0;
    int turn_ = 0;
  };

  // ---- the outputs -------------------------------------------------------------------------------------------------
  /// Computes P and packs it into p_. Returns false if a number is bad.
  template <class Keep>
  bool scores(std::int64_t n, std::int64_t width, const Keep& keep) {
    const Packed of_x{x_, ceil_div(width, kDepth)};
    const Packed of_y{y_, of_x.slices};
    __mmask32 bad = 0;
    OneBehind behind([&](std::int64_t r, std::int64_t c, int turn) {
      if (!keep.trivial()) keep(r, min(n, r + kBlock), c, c + kBlock, place(turn));
      bad |= pack_scores_of_block(r, c, place(turn), of_p(r));
    });
    for (std::int64_t r = 0; r < n; r += kBlock) {
      for (std::int64_t c = 0; c <= r; c += kBlock) {
        block<false>({of_x.from(r), of_y.from(c)}, {}, place(behind.turn()));
        behind.begun(r, c);
      }
    }
    behind.end();
    return bad == 0;
  }
  Packed of_p(std::int64_t r) const { return {p_[r / kBlock], r / kDepth + 1}; }
  static __mmask32 pack_scores_of_block(std::int64_t r, std::int64_t c, Matrix p, Packed to) {
    std::byte *rows0 = to.slice(c / kDepth), *rows16 = to.from(16).slice(c / kDepth);
    if (c < r)
      return pack_scores<kPartsT, -1>(p.row(0), p.ld, rows0, to.part()) |
             pack_scores<kPartsT, -1>(p.row(16), p.ld, rows16, to.part());
    return pack_scores<kPartsT, 0>(p.row(0), p.ld, rows0, to.part()) |
           pack_scores<kPartsT, 16>(p.row(16), p.ld, rows16, to.part());
  }

  template <class Done>
  void sum_outputs(std::int64_t n, std::int64_t depth, std::int64_t width, const State& s, const Done& done) {
    const Packed of_x{x_of_s_, ceil_div(depth, kDepth)};
    const Packed of_s{s_, of_x.slices};
    const Packed of_w{w_, ceil_div(n, kDepth)};
    OneBehind behind([&](std::int64_t r, std::int64_t c, int turn) {
      done(r, min(n, r + kBlock), c, min(width - c, kBlock), place(turn));
    });
    for (std::int64_t c = 0; c < width; c += kBlock) {
      for (std::int64_t r = 0; r < n; r += kBlock) {
        Operands carried;
        if (!s.zero) carried = {of_x.from(r), of_s.from(c)};
        block<false>({of_p(r), of_w.from(c)}, carried, place(behind.turn()));
        behind.begun(r, c);
      }
    }
    behind.end();
  }

  // ---- the state ---------------------------------------------------------------------------------------------------
  /// Updates S and, one block behind, packs its tiles. Returns false if a number is bad.
  template <bool kAccumulate>
  bool update_blocks(std::int64_t n, std::int64_t rows, std::int64_t cols, Matrix s) {
    const Packed of_y{y_turned_, ceil_div(n, kDepth)};
    const Packed of_w{w_, of_y.slices};
    const Packed of_s{s_, ceil_div(rows, kDepth)};
    __mmask32 bad = 0;
    OneBehind behind([&](std::int64_t r, std::int64_t c, int) {
      std::byte *columns0 = of_s.from(c).slice(r / kDepth), *columns16 = of_s.from(c + 16).slice(r / kDepth);
      bad |= pack_two_tiles<kPartsT, Order::kPairs>(Source{s}, r, c, rows, cols, columns0, columns16, of_s.part());
    });
    fetch_block(s, 0, 0);
    for (std::int64_t band = 0; band < rows; band += kBand) {
      const std::int64_t end = min(rows, band + kBand);
      turn_columns(band, end, rows, of_y);
      for (std::int64_t c = 0; c < cols; c += kBlock) {
        for (std::int64_t r = band; r < end; r += kBlock) {
          if (r + kBlock < end) {
            fetch_block(s, r + kBlock, c);
          } else if (c + kBlock < cols) {
            fetch_block(s, band, c + kBlock);
          } else if (end < rows) {
            fetch_block(s, end, 0);
          }
          block<kAccumulate>({of_y.from(r - band), of_w.from(c)}, {}, {s.row(r) + c, s.ld});
          behind.begun(r, c);
        }
      }
    }
    behind.end();
    return bad == 0;
  }
  /// Prefetches a block of S into L1, since the tiles stall until their block of S is loaded.
  static FALCHION_INLINE void fetch_block(Matrix s, std::int64_t r, std::int64_t c) {
    for (std::int64_t i = 0; i < kBlock; ++i) {
      __builtin_prefetch(s.row(r + i) + c, 1, 3);
      __builtin_prefetch(s.row(r + i) + c + kLanes, 1, 3);
    }
  }
  /// Packs columns [first, end) of Y (n, width) as rows of operand A.
  void turn_columns(std::int64_t first, std::int64_t end, std::int64_t width, Packed to) {
    const Packed of_y{y_, ceil_div(width, kDepth)};
    for (std::int64_t c = first; c < end; c += kBlock) {
      const Packed rows0 = to.from(c - first), rows16 = to.from(c - first + 16);
      for (std::int64_t s = 0; s < to.slices; ++s) {
        upcoming().long_step();
        const Packed first16 = of_y.from(s * kDepth), last16 = of_y.from(s * kDepth + 16);
        for (int p = 0; p < kPartsT; ++p)
          turn_halves(first16.slice(c / kDepth) + p * of_y.part(), last16.slice(c / kDepth) + p * of_y.part(),
                      rows0.slice(s) + p * to.part(), rows16.slice(s) + p * to.part());
      }
    }
  }

  // ---- both --------------------------------------------------------------------------------------------------------
  /// C (32, 32) = or += the sum of two products. As in AmxEngine, types of one part sum in the tiles, and the others
  /// sum from 0, small products first.
  template <bool kAccumulate>
  void block(const Operands& first, const Operands& second, Matrix c) {
    constexpr bool kFromC = kAccumulate && kPartsT == 1;
    constexpr bool kToC = !kAccumulate || kFromC;
    TileBlock sums(kToC ? c.data : blocks_[0], kToC ? c.ld : kBlock, kFromC);
    for (int i = 0; i < kProducts<T>; ++i) {
      add(first, kProduct<T>[i], &sums);
      add(second, kProduct<T>[i], &sums);
    }
    sums.store();
    if (kToC) return;
    for (int i = 0; i < kBlock; ++i) {
      for (int v = 0; v < kBlock; v += kLanes)
        store(hn::Add(load(c.row(i) + v), load(blocks_[0] + i * kBlock + v)), c.row(i) + v);
    }
  }
  struct LongSteps {  // long_step() in place of step()
    Upcoming& upcoming;
    FALCHION_INLINE void step() { upcoming.long_step(); }
  };
  FALCHION_INLINE void add(const Operands& x, Product parts, TileBlock* sums) {
    const std::byte *a = x.a.data + parts.a * x.a.part(), *b = x.b.data + parts.b * x.b.part();
    sums->add({a, b, x.a.row(), x.b.row(), x.a.slices}, LongSteps{upcoming()});
  }

  template <bool kFinite>
  bool pack_w(std::int64_t n, const Rows& w) {
    const bool packed = pack_rows<Order::kHalves, kFinite>(n, w, w_);
    packed_w_ = packed ? Made{w.m.data, w.width} : Made{};
    return packed;
  }
  bool pack_y(std::int64_t n, const Rows& y) {
    const bool packed = pack_rows<Order::kTurnedRows>(n, y, y_);
    packed_y_ = packed ? Made{y.m.data, y.width} : Made{};
    return packed;
  }
  bool pack_s(const State& s, std::int64_t rows, std::int64_t cols) {
    if (s.zero || (s.packed && packed_s_ == s.m.data)) return true;
    packed_s_ = nullptr;
    return pack_tiles<kPartsT, Order::kPairs>(Source{s.m}, rows, cols, s_, upcoming());
  }
  bool pack_x(std::int64_t n, const Rows& x, const Rows& x_s, const State& s) {
    const bool same = s.zero || (x_s.m.data == x.m.data && x_s.width == x.width);
    x_of_s_ = same ? x_ : x_s_;
    return pack_rows<Order::kRows>(n, x, x_) && (same || pack_rows<Order::kRows>(n, x_s, x_s_));
  }
  /// Returns false if a number cannot be split into parts or, with kFinite, is NaN or infinite.
  template <Order kOrder, bool kFinite = false>
  bool pack_rows(std::int64_t n, const Rows& x, std::byte* out) {
    if constexpr (kBf16) {
      const InPlaceSource<kFinite> rows{x.in_place, x.in_place_row};
      if (x.in_place != nullptr) return pack_tiles<1, kOrder>(rows, n, x.width, out, upcoming());
    }
    return pack_tiles<kPartsT, kOrder>(Source{x.m}, n, x.width, out, upcoming());
  }
  /// Converts only the rows themselves, without the zeros that Rows has past them.
  static Rows in_f32(std::int64_t n, Rows x) {
    if (x.in_place == nullptr) return x;
    float spoiled = 0;
    for (std::int64_t i = 0; i < n; ++i) spoiled += convert<bf16>(x.in_place + i * x.in_place_row, x.width, x.m.row(i));
    x.spoiled = spoiled != 0;
    x.in_place = nullptr;
    return x;
  }

  SimdProducts plain_;
  std::byte *x_, *x_s_, *y_, *w_, *s_, *p_[2];  // p_: 32 rows each
  std::byte *x_of_s_ = nullptr, *y_turned_;     // x_ or x_s_, whichever is multiplied by S; a band of Y^T
  Made packed_y_, packed_w_;                    // what y_ and w_ were packed from
  const float* packed_s_ = nullptr;             // what s_ was packed from
  float* blocks_[2];                            // (kBlock, kBlock)
};

}  // namespace falchion::cpu::FALCHION_LEVEL
