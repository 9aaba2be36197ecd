// tools/measure/machine.hpp: the facts about this machine that every result must have.
#pragma once

#include <string>
#include <vector>

#include "plan/json.hpp"

namespace falchion::tools {

std::string cpu_model();   // "Intel(R) Xeon(R) Processor"
std::string compiler();    // "gcc 12.2.0"
std::string build_type();  // "release", or "debug" where assertions are on
std::string host_name();
std::string date_now();  // ISO 8601 with the zone
double clock_mhz();      // of CPU 0 now, 0 where the system does not say
int cpu_count();         // that this process may run on
double memory_bytes();

/// One line for each GPU that the driver finds; empty where there is no driver or no GPU.
std::vector<std::string> gpu_names();

/// The measured commit: FALCHION_COMMIT, or else the file `commit` that the build writes beside the command. Empty if
/// neither exists.
std::string commit();
std::string gpu_driver();  // "580.159.04, CUDA 13.0"; empty where there is none
/// "none (CPU), gcc 12.2.0, Linux 6.1.0": a CPU has no driver, but its kernel and the compiler matter.
std::string cpu_driver();

/// The top level of every result: commit, date, device and driver, and as `context` Google Benchmark's facts about a
/// machine. `gpu` is the name of the measured GPU; it is empty for the CPU. `measured` are further members of the
/// context.
Json result_facts(const std::string& gpu, const std::vector<Json::Member>& measured = {});

}  // namespace falchion::tools
