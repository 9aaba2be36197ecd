// src/args/gpu_gemm_args.hpp: what the plan hands to a GPU kernel of GEMM. It is plain data for the reason that
// args/attention_call.hpp gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/gemm_call.hpp"
#include "base/divisor.hpp"

namespace falchion::gpu {

/// The contiguous axis of an operand of the product.
enum class Major : std::uint8_t { k, rows, neither };

struct GemmArgs : GemmCall {
  // Decided by the plan; all pointers are device addresses:
  Major a_major = Major::neither, b_major = Major::neither;       // k, rows: 16 bytes along it can be moved at a time
  bool c_whole = false, d_whole = false, residual_whole = false;  // four columns can be moved at a time
  bool d_boxes = false;  // sm90: TMA can store d, of 16 bits or i32, and load c and residual, of the type of d
  bool plain = false;    // d_boxes, and d is alpha times the sums, without scales
  std::int64_t tiles_m = 0, tiles_n = 0;  // tiles of d, of one entry of the batch
  int band = 1;                           // height of a rasterisation band, in tiles (for L2 reuse)
  std::int64_t whole = 0;                 // the first tiles, of the whole batch, whose k is not cut
  // Divisors: tiles of an entry, of a band; heights of a band, of the last band; tiles that are cut.
  Divisor by_entry, by_band, by_height, by_last_height, by_cut;
  int splits = 1;          // parts that k of all others is cut into; > 1 needs partials, but not in sm90's few
  std::int64_t depth = 0;  // of a part: whole blocks of k
  bool early = false;      // programmatic dependent launch
  int walkers = 0;         // sm90: tiles that are computed at a time, at most
  int part_rows = 0, part_columns = 0;  // of the sums of a part; with swiglu the columns of gates, then those of "up"
  int columns = 0;                      // sm90's few: of a tile of d; its parts of k are a cluster of CTAs
  float* partials = nullptr;            // (tiles that are cut, splits, part_rows, part_columns)

  /// What follows from the tiles, the band and `whole`.
  void set_divisors() {
    const std::int64_t tiles = tiles_m * tiles_n, last = tiles_m % band;
    by_entry = Divisor(tiles);
    by_band = Divisor(band * tiles_n);
    by_height = Divisor(band);
    by_last_height = Divisor(last == 0 ? band : last);
    by_cut = Divisor(whole < tiles * batch ? tiles * batch - whole : 1);
  }
};

/// A variant's limits and tiles. The plan decides by these facts, even if the code of the variant is not built.
struct GemmFacts {
  int rows = 0, columns = 0, depth = 0;  // of a tile of d, with swiglu of both its halves; of a block of k
  int band = 1;                          // height of a rasterisation band, in tiles (for L2 reuse)
  int cluster = 1;                       // CTAs that compute a tile together
  int threads = 0;                       // of a CTA
  int stages = 0;                        // blocks of k in flight
  int ctas = 0;                          // CTAs that are meant to share an SM
  int shared_bytes = 0;                  // of a CTA
  double flop_rate = 0;                  // of an SM, in a microsecond; 0: sm90's few, whose plan counts bytes

  constexpr bool operator==(const GemmFacts&) const = default;
};

/// A variant that is built. launch enqueues and returns a cudaError_t (0 if all is well); it neither synchronises nor
/// allocates.
struct GemmKernel {
  int (*launch)(const GemmArgs&, void* stream) = nullptr;
  GemmFacts facts;  // those of its code; variant_gpu.in asserts that the plan has the same
};

}  // namespace falchion::gpu
