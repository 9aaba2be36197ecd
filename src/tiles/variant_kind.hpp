// src/tiles/variant_kind.hpp: the third entry of a line of variants.def, and the last.
#pragma once

#include <cstdint>

namespace falchion {

/// The kinds of GPU variants and the levels of CPU variants, under their names in variants.def. Its lines name them, so
/// a name that is not here does not compile.
enum class VariantKind : std::uint8_t {
  plain,
  general,
  // Attention.
  decode,
  decode_bytes,
  eight,
  fp8,
  halves,
  int8_scores,
  once,
  pages,
  pages_general,
  score,
  wide,
  // Linear attention.
  exact,
  normalise,
  // GEMMs.
  bytes,  // attention's, too
  few,
  // Norms and Quantise.
  rows,
  // CPU levels.
  amx,
  amx_emulated,
  avx2,
  avx512,
  avx512_bf16,
  generic,
  neon,
  vnni,
};

/// The tiles of a kind that has several for one head dim, under their names in variants.def and tiles.def. usual: the
/// one that serves every problem, or the only one; in variants.def it has no name.
enum class VariantTile : std::uint8_t {
  usual,
  few,  // rows
  // Attention.
  brief,
  mla,
  // GEMMs.
  broad,
  medium,
  narrow,
  slim,
  tall,
  wide,
};

/// For a kind that the operation does not have: it is declared but not defined, so a constant that calls it does not
/// compile.
template <class T>
T there_is_no_such_kind();

}  // namespace falchion
