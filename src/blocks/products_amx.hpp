// src/blocks/products_amx.hpp: the products of products.hpp on AMX tiles, for bf16 (one part) and f16 (two).
#pragma once

#include "blocks/amx_pack.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

template <class T>
class AmxProducts {
 public:
  using Scope = TileScope;
  static constexpr bool kFetches = true;
  static constexpr bool kBf16 = kParts<T> == 1;
  static FALCHION_INLINE Floats rounded(Floats x) { return kBf16 ? Floats{from_bf16(to_bf16(x.raw))} : x; }

  AmxProducts(Arena& arena, std::int64_t widest) : plain_(arena, widest) {
    const std::int64_t wide = round_up(max(widest, kChunk), kBlock);
    const auto take = [&](std::int64_t rows, std::int64_t depth) {
      return arena.take<std::byte>(rows * depth / (16 * kDepth) * kPartsT * kTileBytes);
    };
    x_ = take(kBand, wide), x_s_ = take(kBand, wide), y_turned_ = take(kBand, kChunk);
    for (std::byte*& p : p_) p = take(kBlock, kChunk);
    y_ = take(kChunk, wide), w_ = take(wide, kChunk), s_ = take(wide, wide);
    for (float*& block : blocks_) block = arena.take<float>(kBlock * kBlock);
  }

  Upcoming& upcoming() { return plain_.upcoming(); }
  void start() { packed_y_ = packed_w_ = nullptr; }

  /// As SimdProducts::outputs(), a band of rows and a block of columns at a time: what the tiles take and give is in
  /// L1.
  template <class Keep, class Done>
  void outputs(std::int64_t n, const Rows& x, const Rows& y, const Rows& w, const Rows& x_s, const State& s,
               const Keep& keep, const Done& done) {
    bool packed = !w.spoiled && pack_w<true>(n, w) && pack_y(n, y);
    if (!s.zero && !(s.packed && packed_s_ == s.m.data)) {
      packed = packed && pack_tiles<kPartsT, Order::kPairs>(Source{s.m}, x_s.width, w.width, s_, upcoming());
      packed_s_ = nullptr;
    }
    std::int64_t r = 0;
    for (; r < n; r += kBand) {
      packed = packed && pack_x(r, min(n, r + kBand), x, x_s, s) && scores_of_band(r, n, x.width, keep);
      if (!packed) break;
      outputs_of_band(r, n, x_s.width, w.width, s, done);
    }
    if (packed) return;
    // Numbers without parts (split_bf16.hpp) go the way of IEEE, and so do those of w that zeros may not touch.
    const auto rest = [&](std::int64_t, std::int64_t end, std::int64_t c, std::int64_t cols, Matrix out) {
      done(r, end, c, cols, Matrix{out.row(r), out.ld});
    };
    plain_.outputs(n, in_f32(n, x), in_f32(n, y), in_f32(n, w), in_f32(n, x_s), s, keep, rest);
  }

  /// S stays in tiles for the next outputs(), made while it is in L1.
  void update(std::int64_t n, const Rows& y, const Rows& w, State* s) {
    if ((packed_y_ != y.m.data && !pack_y(n, y)) || (packed_w_ != w.m.data && !pack_w<false>(n, w)))
      return plain_.update(n, in_f32(n, y), in_f32(n, w), s);
    const bool packed =
        s->zero ? update_blocks<false>(n, y.width, w.width, s->m) : update_blocks<true>(n, y.width, w.width, s->m);
    packed_s_ = packed ? s->m.data : nullptr;
    s->zero = false, s->packed = packed;
  }

 private:
  static constexpr int kPartsT = kParts<T>;
  static constexpr std::int64_t kBand = 2 * kBlock;  // rows that share operand B while it is in L1
  using Packed = Tiles<kPartsT>;
  using Source = FloatSource<kPartsT>;
  struct Operands {  // A B, as deep as A
    Packed a, b;
  };

  // ---- the outputs -------------------------------------------------------------------------------------------------
  // What comes out of the tiles is taken up when they are at the next block: place(0) and place(1) in turns.
  Matrix place(int turn) const { return {blocks_[turn % 2], kBlock}; }

  /// P of the rows [r, r + kBand), into p_. False where a number is bad.
  template <class Keep>
  bool scores_of_band(std::int64_t r, std::int64_t n, std::int64_t width, const Keep& keep) {
    const Packed of_x{x_, ceil_div(width, kDepth)}, of_y{y_, of_x.slices};
    __mmask32 bad = 0;
    std::int64_t before_r = -1, before_c = 0;
    int turn = 0;
    const auto take_up = [&] {
      if (before_r < 0) return;
      if (!keep.trivial()) keep(before_r, min(n, before_r + kBlock), before_c, before_c + kBlock, place(turn - 1));
      bad |= pack_scores_of_block(before_r, before_c, place(turn - 1), of_p(r, before_r));
    };
    for (std::int64_t b = r; b < min(n, r + kBand); b += kBlock) {
      for (std::int64_t c = 0; c <= b; c += kBlock) {
        block<false>({of_x.from(b - r), of_y.from(c)}, {}, place(turn));
        take_up();
        before_r = b, before_c = c, ++turn;
      }
    }
    take_up();
    return bad == 0;
  }
  Packed of_p(std::int64_t band, std::int64_t r) const { return {p_[(r - band) / kBlock], r / kDepth + 1}; }
  static __mmask32 pack_scores_of_block(std::int64_t r, std::int64_t c, Matrix p, Packed to) {
    std::byte *rows0 = to.slice(c / kDepth), *rows16 = to.from(16).slice(c / kDepth);
    if (c < r)
      return pack_scores<kPartsT, -1>(p.row(0), p.ld, rows0, to.part()) |
             pack_scores<kPartsT, -1>(p.row(16), p.ld, rows16, to.part());
    return pack_scores<kPartsT, 0>(p.row(0), p.ld, rows0, to.part()) |
           pack_scores<kPartsT, 16>(p.row(16), p.ld, rows16, to.part());
  }

  template <class Done>
  void outputs_of_band(std::int64_t r, std::int64_t n, std::int64_t depth, std::int64_t width, const State& s,
                       const Done& done) {
    const Packed of_x{x_of_s_, ceil_div(depth, kDepth)}, of_s{s_, of_x.slices}, of_w{w_, ceil_div(n, kDepth)};
    std::int64_t before_r = -1, before_c = 0;
    int turn = 0;
    const auto take_up = [&] {
      if (before_r >= 0)
        done(before_r, min(n, before_r + kBlock), before_c, min(width - before_c, kBlock), place(turn - 1));
    };
    for (std::int64_t c = 0; c < width; c += kBlock) {
      for (std::int64_t b = r; b < min(n, r + kBand); b += kBlock) {
        Operands carried;
        if (!s.zero) carried = {of_x.from(b - r), of_s.from(c)};
        block<false>({of_p(r, b), of_w.from(c)}, carried, place(turn));
        take_up();
        before_r = b, before_c = c, ++turn;
      }
    }
    take_up();
  }

  // ---- the state ---------------------------------------------------------------------------------------------------
  /// S and, behind it, its tiles; false where a number is bad.
  template <bool kAccumulate>
  bool update_blocks(std::int64_t n, std::int64_t rows, std::int64_t cols, Matrix s) {
    const Packed of_y{y_turned_, ceil_div(n, kDepth)}, of_w{w_, of_y.slices}, of_s{s_, ceil_div(rows, kDepth)};
    __mmask32 bad = 0;
    std::int64_t before_r = -1, before_c = 0;
    const auto take_up = [&] {
      if (before_r < 0) return;
      const std::int64_t slice = before_r / kDepth;
      bad |= pack_two_tiles<kPartsT, Order::kPairs>(Source{s}, before_r, before_c, rows, cols,
                                                    of_s.from(before_c).slice(slice),
                                                    of_s.from(before_c + 16).slice(slice), of_s.part());
    };
    for (std::int64_t r = 0; r < rows; r += kBand) {
      turn_columns(r, min(rows, r + kBand), rows, of_y);
      for (std::int64_t c = 0; c < cols; c += kBlock) {
        for (std::int64_t b = r; b < min(rows, r + kBand); b += kBlock) {
          block<kAccumulate>({of_y.from(b - r), of_w.from(c)}, {}, {s.row(b) + c, s.ld});
          take_up();
          before_r = b, before_c = c;
        }
      }
    }
    take_up();
    return bad == 0;
  }
  /// Columns [first, end) of Y (n, width) as rows of operand A.
  void turn_columns(std::int64_t first, std::int64_t end, std::int64_t width, Packed to) {
    const Packed of_y{y_, ceil_div(width, kDepth)};
    for (std::int64_t c = first; c < end; c += kBlock) {
      const Packed rows0 = to.from(c - first), rows16 = to.from(c - first + 16);
      for (std::int64_t s = 0; s < to.slices; ++s) {
        upcoming().step();
        const Packed first16 = of_y.from(s * kDepth), last16 = of_y.from(s * kDepth + 16);
        for (int p = 0; p < kPartsT; ++p)
          turn_halves(first16.slice(c / kDepth) + p * of_y.part(), last16.slice(c / kDepth) + p * of_y.part(),
                      rows0.slice(s) + p * to.part(), rows16.slice(s) + p * to.part());
      }
    }
  }

  // ---- both --------------------------------------------------------------------------------------------------------
  /// C (32, 32) = or += two products. Like AmxEngine: one-part types sum in the tiles, the others from 0, small
  /// products first.
  template <bool kAccumulate>
  void block(const Operands& first, const Operands& second, Matrix c) {
    constexpr bool kFromC = kAccumulate && kPartsT == 1;
    kFromC ? tile_load_2x2(c.data, c.ld) : tile_zero_2x2();
    for (int i = 0; i < kProducts<T>; ++i) sum(first, kProduct<T>[i]), sum(second, kProduct<T>[i]);
    if (!kAccumulate || kFromC) return tile_store_2x2(c.data, c.ld);
    tile_store_2x2(blocks_[0], kBlock);
    for (int i = 0; i < kBlock; ++i) {
      for (int v = 0; v < kBlock; v += kLanes)
        store(hn::Add(load(c.row(i) + v), load(blocks_[0] + i * kBlock + v)), c.row(i) + v);
    }
  }
  FALCHION_INLINE void sum(const Operands& x, Product parts) {
    const std::byte *a = x.a.data + parts.a * x.a.part(), *b = x.b.data + parts.b * x.b.part();
    const std::int64_t a_row = x.a.row(), b_row = x.b.row();
    for (const std::byte* end = a + x.a.part(); a < end; a += kTileBytes, b += kTileBytes) {
      upcoming().step();
      tile_dot_2x2(a, 64, a_row, b, b_row);
    }
  }

  template <bool kFinite>
  bool pack_w(std::int64_t n, const Rows& w) {
    packed_w_ = pack_rows<Order::kHalves, kFinite>(0, n, w, w_) ? w.m.data : nullptr;
    return packed_w_ != nullptr;
  }
  bool pack_y(std::int64_t n, const Rows& y) {
    packed_y_ = pack_rows<Order::kTurnedRows>(0, n, y, y_) ? y.m.data : nullptr;
    return packed_y_ != nullptr;
  }
  bool pack_x(std::int64_t first, std::int64_t end, const Rows& x, const Rows& x_s, const State& s) {
    const bool same = s.zero || (x_s.m.data == x.m.data && x_s.width == x.width);
    x_of_s_ = same ? x_ : x_s_;
    return pack_rows<Order::kRows>(first, end, x, x_) && (same || pack_rows<Order::kRows>(first, end, x_s, x_s_));
  }
  /// Rows [first, end). False where a number has no parts or, with kFinite, is NaN or infinite.
  template <Order kOrder, bool kFinite = false>
  bool pack_rows(std::int64_t first, std::int64_t end, const Rows& x, std::byte* out) {
    if constexpr (kBf16) {
      const std::uint16_t* rows = x.in_place;
      if (rows != nullptr)
        return pack_tiles<1, kOrder>(InPlaceSource<kFinite>{rows + first * x.in_place_row, x.in_place_row}, end - first,
                                     x.width, out, upcoming());
    }
    return pack_tiles<kPartsT, kOrder>(Source{{x.m.row(first), x.m.ld}}, end - first, x.width, out, upcoming());
  }
  static Rows in_f32(std::int64_t n, Rows x) {
    if (x.in_place == nullptr) return x;
    float spoiled = 0;
    for (std::int64_t i = 0; i < n; ++i) spoiled += convert<bf16>(x.in_place + i * x.in_place_row, x.width, x.m.row(i));
    x.spoiled = spoiled != 0, x.in_place = nullptr;
    return x;
  }

  SimdProducts plain_;
  std::byte *x_, *x_s_, *x_of_s_ = nullptr, *p_[2];  // of a band: x, x_s, that of them S meets
  std::byte *y_, *w_, *s_, *y_turned_;               // of a chunk; of a band of S
  const float *packed_y_ = nullptr, *packed_w_ = nullptr, *packed_s_ = nullptr;  // what y_, w_ and s_ were made of
  float* blocks_[2];                                                             // (kBlock, kBlock)
};

}  // namespace falchion::cpu::FALCHION_LEVEL
