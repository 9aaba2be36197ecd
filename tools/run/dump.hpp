// tools/run/dump.hpp: `falchion run --dump FILE`: runs again what FALCHION_TRACE_DUMP wrote.
#pragma once

#include "run/options.hpp"

namespace falchion::tools {

int run_dump(const RunOptions& options);

}  // namespace falchion::tools
