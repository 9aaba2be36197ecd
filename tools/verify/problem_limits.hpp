// tools/verify/problem_limits.hpp: what the keys of a problem's text may say beyond being numbers and words, so that
// whatever is typed after --problem is either a problem that can be made or is refused by name.
#pragma once

#include "problem.hpp"

namespace falchion::tools::storm {

/// Throws UsageError with the key, its value and the limit.
void require_sound(const Problem& problem);

}  // namespace falchion::tools::storm
