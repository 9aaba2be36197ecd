// tools/measure/machine.hpp: the facts about this machine that a result is worthless without.
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

/// The commit that was measured: what FALCHION_COMMIT says, else what the file `commit` beside the command says, which
/// the build writes there. Empty where nobody knows.
std::string commit();
std::string gpu_driver();  // "580.159.04, CUDA 13.0"; empty where there is none
/// "none (CPU), gcc 12.2.0, Linux 6.1.0": a CPU has no driver, but its kernel and the compiler matter.
std::string cpu_driver();

/// What every result has at its top level: commit, date, device and driver; and as `context` what else Google Benchmark
/// wants to know about a machine. gpu: the name of the GPU that was measured, empty for the CPU.
nlohmann::json result_facts(const std::string& gpu);

}  // namespace falchion::tools
