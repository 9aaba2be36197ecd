// src/sm90/attention_forward/scales.cuh: the scales of 8-bit Q and K. A row of Q has one, and so has a tile of keys, so
// a thread multiplies them once for each tile.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/scales.cuh"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/softmax.cuh"
#include "sm90/attention_forward/config.hpp"

namespace falchion::sm90 {

using namespace gpu;

/// The scale of a query row of a tile.
FALCHION_DEVICE float scale_of_row(const AttentionArgs& a, const RowsRecord& tile, const Divisors& by, int row) {
  if (a.q_scale.data == nullptr) return 1;
  const int query = by.group.div(row), head = tile.h + row - query * by.group.divisor;
  return valid_scale(static_cast<const float*>(
      a.q_scale.data)[tile.q.batch * a.q_scale.stride[0] + (tile.q.begin + query) * a.q_scale.stride[1] +
                      head * a.q_scale.stride[2]]);
}

/// The units of S that the tiles of keys bring along, in the exponent of 2: scale log2(e) k_scale. The producer reads
/// them from the last tile to the first, each a tile ahead, and hands them to the consumers in the word of the tile.
/// Packed sequence i has its blocks from cu_seqlens_k[i] / k_scale_rows + i on. A block has whole tiles, or all keys.
template <class Config>
class KeyTileUnits {
  static constexpr int kKeys = Config::kKeys;

 public:
  FALCHION_DEVICE KeyTileUnits(const AttentionArgs& a, const TileRecord& tile, int head)
      : a(a), at(static_cast<const float*>(a.k_scale.data)) {
    if (at == nullptr) return;
    const unsigned key = (tile.end - 1) * kKeys, block = key / rows();
    const unsigned before = a.packed ? static_cast<unsigned>(tile.k.begin) / rows() + tile.b : 0;
    at += tile.k.batch * a.k_scale.stride[0] + (before + block) * a.k_scale.stride[1] + head * a.k_scale.stride[2];
    within = key - block * rows();
    next = *at;
  }
  /// The unit of the tile whose turn it is. more: there is another one.
  FALCHION_DEVICE float take(bool more) {
    const float now = next;
    if (at != nullptr && more) {
      if (within == 0) at -= a.k_scale.stride[1];
      within = (within == 0 ? rows() : within) - kKeys;
      next = *at;
    }
    return a.scale * kLog2e * valid_scale(now);
  }

 private:
  FALCHION_DEVICE unsigned rows() const { return static_cast<unsigned>(a.k_scale_rows); }

  const AttentionArgs& a;
  const float* at;      // the scale of the next tile, or null
  unsigned within = 0;  // the first key of that tile in its block
  float next = 1;
};

/// Of kinds without scales.
struct NoKeyTileUnits {
  FALCHION_DEVICE NoKeyTileUnits(const AttentionArgs&, const TileRecord&, int) {}
};

/// Writes the word of a tile of keys. It must be there before the barrier of the tile completes.
FALCHION_DEVICE void store_word(std::uint32_t& to, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(cute::cast_smem_ptr_to_uint(&to)), "f"(x) : "memory");
}

}  // namespace falchion::sm90
