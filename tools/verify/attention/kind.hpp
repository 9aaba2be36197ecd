// tools/verify/attention/kind.hpp: what the storms' entries of both passes of softmax attention share.
#pragma once

#include "verify/kind.hpp"

namespace falchion::tools::storm {

void tidy_attention(Problem* problem);
void require_attention(const Problem& problem);
bool attention_is_not_built_yet(const Problem& problem);

}  // namespace falchion::tools::storm
