// tools/run/dump.hpp: `falchion run --dump FILE`: repeats a run that FALCHION_TRACE_DUMP wrote.
#pragma once

#include "run/options.hpp"

namespace falchion::tools {

int run_dump(const RunOptions& options);

}  // namespace falchion::tools
