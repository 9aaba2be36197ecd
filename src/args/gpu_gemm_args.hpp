// src/args/gpu_gemm_args.hpp: what the plan hands to a GPU kernel of GEMM. It is plain data for the reason that
// args/attention_call.hpp gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/gemm_call.hpp"

namespace falchion::gpu {

/// Which elements of an operand of the product lie next to each other in memory.
enum class Major : std::uint8_t { k, rows, neither };

struct GemmArgs : GemmCall {
  // The plan decides what follows. All pointers lie on the device.
  Major a_major = Major::neither, b_major = Major::neither;       // k, rows: 16 bytes of them can be moved at a time
  bool c_whole = false, d_whole = false, residual_whole = false;  // four columns can be moved at a time
  bool d_boxes = false;                   // sm90: d is alpha times the sums, and TMA can store it
  std::int64_t tiles_m = 0, tiles_n = 0;  // tiles of d, of one entry of the batch
  int splits = 1;                         // parts that k is cut into; > 1 needs partials, but not in sm90's few
  std::int64_t depth = 0;                 // of a part: whole blocks of k
  bool early = false;                     // programmatic dependent launch
  int walkers = 0;                        // sm90: tiles that are computed at a time
  std::int64_t pitch = 0;                 // floats of a row of partials
  int columns = 0;                        // sm90's few: of a tile of d; its parts of k are a cluster of CTAs
  float* partials = nullptr;              // (splits, batch, m, pitch): the sums of each part
};

/// What a variant needs and how it cuts a problem. The plan decides by these facts, even where the code of the variant
/// is not built.
struct GemmFacts {
  int rows = 0, columns = 0, depth = 0;  // of a tile of d, with swiglu of both its halves; of a block of k
  int cluster = 1;                       // CTAs that compute a tile together
  int threads = 0;                       // of a CTA
  int stages = 0;                        // blocks of k in flight
  int ctas = 0;                          // CTAs that are meant to share an SM
  int shared_bytes = 0;                  // of a CTA

  constexpr bool operator==(const GemmFacts&) const = default;
};

/// A variant that is built. launch enqueues and returns a cudaError_t (0 if all is well); it neither synchronises nor
/// allocates.
struct GemmKernel {
  int (*launch)(const GemmArgs&, void* stream) = nullptr;
  GemmFacts facts;  // those of its code; variant_gpu.in asserts that the plan has the same
};

}  // namespace falchion::gpu
