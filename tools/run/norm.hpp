// tools/run/norm.hpp: `falchion run --op norm`: a layer norm or RMSNorm of rows from files.
#pragma once

#include "run/options.hpp"

namespace falchion::tools {

int run_norm(const RunOptions& options);

}  // namespace falchion::tools
