// src/plan/paths.hpp: which path a problem takes: the order in which backends and variants are tried, and why one is
// not taken. The same for every operation; how the variant that is taken runs is the operation's own to decide.
#pragma once

#include <cstdint>
#include <limits>

#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

/// Takes a path for the problem that lies in the plan, with its pass and target, or says why there is none.
Status choose_path(PlanData* plan);

/// The host's backend for `best`: the CPU where it has a kernel that this build and this machine have, else ref, the
/// definition. Where a level is named, by the target or by FALCHION_CPU, it is the CPU in any case.
Backend backend_of_host(const Operation& operation, DType dtype, const Target& target);

/// The GPU to plan for: the one that is here, or what is known of the architecture that target.sm names. Fails where
/// it cannot run the operation's variants, or none of them is built; that is then recorded in plan->rejected.
Status device_for(Backend backend, PlanData* plan, cuda::Device* out);

/// Keeps what the plan has to know of its GPU.
void set_device(const cuda::Device& device, PlanData* plan);

/// How many threads the caller asked for; 0: as many as the process may use.
int threads_wanted(const Target& target);

/// The fewest parts, 1 to `most`, into which to cut each of `items` pieces of work so that `slots` workers are busy
/// (tiles::kBalance); where that cannot be, the best there is. Over `waves` rounds pieces even out by themselves.
int fewest_parts(std::int64_t items, std::int64_t slots, std::int64_t most,
                 std::int64_t waves = std::numeric_limits<std::int64_t>::max());

}  // namespace falchion
