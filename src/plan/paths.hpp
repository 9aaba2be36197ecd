// src/plan/paths.hpp: chooses the path of a problem: the order in which backends and variants are tried, and the
// reasons why one is not taken. The same for every operation; the operation decides how the chosen variant runs.
#pragma once

#include <cstdint>
#include <limits>

#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

/// Chooses a path for the problem in the plan, with its pass and target, or returns why there is none.
Status choose_path(PlanData* plan);

/// The host's backend for `best`: the CPU if this build and this machine have a kernel, else ref, the definition. If a
/// level is named, by the target or by FALCHION_CPU, it is the CPU in any case.
Backend backend_of_host(const Operation& operation, DType dtype, const Target& target);

/// The GPU to plan for: the present one, or the known properties of the architecture in target.sm. Fails if it cannot
/// run the operation's variants, or none of them is built; that is then recorded in plan->rejected.
Status device_for(Backend backend, PlanData* plan, cuda::Device* out);

/// Records the properties of its GPU in the plan.
void set_device(const cuda::Device& device, PlanData* plan);

/// The number of threads that the caller requested; 0: as many as the process may use.
int threads_wanted(const Target& target);

/// The fewest parts, 1 to `most`, into which to cut each of `items` pieces of work so that `slots` workers are busy
/// (tiles::kBalance); if that is impossible, the best number. Over `waves` rounds pieces balance without it.
int fewest_parts(std::int64_t items, std::int64_t slots, std::int64_t most,
                 std::int64_t waves = std::numeric_limits<std::int64_t>::max());

}  // namespace falchion
