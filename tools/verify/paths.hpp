// tools/verify/paths.hpp: the paths on which a storm runs a problem, and the allowed refusals of a path.
#pragma once

#include <string>
#include <vector>

#include "falchion/falchion.hpp"
#include "problem.hpp"
#include "problem/levels.hpp"

namespace falchion::tools::storm {

/// Whether variants.def has such a variant, built or not. Of attention: for this type of q, k and v. A q of 8 bits has
/// types of k and v beside it, so --eight draws it instead.
bool is_listed(Op op, DType dtype);
/// Whether this build has any kernel of the path for the operation and type. `best` and ref always have one.
bool has_variant(const Path& path, Op op, DType dtype);

/// The ways to run an operation here. The list is empty if the back end has no kernel for the type (f32 attention on
/// sm90). A path that should be drawn more often is in it more than once.
std::vector<Path> storm_paths(const std::string& backend, const std::string& level, Op op, DType dtype);
/// Those for a problem. No level of the CPU takes q of 8 bits.
std::vector<Path> storm_paths(const std::string& backend, const std::string& level, const Problem& problem);

/// Plan::make for the problem's kind and pass.
Status make_plan(const Problem& problem, const Target& target, Plan* plan);

/// Where a plan runs: "cpu avx2", "sm90".
std::string place_of(const Plan& plan);

/// Whether the plan of this problem may be refused as `unsupported`. A GPU's kernels need not have every feature, and
/// no path has those that docs/contract.md calls not built yet. All others are promised on the CPU, in ref and for
/// `best`.
bool may_be_unsupported(const Problem& problem);

/// Whether a run of this plan may be refused as `invalid` although all operands are valid: only if the plan's memory is
/// sized by the hint of the longest length and all sequences together are longer (docs/contract.md).
bool may_exceed_the_hint(const Problem& problem, const Plan& plan);

/// Whether a run of this plan may be refused as `unsupported` because of how its operands lie: on a GPU with q of 8
/// bits, for which there is no kernel that takes any layout (docs/contract.md).
bool may_refuse_layouts(const Problem& problem, const Plan& plan);

}  // namespace falchion::tools::storm
