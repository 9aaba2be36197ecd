// tools/machine.hpp: the facts about this machine that a result is worthless without.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace falchion::tools {

std::string cpu_model();   // "Intel(R) Xeon(R) Processor"
std::string compiler();    // "gcc 12.2.0"
std::string build_type();  // "release", or "debug" where assertions are on
std::string host_name();
std::string date_now();  // ISO 8601 with the zone
double clock_mhz();      // of CPU 0 now, 0 where the system does not say
int cpu_count();         // that this process may run on
double memory_bytes();

/// One line a GPU, found through the driver if there is one; empty where there is none.
std::vector<std::string> gpu_names();

/// The `context` object of a Google Benchmark result, with compiler, version and commit beside its own fields.
nlohmann::json benchmark_context();

}  // namespace falchion::tools
