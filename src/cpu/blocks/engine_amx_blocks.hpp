// src/cpu/blocks/engine_amx_blocks.hpp: K and V of attention in tile order, packed once for all query rows: size,
// address and packing of a block. AmxEngine reads the blocks.
#pragma once

#include "args/cpu_attention_args.hpp"
#include "cpu/blocks/amx_tiles.hpp"
#include "cpu/blocks/rows.hpp"
#include "cpu/blocks/split_bf16.hpp"
#include "cpu/blocks/transpose.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// A block of K is (keys / 16, parts, d / 32) tiles and then a flag for each key. A block of V is (d_v / 16, parts,
/// keys / 32) tiles and the same flags. A flag marks a key with a number that cannot be split into parts.
template <class T>
class AmxBlocks {
 public:
  using Bits = typename T::Bits;
  static constexpr int kPartsT = kParts<T>;

  static FALCHION_INLINE std::int64_t output_rows(const AttentionArgs& a) { return round_up(a.d_v, 32); }
  static FALCHION_INLINE std::int64_t k_slices(const AttentionArgs& a) { return ceil_div(a.d_qk, 32); }
  static FALCHION_INLINE std::int64_t k_bytes(const AttentionArgs& a) {
    return a.keys / 16 * kPartsT * k_slices(a) * kTileBytes + flag_bytes(a);
  }
  static FALCHION_INLINE std::int64_t v_bytes(const AttentionArgs& a) {
    return output_rows(a) / 16 * kPartsT * (a.keys / 32) * kTileBytes + flag_bytes(a);
  }
  static FALCHION_INLINE std::int64_t flag_bytes(const AttentionArgs& a) {  // the last 64 bytes: is any flag set?
    return round_up(a.keys, 64) + 64;
  }
  static Memory packed_memory(const AttentionArgs& a) {
    const std::int64_t blocks = (has_packed_keys(a) ? a.total_k / a.keys + a.b : a.b * ceil_div(a.s_k, a.keys)) * a.h_k;
    Memory m;
    m.packed_k = static_cast<std::size_t>(blocks * k_bytes(a));
    m.packed_v = static_cast<std::size_t>(blocks * v_bytes(a));
    return m;
  }
  static FALCHION_INLINE std::int64_t block_index(const AttentionArgs& a, const Sequence& s, std::int64_t b,
                                                  std::int64_t hk, std::int64_t block) {
    const std::int64_t start = has_packed_keys(a) ? s.keys.begin / a.keys + b : b * ceil_div(a.s_k, a.keys);
    return (start + block) * a.h_k + hk;
  }
  /// Whether whole blocks of K are read in place, which works because a tile load takes any stride. It saves half of
  /// the packing (16 threads, s 1024: +15 %) and costs a little at each read (4096 query rows, d 128: -5 %). Rows must
  /// not be far apart: at 2 KB from one to the next, 16 rows would share two of the 64 sets of L1.
  static FALCHION_INLINE bool k_in_place(const AttentionArgs& a) {
    const std::int64_t all = a.k.stride[0] | a.k.stride[1] | a.k.stride[2] | a.d_qk;
    return kPartsT == 1 && a.pages.size == 0 && all % 32 == 0 && a.k.stride[1] > 0 && a.k.stride[1] <= kNearRows &&
           a.s_q * (a.h_q / a.h_k) <= kFewReads && reinterpret_cast<std::uintptr_t>(a.k.data) % 64 == 0;
  }
  /// Packs one block of one K/V head.
  static void pack(const AttentionArgs& a, const Sequence& s, std::int64_t b, std::int64_t hk, std::int64_t block) {
    TileRows rows{};
    rows.sequence = s;
    rows.hk = hk;
    const std::int64_t index = block_index(a, s, b, hk, block), key0 = block * a.keys;
    if (!k_in_place(a) || key0 + a.keys > s.k_len) pack_k(a, rows, key0, a.packed_k + index * k_bytes(a));
    pack_v(a, rows, key0, a.packed_v + index * v_bytes(a));
  }

 protected:
  static FALCHION_INLINE __m512i join(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  /// Loads 32 elements, the first 16 into `low` and the others into `high`. The result has a bit set for each element
  /// that cannot be split into parts. Types of one part keep such elements, because their tile products follow IEEE.
  static FALCHION_INLINE unsigned load_pair(const Bits* p, std::int64_t n, __m256i (&low)[kPartsT],
                                            __m256i (&high)[kPartsT]) {
    if constexpr (kPartsT == 1) {
      low[0] = _mm256_maskz_loadu_epi16(first_lanes(n), p);
      high[0] = _mm256_maskz_loadu_epi16(first_lanes(n - 16), p + 16);
      return 0;
    } else {
      const unsigned bad = load_parts<T>(p, n, low);
      return bad | load_parts<T>(p + 16, n - 16, high);
    }
  }

 private:
  static constexpr std::int64_t kNearRows = 256, kFewReads = 2048;  // in elements; in query rows

  static void pack_k(const AttentionArgs& a, const TileRows& rows, std::int64_t key0, std::byte* out) {
    auto* flag = reinterpret_cast<std::uint8_t*>(out + k_bytes(a) - flag_bytes(a));
    const std::int64_t slices = k_slices(a), valid = rows.sequence.k_len - key0;
    std::uint8_t any = 0;
    for (int key = 0; key < a.keys; ++key) {
      std::byte* tile = out + key / 16 * kPartsT * slices * kTileBytes + key % 16 * 64;
      unsigned bad = 0;
      if (key + kAhead < valid) prefetch_row(rows.key_row<Bits>(a.k, key0 + key + kAhead), a.d_qk);
      const Bits* row = key < valid ? rows.key_row<Bits>(a.k, key0 + key) : nullptr;
      for (std::int64_t slice = 0; slice < slices; ++slice) {
        __m256i low[kPartsT] = {}, high[kPartsT] = {};
        if (row != nullptr) bad |= load_pair(row + slice * 32, a.d_qk - slice * 32, low, high);
        for (int p = 0; p < kPartsT; ++p)
          _mm512_store_si512(tile + (p * slices + slice) * kTileBytes, join(low[p], high[p]));
      }
      flag[key] = bad != 0;
      any |= flag[key];
    }
    flag[a.keys] = any;
  }
  static void pack_v(const AttentionArgs& a, const TileRows& rows, std::int64_t key0, std::byte* out) {
    auto* flag = reinterpret_cast<std::uint8_t*>(out + v_bytes(a) - flag_bytes(a));
    std::memset(flag, 0, static_cast<std::size_t>(flag_bytes(a)));
    const std::int64_t slices = a.keys / 32, width = output_rows(a);
    // 32 keys at a time go through parts[part][key][c], because rows of V are often 2 KB apart: 32 such rows, read 32
    // bytes at a time, would evict each other from the L1 cache.
    alignas(64) std::uint16_t parts[kPartsT][32][256];
    for (int slice = 0; slice < slices; ++slice) {
      for (int i = 0; i < 32; ++i) {
        const int key = slice * 32 + i;
        const Bits* row = key0 + key < rows.sequence.k_len ? rows.key_row<Bits>(a.v, key0 + key) : nullptr;
        const std::int64_t n = row != nullptr ? a.d_v : 0;
        if (key0 + key + kAhead < rows.sequence.k_len)
          prefetch_row(rows.key_row<Bits>(a.v, key0 + key + kAhead), a.d_v);
        unsigned bad = 0;
        for (std::int64_t c = 0; c < width; c += 16) {
          __m256i part[kPartsT] = {};
          if (c < n) bad |= load_parts<T>(row + c, n - c, part);
          for (int p = 0; p < kPartsT; ++p) _mm256_store_si256(reinterpret_cast<__m256i*>(&parts[p][i][c]), part[p]);
        }
        if (bad != 0) flag[key] = flag[a.keys] = 1;
      }
      for (int p = 0; p < kPartsT; ++p) {
        for (std::int64_t c = 0; c < width; c += 16)
          transpose_v(&parts[p][0][c], out + ((c / 16 * kPartsT + p) * slices + slice) * kTileBytes);
      }
    }
  }
  /// Makes a tile of V^T: 32 keys of 16 dims (rows of `in`, 256 elements apart) become 16 rows of 32 keys.
  static FALCHION_INLINE void transpose_v(const std::uint16_t* in, std::byte* tile) {
    __m512i pair[16];
    for (int r = 0; r < 16; ++r) {
      const __m256i even = _mm256_load_si256(reinterpret_cast<const __m256i*>(in + (2 * r) * 256));
      const __m256i odd = _mm256_load_si256(reinterpret_cast<const __m256i*>(in + (2 * r + 1) * 256));
      pair[r] = _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
    }
    transpose_16x16(pair);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + i * 64, pair[i]);
  }
  /// How many rows ahead packing prefetches, since the hardware prefetcher does not follow strides of 2 KB.
  static constexpr int kAhead = 16;
  static FALCHION_INLINE void prefetch_row(const Bits* row, std::int64_t n) {
    if (row == nullptr) return;
    for (std::int64_t c = 0; c < n; c += 64 / static_cast<std::int64_t>(sizeof(Bits)))
      _mm_prefetch(row + c, _MM_HINT_T0);
  }
};

}  // namespace falchion::cpu::FALCHION_LEVEL
