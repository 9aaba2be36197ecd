// src/args/cpu_gemm_args.hpp: what the plan hands to a CPU kernel of GEMM. It is plain data for the reason that
// args/attention_call.hpp gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/gemm_call.hpp"
#include "args/pool.hpp"

namespace falchion::cpu {

struct GemmArgs : GemmCall {
  // Decided by the plan:
  Pool pool;
  int threads = 1;                     // workers; each has its own slice of scratch
  std::int64_t rows = 0, columns = 0;  // of d, of one work item: whole register tiles
  std::int64_t few_columns = 0;        // of an item with few rows of a and contiguous rows of b
  std::byte* scratch = nullptr;        // threads * scratch_bytes bytes, each slice 64-byte aligned
  std::size_t scratch_bytes = 0;
};

/// The tile that a kernel keeps in registers, and the largest work item that is worth its scratch memory.
struct GemmTile {
  int rows = 0, columns = 0;
  int most_rows = 0, most_columns = 0;
  int depth = 0;     // of a block of k
  int few_rows = 0;  // up to so many rows of a, b is read in place
};

/// One entry of the table of variants. scratch() is for one worker, in bytes; it reads only sizes from its arguments.
struct GemmKernel {
  std::size_t (*scratch)(const GemmArgs&) = nullptr;
  void (*run)(const GemmArgs&) = nullptr;
  GemmTile tile{};
};

}  // namespace falchion::cpu
