// src/tiles/attention_forward/sm80.hpp: the tile of each forward variant of sm80, and the threads and shared memory
// that it needs. It is plain C++, because the plan reads it even if the code of the variant is not built. The kernel's
// config reads it too.
#pragma once

#include "args/gpu_attention_args.hpp"
#include "tiles/tile_of.hpp"

namespace falchion::sm80 {

enum class Kind { plain, general, bytes, eight, f32 };

/// One line of tiles.def.
struct Tile {
  Kind kind = Kind::plain;
  int d = 0;
  VariantTile name = VariantTile::usual;
  int rows = 0, keys = 0;
  int warps = 0;   // of a CTA; each has an equal share of the rows
  int stages = 0;  // K/V tiles in flight
  int ctas = 0;    // CTAs that share an SM
  bool q_in_registers = false;
};

constexpr Tile attention_forward_tile(Kind kind, int d, VariantTile name = VariantTile::usual) {
  constexpr Tile kTiles[] = {
#define TILE_attention_forward_sm80(tile_kind, head_dim, tile_name, ...) \
  {.kind = Kind::tile_kind, .d = head_dim, .name = VariantTile::tile_name, __VA_ARGS__},
#include "tiles/attention_forward/tiles.def"
  };
  return tile_of(kTiles, kind, d, name);
}

/// For kind f32: the number of head dims of K in a chunk of the ring (attention_forward/f32/kernel.cuh).
constexpr int f32_depth(int d) { return d < 256 ? 64 : 32; }

/// CTAs an SM for keys in the pages of a cache, where without pages there are `ctas`. To look the pages up takes more
/// registers than the 168 that ten CTAs leave a thread.
constexpr int ctas_of_pages(int ctas) { return ctas < 8 ? ctas : 8; }

/// For kind bytes: the scales of K and V of each key in the stages.
constexpr int scale_bytes(int stages, int keys) { return 2 * 4 * stages * keys; }

/// For kind eight: Q, K and V, and the bytes of the next K and V where those are to be widened to 16 bits. type: that
/// of V where it has 16 bits, else that of Q.
constexpr int shared_bytes_of_eight(const Tile& tile, VariantType type) {
  const bool wide_v = type == VariantType::bf16 || type == VariantType::f16, wide_qk = type == VariantType::e4m3;
  const int of_q = tile.rows * (wide_qk ? 2 : 1), of_k = tile.keys * (wide_qk ? 3 : 2),
            of_v = tile.keys * (wide_v ? 4 : 3);
  return tile.d * (of_q + of_k + of_v);
}

constexpr gpu::AttentionFacts attention_forward_facts(Kind kind, int d, VariantTile name = VariantTile::usual) {
  const Tile tile = attention_forward_tile(kind, d, name);
  gpu::AttentionFacts facts{.d = d, .rows = tile.rows, .keys = tile.keys, .threads = 32 * tile.warps};
  facts.stages = tile.stages;
  facts.ctas = tile.ctas;
  facts.shared_bytes = kind != Kind::f32
                           ? 2 * (tile.rows * d + 2 * tile.stages * tile.keys * d)  // Q, and K and V of each stage
                           : 4 * (tile.rows * (d + 4) + tile.rows * (tile.keys + 4) +
                                  tile.stages * tile.keys * f32_depth(d));  // Q, P and the ring
  if (kind == Kind::bytes) facts.shared_bytes += scale_bytes(tile.stages, tile.keys);
  return facts;
}

}  // namespace falchion::sm80
