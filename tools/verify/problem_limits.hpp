// tools/verify/problem_limits.hpp: the limits of the values in a problem's text. So whatever is typed after --problem
// is either a problem that can be made, or it is refused with the key's name.
#pragma once

#include "problem.hpp"

namespace falchion::tools::storm {

/// Throws UsageError with the key, its value and the limit.
void require_sound(const Problem& problem);

}  // namespace falchion::tools::storm
