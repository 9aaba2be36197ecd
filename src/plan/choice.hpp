// src/plan/choice.hpp: what a plan of a GPU may run. How the operands of a run lie is known only then, so a plan keeps
// a short list of choices, each with what the operands must be for it, and a run takes the first that fits.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "args/gpu_gemm_args.hpp"
#include "args/gpu_norm_args.hpp"
#include "base/set_of.hpp"

namespace falchion {

struct Variant;

/// What a choice may ask of the operands, in the order in which explain() names it. What each means for the operands of
/// an operation is said where that operation's layout_of() finds it out.
enum class Condition : std::uint8_t {
  one_matrix,  // GEMM: the batch is rows of one matrix, since it shares b and rows of an entry follow those of the last
  aligned,     // rows begin at multiples of 16 bytes, so that 16 bytes can be moved at a time
  contiguous,  // the elements of a row follow each other
  along_k,     // GEMM: so do those of a and b along k
  tma,         // TMA can follow the strides
  room,        // the workspace has room for all packed rows
  count,       // how many there are
};
using Conditions = SetOf<Condition>;
constexpr Conditions operator|(Condition a, Condition b) { return Conditions(a) | b; }

/// How a GEMM is cut along k, and what follows from it.
struct GemmGpuCut {
  std::int64_t items = 0;   // tiles of d
  std::int64_t whole = 0;   // the first tiles, whose k is not cut
  int splits = 1;           // parts that k of the others is cut into
  std::int64_t depth = 0;   // of a part
  double microseconds = 0;  // about how long they take together
  bool early = false;       // the kernel may be started before the one before it is done
  int columns = 0;          // sm90's few: of a tile of d; the parts of k are a cluster of CTAs. Else 0

  constexpr std::int64_t pieces() const { return whole + (items - whole) * splits; }
};

/// How the work is cut where choices differ in that; where they do not, the plan itself says it.
using Cut = std::variant<std::monostate, GemmGpuCut, gpu::NormCut>;

struct Choice {
  const Variant* variant = nullptr;
  Conditions needs;  // of the operands
  Cut cut{};

  /// The cut of an operation whose choices have one.
  template <class C>
  const C& cut_as() const {
    return *std::get_if<C>(&cut);
  }
};

/// The first choice whose needs are met. Null: there is none.
constexpr const Choice* first_that_fits(std::span<const Choice> choices, Conditions met) {
  for (const Choice& choice : choices)
    if ((choice.needs - met).empty()) return &choice;
  return nullptr;
}

/// How the operands of a run lie: the conditions that they meet, of those that a choice of the plan asks for.
struct Layout {
  Conditions met;
};
/// Of a GEMM, where finding that out is half of what its kernel is handed.
struct GemmLayout : Layout {
  gpu::GemmArgs args{};  // but for the cut and the workspace
};

}  // namespace falchion
