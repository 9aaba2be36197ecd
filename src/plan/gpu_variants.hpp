// src/plan/gpu_variants.hpp: chooses the GPU variant for a problem. The walk over the variants is the same for every
// operation; the operation decides which of them fit.
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

inline constexpr const char* kNoVariant = "no variant of this type";

/// The requirements of an operation for a variant; without any, each variant fits.
struct GpuWish {
  std::int64_t d = 0;             // the problem's largest head dim
  DType dtype = DType::as_q;      // of the variants, where it is not the operation's
  const char* none = kNoVariant;  // the reason where the back end has none of this type
  // false: the variant is skipped without a reason
  std::function<bool(const Variant&)> concerns = [](const Variant&) { return true; };
  // what the variant lacks for the problem; "" if nothing
  std::function<std::string(const Variant&)> why_not = [](const Variant&) { return std::string(); };
  // Of kinds with several tiles: why another tile is better for the problem; "" for the best one. Null: none has.
  std::function<std::string(const Variant&)> why_another_tile{};
};

/// Sets plan->variant to the first variant of the backend that fits the problem and the device, and records how many of
/// its CTAs share an SM there. The plan has no choices yet: add_choice(). On failure plan->rejected has each reason,
/// and the status is the one to return if this backend was requested.
Status take_gpu_variant(Backend backend, const cuda::Device& device, const GpuWish& wish, PlanData* plan);

/// The first variant that fits, or null, without a reason in plan->rejected: for operands that the plan's own variant
/// cannot move.
const Variant* other_gpu_variant(Backend backend, const cuda::Device& device, const GpuWish& wish,
                                 const PlanData& plan);
/// The same of sm80's variants of a kind, whether or not another tile is better for the problem.
const Variant* other_of_sm80(VariantKind kind, const cuda::Device& device, const GpuWish& wish, const PlanData& plan);

/// Adds a choice to the plan, after those with more conditions. Does nothing without a variant.
inline void add_choice(const Choice& choice, PlanData* plan) {
  if (choice.variant != nullptr) plan->gpu.choices.push_back(choice);
}

/// The choices of an operation whose kind `general` takes any operands: the plan's variant, with its needs, then sm80's
/// general one.
inline void choose_or_general(Conditions needs, const cuda::Device& device, const GpuWish& wish, PlanData* plan,
                              VariantKind general = VariantKind::general) {
  add_choice({plan->variant, needs}, plan);
  if (!needs.empty()) add_choice({other_of_sm80(general, device, wish, *plan), {}}, plan);
}

/// How many CTAs of a variant share an SM of the device: the intended number, or fewer, limited by shared memory.
template <class Facts>
int ctas_an_sm(const Facts& facts, const cuda::Device& device) {
  const std::size_t each = static_cast<std::size_t>(facts.shared_bytes) + cuda::kReservedShared;
  return std::max(std::min(static_cast<int>(device.shared_per_sm / each), facts.ctas), 1);
}

}  // namespace falchion
