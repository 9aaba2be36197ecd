// src/sm90/attention_forward/decode/products.cuh: what a consumer warp does with its 16 keys of a stage: S^T = K Q^T,
// the softmax, O^T += V^T P^T. The letters are those of docs/notation.md.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/lane_blocks.hpp"
#include "gpu/blocks/mma.cuh"
#include "gpu/blocks/sm90_tma.cuh"
#include "gpu/blocks/softmax.cuh"
#include "policy/cache.hpp"
#include "sm90/attention_forward/decode/cached_tile.cuh"
#include "sm90/attention_forward/decode/new_keys.cuh"
#include "sm90/attention_forward/decode/scales.cuh"
#include "sm90/attention_forward/decode/walk.cuh"

namespace falchion::sm90 {

/// Transposes a matrix of 8 x 8 elements of 16 bits that a warp holds, two a lane.
FALCHION_DEVICE std::uint32_t transposed(std::uint32_t x) {
  std::uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

/// 2^((x - m) c). The difference comes first, because for large m it is exact and x c - m c is not. Where no key was
/// seen, m is -inf, and so are all x that are no NaN.
FALCHION_DEVICE float power_below(float x, float m, float c) { return exp2((x - (m == -FALCHION_INF ? 0.f : m)) * c); }

/// The rows of one warp. A lane has rows 2 (lane % 4) and the next one of each 8, and with these keys lane / 4 and 8
/// further of S, and the same of head dims of O.
template <class Config>
class DecodeRows {
  static constexpr int kBlocks = Config::kBlocks, kPieces = Config::kPieces, kSteps = Config::kD / 16;
  static constexpr int kOfWarp = 16 * kPieces;  // keys of a tile
  using Scores = float[kPieces][kBlocks][4];
  using Scales = DecodeKeyScales[kPieces];
  using Element = typename Config::Element;
  using Factor = typename Config::Factor;
  using Tile = CachedTile<Config>;

 public:
  const DecodeWarp<Config> place;
  Sums o[kSteps][kBlocks];             // O^T: (16 head dims, 8 rows) each
  float m[kBlocks][2], l[kBlocks][2];  // l: of this lane's keys

  FALCHION_DEVICE DecodeRows(const AttentionArgs& a, const Divisors& by, const DecodeWalk<Config>& walk,
                             typename Config::Shared& shared)
      : a(a), by(by), c(a.scale * kLog2e), scales(a, walk, c) {
    if constexpr (Config::kPages) {
      keys = KeyRows::of(a.pages, walk.b, 0, walk.sequence.k_begin);
      k_length = walk.sequence.k_length;
    }
    clear();
    if (a.rotation.dim > 0) {
      rotate_q(walk, shared);
      load_q(walk, [&](int row, int, int) { return rotated_rows(shared) + row * Config::kD; });
    } else {
      const Rows rows = rows_of_q(a, walk.b);
      load_q(walk, [&](int, int query, int head) { return row_of_q(rows, query, head); });
    }
    if constexpr (Config::kScaled) fit_q();
    const int last = max(walk.rows, 1) - 1;
    unmasked = walk.sequence.all_see(by.group.div(walk.row0), by.group.div(walk.row0 + last) + 1);
  }

  /// Looks this lane's key of tile t up, of the warp's. Keys past the sequence are masked anyway.
  FALCHION_DEVICE KeyRows::Look look_up(int t) const {
    if constexpr (!Config::kPages) return {};
    const int key = t * Config::kKeys + place.slice * kOfWarp + static_cast<int>(threadIdx.x) % kOfWarp;
    return key < k_length ? keys.look(key) : KeyRows::Look{};
  }
  /// The products with this warp's keys of tile t, which lies in a stage. found: by look_up(t).
  FALCHION_DEVICE void multiply(const DecodeWalk<Config>& walk, const typename Config::Shared& shared, int stage, int t,
                                const KeyRows::Look& found) {
    const int lane = static_cast<int>(threadIdx.x) % 32, line0 = place.slice * kOfWarp,
              key0 = t * Config::kKeys + line0;
    const std::uint32_t lines = cute::cast_smem_ptr_to_uint(shared.k_v[stage][0]) + line0 * Tile::kLine;
    Scales of_keys;
    if constexpr (Config::kScaled) {
      CUTE_UNROLL
      for (int i = 0; i < kPieces; ++i) of_keys[i] = scales.of(shared, stage, line0 + 16 * i + lane / 4);
    }
    Scores s;
    multiply_k_q(Tile::of_k(lane, lines), s);  // S^T = K Q^T
    if constexpr (Config::kScaled) scale(of_keys, s);
    if (key0 < unmasked.begin || key0 + kOfWarp > unmasked.end) keep_band(walk, key0 + lane / 4, s);  // mask.keep
    if constexpr (Config::kPages) hide_holes(keys.exists(found), s);
    std::uint32_t p[kPieces][kBlocks][2];
    update(s, of_keys, p);                                          // P = e^(scale S - m)
    multiply_v_p(Tile::of_v(lane, lines + Config::kTileBytes), p);  // O^T += V^T P^T
  }

  /// Sums l over the lanes of a row.
  FALCHION_DEVICE void finish() {
    CUTE_UNROLL
    for (auto& of_block : l) {
      CUTE_UNROLL
      for (float& x : of_block) {
        CUTE_UNROLL
        for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(~0u, x, step);
      }
    }
  }

 private:
  FALCHION_DEVICE void clear() {
    CUTE_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      m[b][0] = m[b][1] = -FALCHION_INF;
      l[b][0] = l[b][1] = 0;
      CUTE_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        CUTE_UNROLL
        for (float& x : o[i][b]) x = 0;
      }
    }
  }
  /// Q^T as operand B: of row lane / 4 of each 8, twice two head dims of each 16. Rows past the last one and head dims
  /// past d_qk are 0.
  template <class RowOf>
  FALCHION_DEVICE void load_q(const DecodeWalk<Config>& walk, const RowOf& row_of) {
    const int lane = static_cast<int>(threadIdx.x) % 32, d = static_cast<int>(a.d_qk);
    CUTE_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const int in_tile = place.row0(b) + lane / 4, row = walk.row0 + in_tile;
      const bool exists = in_tile < walk.rows;
      const int query = by.group.div(row), head = row - query * a.group + walk.head_k * a.group;
      const Element* const from = row_of(in_tile, query, head);
      CUTE_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        CUTE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int column = i * 16 + Tile::column_of_q(lane, half);
          q[i][b][half] = exists && column < d ? *reinterpret_cast<const std::uint32_t*>(from + column) : 0;
        }
      }
    }
  }

  /// 8-bit caches: Q in f16, which K becomes as well. A row of bf16 is brought to a largest number of 2^14 or a little
  /// more by a power of two. That is exact for all numbers down to 2^-31 of the largest one.
  FALCHION_DEVICE void fit_q() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    CUTE_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      power[b][0] = power[b][1] = 1;
      if constexpr (std::is_same_v<Element, Factor>) continue;
      float top = 0;
      each_word_of_q(b, [&](std::uint32_t& word) {
        top = fmaxf(top, fmaxf(fabsf(number_of<Element>(word, 0)), fabsf(number_of<Element>(word, 1))));
      });
      top = over_quad(top, [](float x, float y) { return fmaxf(x, y); });
      const std::uint32_t exponent = max(__float_as_uint(top) >> 23, 15U);  // with its bias of 127
      const float up = __uint_as_float((268 - exponent) << 23), down = __uint_as_float((exponent - 14) << 23);
      each_word_of_q(b, [&](std::uint32_t& word) {
        word = round_pair<Factor>(number_of<Element>(word, 0) * up, number_of<Element>(word, 1) * up);
      });
      CUTE_UNROLL
      for (int j = 0; j < 2; ++j) power[b][j] = __shfl_sync(~0u, down, (lane % 4 * 2 + j) * 4);
    }
  }
  template <class Do>
  FALCHION_DEVICE void each_word_of_q(int b, const Do& one) {
    CUTE_UNROLL
    for (auto& of_step : q) {
      CUTE_UNROLL
      for (std::uint32_t& word : of_step[b]) one(word);
    }
  }

  FALCHION_DEVICE const Element* row_of_q(const Rows& rows, int query, int head) const {
    return static_cast<const Element*>(a.q.data) + rows.batch * a.q.stride[0] + (rows.begin + query) * a.q.stride[1] +
           head * a.q.stride[2];
  }
  /// The rotated rows of the tile. They take the place of the sums, which nobody needs yet.
  static FALCHION_DEVICE Element* rotated_rows(typename Config::Shared& shared) {
    static_assert(sizeof(shared.sums) >= std::size_t{2} * Config::kRows * Config::kD);
    return reinterpret_cast<Element*>(&shared.sums);
  }
  /// All consumers together: each turns some pairs of columns.
  FALCHION_DEVICE void rotate_q(const DecodeWalk<Config>& walk, typename Config::Shared& shared) {
    constexpr int kPairs = Config::kD / 2;
    const Rows rows = rows_of_q(a, walk.b);
    const std::int64_t first = DecodeNewKeys::first_of(walk.sequence);
    auto* const to = reinterpret_cast<std::uint32_t*>(rotated_rows(shared));
    sync_threads<Config::kConsumers>(kOfSums);  // the sums of a segment before have been read
    for (int i = static_cast<int>(threadIdx.x); i < walk.rows * kPairs; i += Config::kConsumers) {
      const int row = i / kPairs, column = i % kPairs * 2;
      const int query = by.group.div(walk.row0 + row), head = walk.row0 + row - query * a.group + walk.head_k * a.group;
      if (column < a.d_qk) to[i] = rotated_pair(row_of_q(rows, query, head), column, a.rotation, first + query);
    }
    sync_threads<Config::kConsumers>(kOfSums);
  }

  FALCHION_DEVICE void multiply_k_q(const LaneBlocks& k, Scores& s) const {
    constexpr int kChains = kBlocks == 1 ? 2 : 1;  // products that need not wait for each other
    Sums sums[kPieces][kBlocks][kChains] = {};
    Tile::each_of_k(k, [&](int i, int piece, const Block& block) {
      CUTE_UNROLL
      for (int b = 0; b < kBlocks; ++b)
        multiply_add<Factor>(sums[piece][b][i % kChains], block, q[i][b][0], q[i][b][1]);
    });
    CUTE_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      CUTE_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        CUTE_UNROLL
        for (int e = 0; e < 4; ++e) s[i][b][e] = sums[i][b][0][e] + (kChains == 2 ? sums[i][b][kChains - 1][e] : 0.f);
      }
    }
  }
  /// S of Q's own numbers and K's.
  FALCHION_DEVICE void scale(const Scales& of_keys, Scores& s) const {
    CUTE_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      CUTE_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        CUTE_UNROLL
        for (int e = 0; e < 4; ++e) s[i][b][e] = s[i][b][e] * power[b][e % 2] * of_keys[i].k[e / 2];
      }
    }
  }
  /// key: that of this lane's first element.
  FALCHION_DEVICE void keep_band(const DecodeWalk<Config>& walk, int key, Scores& s) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    CUTE_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      CUTE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int query = by.group.div(walk.row0 + place.row0(b) + lane % 4 * 2 + e % 2);
        CUTE_UNROLL
        for (int i = 0; i < kPieces; ++i) {
          if (!walk.sequence.sees(query, key + 16 * i + e / 2 * 8)) s[i][b][e] = -FALCHION_INF;
        }
      }
    }
  }
  /// S = -inf at keys of pages that are not there.
  FALCHION_DEVICE static void hide_holes(bool there, Scores& s) {
    const unsigned exist = __ballot_sync(~0u, there) >> static_cast<int>(threadIdx.x) % 32 / 4;
    if (exist == ~0u >> static_cast<int>(threadIdx.x) % 32 / 4) return;
    CUTE_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      CUTE_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        CUTE_UNROLL
        for (int e = 0; e < 4; ++e) s[i][b][e] = (exist >> (16 * i + e / 2 * 8) & 1U) != 0 ? s[i][b][e] : -FALCHION_INF;
      }
    }
  }
  /// P from the scores, and m, l and O for it. P of 8-bit caches is P times the scale of V.
  FALCHION_DEVICE void update(const Scores& s, const Scales& of_keys, std::uint32_t (&p)[kPieces][kBlocks][2]) {
    CUTE_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      float x[kPieces][4], shrink[2];
      CUTE_UNROLL
      for (int j = 0; j < 2; ++j) {
        float top = -FALCHION_INF;  // fmaxf ignores a NaN, which reaches l instead
        CUTE_UNROLL
        for (int i = 0; i < kPieces; ++i) {
          if constexpr (Config::kScaled) {
            top = fmaxf(top, fmaxf(s[i][b][j] + of_keys[i].lift[0], s[i][b][2 + j] + of_keys[i].lift[1]));
          } else {
            top = fmaxf(s[i][b][j], s[i][b][2 + j]);
          }
        }
        CUTE_UNROLL
        for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
        top = fmaxf(top, m[b][j]);
        shrink[j] = power_below(m[b][j], top, c);
        m[b][j] = top;
        l[b][j] *= shrink[j];
        CUTE_UNROLL
        for (int i = 0; i < kPieces; ++i) {
          x[i][j] = power_below(s[i][b][j], top, c);
          x[i][2 + j] = power_below(s[i][b][2 + j], top, c);
          l[b][j] = l[b][j] + x[i][j] + x[i][2 + j];
        }
      }
      // Where m stays, which it mostly does, O needs no product.
      if (!Config::kScaled || __any_sync(~0u, shrink[0] != 1 || shrink[1] != 1)) {
        CUTE_UNROLL
        for (int i = 0; i < kSteps; ++i) {
          CUTE_UNROLL
          for (int e = 0; e < 4; ++e) o[i][b][e] *= shrink[e % 2];
        }
      }
      CUTE_UNROLL
      for (int i = 0; i < kPieces; ++i) {
        if constexpr (Config::kScaled) {
          CUTE_UNROLL
          for (int e = 0; e < 4; ++e)
            x[i][e] = x[i][e] == 0 ? 0 : x[i][e] * of_keys[i].v[e / 2];  // a key that is not seen may have NaN
        }
        p[i][b][0] = transposed(round_pair<Factor>(x[i][0], x[i][1]));
        p[i][b][1] = transposed(round_pair<Factor>(x[i][2], x[i][3]));
      }
    }
  }
  FALCHION_DEVICE void multiply_v_p(const LaneBlocks& v, const std::uint32_t (&p)[kPieces][kBlocks][2]) {
    Tile::each_of_v(v, [&](int i, int piece, const Block& block) {
      CUTE_UNROLL
      for (int b = 0; b < kBlocks; ++b) multiply_add<Factor>(o[i][b], block, p[piece][b][0], p[piece][b][1]);
    });
  }

  const AttentionArgs& a;
  const Divisors& by;
  const float c;  // one unit of S in the exponent of 2
  std::conditional_t<Config::kScaled, DecodeScales<Config>, NoDecodeScales> scales;
  std::uint32_t q[kSteps][kBlocks][2];
  float power[kBlocks][2];  // kScaled: what Q's numbers are multiplied by to be Q's own
  DecodeKeys unmasked;      // those that every row sees
  KeyRows keys;             // kPages: where they lie
  int k_length;             // kPages
};

}  // namespace falchion::sm90
