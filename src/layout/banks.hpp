// src/layout/banks.hpp: counts bank conflicts of shared memory as the hardware does, which serves a warp in phases and
// not at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/layout.hpp"

namespace falchion::layout {

/// How a warp accesses shared memory. The number behind lds and sts is the bits for each thread. An ldmatrix reads 8
/// rows of 16 bytes for each matrix.
enum class Access { lds32, lds64, lds128, sts32, sts64, sts128, cp_async16, ldmatrix_x1, ldmatrix_x2, ldmatrix_x4 };
const Access* find_access(std::string_view name);  ///< "lds128", "cp.async16", "ldmatrix.x4[.trans]"; null: none
std::string access_names();                        ///< for an error message: "lds32, lds64, ..."

/// How many threads give an address, how many bytes each of them asks for, and how many threads are served at a time.
struct AccessShape {
  int threads, bytes, threads_a_phase;
};
AccessShape shape_of(Access access);

/// Shared memory has 32 banks of 4 bytes. A wavefront serves one phase: all 32 threads with 4 bytes each, 16 with 8, 8
/// with 16, or one matrix of ldmatrix. If threads of a phase ask for different words of one bank, each word takes a
/// wavefront of its own; equal words are broadcast.
struct Wavefronts {
  int wavefronts = 0;  // ideal + conflicts, which is ncu's l1tex__data_pipe_lsu_wavefronts_mem_shared
  int ideal = 0;
  int conflicts() const { return wavefronts - ideal; }
  std::vector<std::vector<int>> words_a_bank;  // phases x 32: the different words of each bank
};

/// `bytes` has the byte address of each thread that takes part: 32, or for ldmatrix x1, x2, x4 the first 8, 16, 32,
/// which give the rows. Fewer threads than 32 may load or store. Each address must be a multiple of the bytes that the
/// thread asks for.
Wavefronts count_wavefronts(Access access, const std::vector<std::int64_t>& bytes);

/// Where in a tensor a warp's access lies: it has rows x columns elements, and (row, column) is its corner.
struct AccessTile {
  std::int64_t rows, columns, row = 0, column = 0;
};
/// The byte addresses of an access to a tile. Loads and stores run along a row first, with as many elements for each
/// thread as it asks for. The matrices of an ldmatrix, 8 rows of 16 bytes each, run down a column first, which is the
/// order of A in SM75_U32x4_LDSM_N.
std::vector<std::int64_t> tile_addresses(Access access, const Composed& tensor, int element_bits, AccessTile tile);

}  // namespace falchion::layout
