// tools/problem/levels.hpp: the paths on which this machine can run a problem: each backend, and each level of the CPU.
#pragma once

#include <string>
#include <vector>

#include "falchion/falchion.hpp"

namespace falchion::tools {

/// The level's name as the library's own string. Throws UsageError for a name that is no level and for one that this
/// machine cannot run, with the reason.
const char* require_level(const std::string& level);

/// One way to run.
struct Path {
  Backend backend;
  std::string level;  // empty where the plan chooses it, or the backend has no levels
  std::string name() const;
  Target target(int threads) const;  // may throw UsageError
};

/// Each usable CPU level that has a variant of the operation for the dtype, the fastest first, and then ref if
/// requested. The emulated AMX level is slow and exists for tests, so it is included only on request.
std::vector<Path> usable_paths(DType dtype, bool with_ref, bool with_emulated,
                               const char* operation = "attention_forward");

/// Throws UsageError with the reason if a named back end cannot run here at all.
void require_here(Backend backend);

/// The GPU back ends that have a variant of the operation for the dtype and run on the present device; empty if there
/// are none.
std::vector<Path> usable_gpu_paths(DType dtype, const char* operation = "attention_forward");

/// What a plan chose: "cpu" and "amx", "sm90" and "plain brief"; the level is empty for ref.
std::string plan_backend(const Plan& plan);
std::string plan_level(const Plan& plan);
int plan_threads(const Plan& plan);
bool on_gpu(const Plan& plan);

/// The unit of tools/measure/peak.hpp whose measured rate limits a plan, and its name in a table. Both are empty for
/// ref, GPUs and products of bytes.
std::string limiting_unit(const Plan& plan);
std::string unit_title(const std::string& unit);  // "AMX bf16", "AVX-512 f32"

}  // namespace falchion::tools
