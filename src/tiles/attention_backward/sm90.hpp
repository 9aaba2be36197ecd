// src/tiles/attention_backward/sm90.hpp: the tile of each backward variant on Hopper, and the threads and shared memory
// that it needs. It is plain C++: the plan reads it, even if the variant's code is not built, and so does the kernel's
// config.
#pragma once

#include "args/gpu_attention_backward_args.hpp"
#include "tiles/tile_of.hpp"

namespace falchion::sm90 {

/// The kinds of backward variants.
enum class BackwardKind { plain, wide };

/// Whether `consumers` consumer warpgroups and one producer warpgroup get the registers that they request. At launch
/// all threads have the same number, as many as fit. A warpgroup that requests more than its CTA has waits for ever.
constexpr bool registers_fit(int consumers, int of_consumer, int of_producer) {
  const int threads = 128 * (consumers + 1), at_launch = 65536 / threads / 8 * 8;
  return consumers * of_consumer + of_producer <= (consumers + 1) * at_launch;
}

/// What the two consumer warpgroups of a CTA do in turns. Without turns they synchronise by chance, and then both
/// compute exponentials while the tensor cores idle.
enum class BackwardTurns { starting_scores, exponentials };

/// One line of tiles.def.
struct BackwardTiles {
  BackwardKind kind = BackwardKind::plain;
  int d = 0;
  int rows = 0, keys = 0;                              // there are 64 keys for each of the two consumer warpgroups
  int stages_q = 0, stages_grad_o = 0;                 // tiles in flight
  int consumer_registers = 0, producer_registers = 0;  // of a thread
  BackwardTurns turns = BackwardTurns::starting_scores;
  bool goes_on = false;  // there are as many CTAs as fit, and each goes on to the next tile of keys

  static constexpr int kConsumers = 2;
  static constexpr int kStagesDs = 2;      // tiles of dS
  static constexpr int kBarrierBytes = 8;  // of a barrier
  static constexpr int kWorkBytes = 128;   // of the record of a tile of keys
  static constexpr int kFieldBytes = 136;  // at most: the fields beside the records
  constexpr int threads() const { return 128 * (kConsumers + 1); }
  constexpr int works() const { return goes_on ? 2 : 1; }          // records of the CTA's tiles: this one, and the next
  constexpr int barriers_keys() const { return goes_on ? 2 : 1; }  // K and V arrive apart, or together
  /// K, V, the stages of q with their statistics, those of grad_o, dS, the tile of grad_q in f32, the records and the
  /// barriers.
  constexpr int shared_bytes() const {
    const int rows_of_q = stages_q * rows, rows_of_grad_o = stages_grad_o * rows;
    const int tiles = 2 * (2 * keys * d + (rows_of_q + rows_of_grad_o) * d + kStagesDs * rows * keys) + 4 * rows * d;
    const int fields = 8 * rows_of_q + kWorkBytes * works() + kFieldBytes;  // and the statistics
    const int barriers =
        2 * barriers_keys() + 2 + 2 * works() + 3 * stages_q + stages_grad_o + 2 * kStagesDs + 2 * kConsumers;
    return tiles + (fields + kBarrierBytes * barriers + 1023) / 1024 * 1024;
  }
};

constexpr BackwardTiles attention_backward_tiles(int d) {
  constexpr BackwardTiles kTiles[] = {
#define TILE_attention_backward_sm90(tile_kind, head_dim, ...) \
  {.kind = BackwardKind::tile_kind, .d = head_dim, __VA_ARGS__},
#include "tiles/attention_backward/tiles.def"
  };
  return tile_of(kTiles, BackwardKind::plain, d);
}

constexpr gpu::AttentionBackwardFacts attention_backward_facts(int d) {
  const BackwardTiles t = attention_backward_tiles(d);
  return {.d = d,
          .rows = t.rows,
          .keys = t.keys,
          .threads = t.threads(),
          .ctas = 1,
          .shared_bytes = t.shared_bytes(),
          .goes_on = t.goes_on};
}

}  // namespace falchion::sm90
