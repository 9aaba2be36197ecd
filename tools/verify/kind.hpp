// tools/verify/kind.hpp: a storm's functions for one kind of problem. A new kind adds its folder (kind, subject, draw,
// shrink) and its line in kind.cpp. The passes of softmax attention and those of a norm are two kinds here,
// because their operands differ.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "draw.hpp"
#include "problem.hpp"
#include "problem_limits.hpp"
#include "subject.hpp"

namespace falchion::tools::storm {

struct StormKind {
  /// Draws sizes, features and memory. The caller chooses the type and the path.
  void (*draw)(Dice* dice, Problem* problem);
  std::unique_ptr<Subject> (*make_subject)(const Problem& problem);

  /// tidy() for the fields that only this kind has.
  void (*tidy)(Problem* problem);
  /// Throws UsageError with the key of a field with an invalid value.
  void (*require_sound)(const Problem& problem);
  Words operands;  // those that may lie in a special way: their keys are layout_X
  Words scores;    // the values of the key scores
  Words plants;    // the values of the key plant

  /// Adds simpler problems, the most promising first.
  void (*simplify)(const Problem& problem, std::vector<Problem>* steps);

  /// Whether docs/contract.md calls the problem unsupported on every path.
  bool (*is_not_built_yet)(const Problem& problem);
  bool (*may_exceed_the_hint)(const Problem& problem, const Plan& plan);  // as in paths.hpp
};

extern const StormKind kAttentionKind, kAttentionBackwardKind, kLinearKind, kGemmKind, kNormKind, kNormBackwardKind,
    kQuantiseKind;

/// The values of the key scores of a norm.
inline constexpr std::string_view kNormScores[] = {"normal", "constant", "shifted", "tiny", "huge"};

const StormKind& storm_kind(const Problem& problem);

}  // namespace falchion::tools::storm
