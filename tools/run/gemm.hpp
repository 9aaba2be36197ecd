// tools/run/gemm.hpp: `falchion run --op gemm`: a GEMM on matrices from files.
#pragma once

#include "run/options.hpp"

namespace falchion::tools {

int run_gemm(const RunOptions& options);

}  // namespace falchion::tools
