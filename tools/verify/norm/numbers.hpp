// tools/verify/norm/numbers.hpp: the numbers of a norm's operands in a storm, of both passes.
#pragma once

#include <cstdint>
#include <string>

#include "verify/contents.hpp"
#include "verify/problem.hpp"

namespace falchion::tools::storm {

/// Fills the operand `name`. x and the residual have rows of the kind that the problem's `scores` names; half types
/// hold no huge numbers.
void fill_norm(const Problem& problem, const std::string& name, DType dtype, std::uint64_t stream, Contents* x);

/// The extents of an operand whose rows share numbers along the axes of `ones`.
Contents::Shape shared_extents(const Broadcast& ones, const Contents::Shape& all);

}  // namespace falchion::tools::storm
