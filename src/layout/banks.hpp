// src/layout/banks.hpp: bank conflicts of shared memory, counted as the hardware does: in phases, not a warp at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/layout.hpp"

namespace falchion::layout {

/// How a warp gets at shared memory. lds, sts: so many bits a thread; ldmatrix: 8 rows of 16 bytes a matrix.
enum class Access { lds32, lds64, lds128, sts32, sts64, sts128, cp_async16, ldmatrix_x1, ldmatrix_x2, ldmatrix_x4 };
const Access* find_access(std::string_view name);  ///< "lds128", "cp.async16", "ldmatrix.x4[.trans]"; null: none
std::string access_names();                        ///< for an error message: "lds32, lds64, ..."

/// The address of how many threads counts, how many bytes each asks for, and how many threads are served at a time.
struct AccessShape {
  int threads, bytes, threads_a_phase;
};
AccessShape shape_of(Access access);

/// 32 banks of 4 bytes. A wavefront serves one phase: all 32 threads at 4 bytes each, 16 at 8, 8 at 16; one matrix of
/// ldmatrix. Threads of a phase that want different words of a bank cost one wavefront each; equal words are broadcast.
struct Wavefronts {
  int wavefronts = 0;  // ideal + conflicts: ncu's l1tex__data_pipe_lsu_wavefronts_mem_shared
  int ideal = 0;
  int conflicts() const { return wavefronts - ideal; }
  std::vector<std::vector<int>> words_a_bank;  // phases x 32: how many different words each bank is asked for
};

/// bytes: the byte address of each thread that takes part (32; of ldmatrix x1, x2, x4 the first 8, 16, 32 give rows).
/// Fewer threads than 32 may load or store; each address must be a multiple of what the thread asks for.
Wavefronts count_wavefronts(Access access, const std::vector<std::int64_t>& bytes);

/// Where in a matrix of `tensor` a warp's access lies: rows x columns elements with the corner (row, column).
struct AccessTile {
  std::int64_t rows, columns, row = 0, column = 0;
};
/// The byte addresses of an access to a tile: loads and stores run along a row first, as many elements a thread as it
/// asks for; the matrices of an ldmatrix, 8 rows of 16 bytes, run down a column first (A's order: SM75_U32x4_LDSM_N).
std::vector<std::int64_t> tile_addresses(Access access, const Composed& tensor, int element_bits, AccessTile tile);

}  // namespace falchion::layout
