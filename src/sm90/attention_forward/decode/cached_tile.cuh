// src/sm90/attention_forward/decode/cached_tile.cuh: how a tile of K or V lies in a stage, and how it becomes operands
// of mma.sync. 8-bit numbers become f16, which holds all of them. The letters are those of docs/notation.md.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"
#include "gpu/blocks/lane_blocks.hpp"
#include "gpu/blocks/mma.cuh"
#include "gpu/blocks/widen.cuh"
#include "sm90/attention_forward/decode/config.cuh"

namespace falchion::sm90 {

/// A tile consists of boxes of kKeys lines of 128 bytes, whose 16-byte chunks are swizzled
/// (gpu/blocks/lane_blocks.hpp). Rows of 64 bytes (d 64 of 8 bits) are lines of 64 bytes, and chunk c of line r lies at
/// c ^ (r / 2 % 4): so 8 lines lie in 8 different groups of banks, too.
template <class Config>
struct CachedTile {
  using Cached = typename Config::Cached;
  static constexpr bool kNarrow = Config::kChunks < 8;
  static constexpr int kLine = kNarrow ? 64 : 128;  // bytes
  static_assert(!kNarrow || Config::kChunks == 4);

  /// Where a chunk of a key lies, in bytes.
  static FALCHION_DEVICE std::uint32_t place(int line, int chunk) {
    if constexpr (kNarrow) return narrow(line, chunk);
    return 2 * gpu::swizzled<Config::kKeys>(line, chunk * 8);
  }
  /// The blocks of 16 keys and 32 bytes that ldmatrix reads: those of K, whose words are neighbours in a row, and those
  /// of V, turned, whose words have two keys.
  static FALCHION_DEVICE gpu::LaneBlocks of_k(int lane, std::uint32_t lines) {
    if constexpr (kNarrow) return {narrow(lane % 16, lane / 16), lines};
    return {gpu::LaneBlocks::down_first(lane), lines};
  }
  static FALCHION_DEVICE gpu::LaneBlocks of_v(int lane, std::uint32_t lines) {
    if constexpr (kNarrow) return {narrow(lane / 16 * 8 + lane % 8, lane / 8 % 2), lines};
    return {gpu::LaneBlocks::across_first(lane), lines};
  }

  /// K as operand A: calls multiply(i, piece, block) with 16 keys x 16 head dims for each i and each 16 keys of the
  /// warp. Of 8 bits a lane's word is four neighbours, 4 (lane % 4) and the next ones of 16: they stand for columns 2
  /// (lane % 4), the next one, and both that lie 8 further. The order of head dims in a sum is free, as long as Q has
  /// the same.
  template <class Multiply>
  static FALCHION_DEVICE void each_of_k(const gpu::LaneBlocks& k, const Multiply& multiply) {
    if constexpr (!Config::kScaled) {
      CUTE_UNROLL
      for (int i = 0; i < Config::kD / 16; ++i) {
        gpu::Block block;
        gpu::load_block(k.at<Config::kKeys>(0, i * 16), block);
        multiply(i, 0, block);
      }
    } else {
      CUTE_UNROLL
      for (int i = 0; i < Config::kD / 32; ++i) {
        gpu::Block bytes[Config::kPieces];
        CUTE_UNROLL
        for (int piece = 0; piece < Config::kPieces; ++piece)
          gpu::load_block(k.at<Config::kKeys>(0, i * 16) + piece * 16 * kLine, bytes[piece]);
        CUTE_UNROLL
        for (int half = 0; half < 2; ++half) {
          CUTE_UNROLL
          for (int piece = 0; piece < Config::kPieces; ++piece) {
            gpu::Block block;
            gpu::widen_neighbours<Cached>(bytes[piece][2 * half], block[0], block[2]);
            gpu::widen_neighbours<Cached>(bytes[piece][2 * half + 1], block[1], block[3]);
            multiply(2 * i + half, piece, block);
          }
        }
      }
    }
  }
  /// The first of two head dims in each 16 that a lane has of Q as operand B; `half`: of the lower or the upper ones.
  static FALCHION_DEVICE int column_of_q(int lane, int half) {
    return Config::kScaled ? lane % 4 * 4 + half * 2 : lane % 4 * 2 + half * 8;
  }

  /// V^T as operand A: calls multiply(i, piece, block) with 16 head dims x 16 keys for each i and each 16 keys. Of 8
  /// bits a lane's word is two head dims of two keys: the even ones are rows 0 to 7 of the product, the odd ones rows 8
  /// to 15.
  template <class Multiply>
  static FALCHION_DEVICE void each_of_v(const gpu::LaneBlocks& v, const Multiply& multiply) {
    if constexpr (!Config::kScaled) {
      CUTE_UNROLL
      for (int i = 0; i < Config::kD / 16; ++i) {
        gpu::Block block;
        gpu::load_block_transposed(v.at<Config::kKeys>(0, i * 16), block);
        multiply(i, 0, block);
      }
    } else {
      CUTE_UNROLL
      for (int i = 0; i < Config::kD / 32; ++i) {
        gpu::Block bytes[Config::kPieces];
        CUTE_UNROLL
        for (int piece = 0; piece < Config::kPieces; ++piece)
          gpu::load_block_transposed(v.at<Config::kKeys>(0, i * 16) + piece * 16 * kLine, bytes[piece]);
        CUTE_UNROLL
        for (int piece = 0; piece < Config::kPieces; ++piece) {
          CUTE_UNROLL
          for (int half = 0; half < 2; ++half) {
            gpu::Block block;
            gpu::widen_alternating<Cached>(bytes[piece][half], block[0], block[1]);
            gpu::widen_alternating<Cached>(bytes[piece][2 + half], block[2], block[3]);
            multiply(2 * i + half, piece, block);
          }
        }
      }
    }
  }
  /// The head dim of element e of a lane's sums in each 16.
  static FALCHION_DEVICE int column_of_o(int lane, int e) {
    return Config::kScaled ? lane / 4 * 2 + e / 2 : lane / 4 + e / 2 * 8;
  }

 private:
  static FALCHION_DEVICE std::uint32_t narrow(int line, int chunk) {
    return static_cast<std::uint32_t>(line * 64 + (chunk ^ line / 2 % 4) * 16);
  }
};

}  // namespace falchion::sm90
