// src/tiles/variant_kind.hpp: the third entry of a line of variants.def.
#pragma once

#include <cstdint>

namespace falchion {

/// The kinds of GPU variants and the levels of CPU variants, under their names in variants.def. Its lines name them, so
/// a name that is not here does not compile.
enum class VariantKind : std::uint8_t {
  plain,
  general,
  // Attention.
  brief,
  few,  // of GEMMs too
  halves,
  mla,
  once,
  score,
  wide,  // of GEMMs too
  // Linear attention.
  exact,
  normalise,
  // GEMMs.
  bytes,
  medium,
  narrow,
  slim,
  tile,
  // Norms.
  rows,
  // CPU levels.
  amx,
  amx_emulated,
  avx2,
  avx512,
  generic,
  neon,
  vnni,
};

/// For a kind that the operation does not have: it is declared but not defined, so a constant that calls it does not
/// compile.
template <class T>
T there_is_no_such_kind();

}  // namespace falchion
