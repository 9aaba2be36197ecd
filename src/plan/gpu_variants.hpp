// src/plan/gpu_variants.hpp: which variant of a GPU runs a problem. The walk over the variants is the same for every
// operation, and which of them fits is the operation's own to say.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

/// What an operation asks of a variant.
struct GpuWish {
  std::int64_t d;                                      // the problem's largest head dim
  std::function<bool(const Variant&)> concerns;        // false: the variant is passed over without a word
  std::function<std::string(const Variant&)> why_not;  // what the variant lacks for the problem; "" when nothing
};

/// Takes the first variant of the backend that fits the problem and the device, as plan->variant, and notes how many of
/// its CTAs share an SM there. The plan has no choices yet: add_choice(). On failure plan->rejected tells each reason,
/// and the status is the one to give when this backend was asked for.
Status take_gpu_variant(Backend backend, const cuda::Device& device, const GpuWish& wish, PlanData* plan);

/// The first variant that fits, or null, without a word in plan->rejected: for operands that the plan's own variant
/// cannot move.
const Variant* other_gpu_variant(Backend backend, const cuda::Device& device, const GpuWish& wish,
                                 const PlanData& plan);

/// One choice more for a run of the plan, after those that need more. Nothing where there is no such variant.
inline void add_choice(const Choice& choice, PlanData* plan) {
  if (choice.variant != nullptr) plan->gpu.choices.push_back(choice);
}

/// How many CTAs of a variant share an SM of the device: as many as are meant to, or fewer, where shared memory has no
/// room for them.
template <class Facts>
int ctas_an_sm(const Facts& facts, const cuda::Device& device) {
  const std::size_t each = static_cast<std::size_t>(facts.shared_bytes) + cuda::kReservedShared;
  return std::max(std::min(static_cast<int>(device.shared_per_sm / each), facts.ctas), 1);
}

}  // namespace falchion
