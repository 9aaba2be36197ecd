// src/plan/choice.hpp: the choices of a plan for a GPU. The layouts of the operands are known only at the run, so a
// plan keeps a short list of choices, each with its conditions on the operands, and a run takes the first one whose
// conditions hold.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "args/gpu_gemm_args.hpp"
#include "args/gpu_norm_args.hpp"
#include "args/gpu_norm_backward_args.hpp"
#include "args/gpu_quantise_args.hpp"
#include "base/set_of.hpp"

namespace falchion {

struct Variant;

/// The conditions of a choice on the operands, in the order in which explain() names them. Each operation's layout_of()
/// decides what they mean for its operands.
enum class Condition : std::uint8_t {
  one_matrix,  // GEMM: the batch is rows of one matrix, since it shares b and rows of an entry follow those of the last
  aligned,     // rows begin at multiples of 16 bytes, so that 16 bytes can be moved at a time
  contiguous,  // the elements of a row follow each other
  along_k,     // GEMM: so do those of a and b along k
  tma,         // TMA accepts the strides
  room,        // the workspace has room for all packed rows
  count,       // the number of conditions
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

/// The cut of the work, if choices differ in it; otherwise the plan has it.
using Cut = std::variant<std::monostate, GemmGpuCut, gpu::NormCut, gpu::NormBackwardCut, gpu::QuantiseCut>;

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

/// The layout of a run's operands: the conditions that they meet, among those of the plan's choices.
struct Layout {
  Conditions met;
};
/// The layout for a GEMM, with the kernel's arguments that follow from it.
struct GemmLayout : Layout {
  gpu::GemmArgs args{};  // but for the cut and the workspace
};

}  // namespace falchion
