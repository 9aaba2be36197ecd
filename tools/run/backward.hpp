// tools/run/backward.hpp: `falchion run --op attention-backward`: gradients of attention on tensors from files.
#pragma once

#include "run/options.hpp"

namespace falchion::tools {

int run_backward(const RunOptions& options);

}  // namespace falchion::tools
