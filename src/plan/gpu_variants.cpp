// src/plan/gpu_variants.cpp: see gpu_variants.hpp.
#include "plan/gpu_variants.hpp"

#include <cstddef>
#include <type_traits>
#include <variant>

#include "plan/operation.hpp"
#include "plan/text.hpp"

namespace falchion {
namespace {

int shared_bytes_of(const Variant& variant) {
  return std::visit(
      [](const auto& facts) {
        if constexpr (std::is_same_v<decltype(facts), const std::monostate&>)
          return 0;
        else
          return facts.shared_bytes;
      },
      variant.facts);
}

int ctas_an_sm(const Variant& variant, const cuda::Device& device) {
  return std::visit(
      [&](const auto& facts) {
        if constexpr (requires { facts.ctas; })
          return falchion::ctas_an_sm(facts, device);
        else
          return 1;
      },
      variant.facts);
}

/// The variant to plan with: the built one, or, for a plan for any build, the listed one.
const Variant* variant_to_plan(const Variant& listed, const PlanData& plan) {
  const Variant* variant = built(listed);
  return variant == nullptr && plan.any_build ? &listed : variant;
}

/// Why the variant cannot run on the device: it is not built, or its CTAs are too large. "" if it can.
std::string why_not_there(const Variant& listed, const cuda::Device& device, const PlanData& plan) {
  if (listed.backend == Backend::sm90 && device.sm / 10 != 9)
    return text(device.name, " is sm_", device.sm, ", this is machine code of sm_90a");
  if (variant_to_plan(listed, plan) == nullptr) return "this build has no such variant";
  const int shared_bytes = shared_bytes_of(listed);
  if (static_cast<std::size_t>(shared_bytes) <= device.shared_per_block) return "";
  return text("a CTA needs ", shared_bytes, " bytes of shared memory, but ", device.name, " gives only ",
              device.shared_per_block);
}

/// called: the name of its kind, or of the variant. If a variant differs from the previous one only by its tile or a
/// larger head dim, its reason is already recorded.
void reject(const Variant& listed, const std::string& called, const std::string& reason,
            std::vector<Rejected>* rejected) {
  const std::string any_d = text(name(listed.backend), " ", called, " ", name(listed.dtype));
  const std::string path = listed.d == 0 ? any_d : text(any_d, " d");
  const bool again = !rejected->empty() && rejected->back().path.starts_with(path) && rejected->back().reason == reason;
  if (!again) rejected->push_back({listed.d == 0 ? path : text(path, listed.d), reason});
}

/// rejected: receives the reasons. Variants of too small a head dim are not recorded, unless there are no others.
const Variant* first_that_fits(Backend backend, const cuda::Device& device, const GpuWish& wish, const PlanData& plan,
                               std::vector<Rejected>* rejected) {
  const DType dtype = wish.dtype == DType::as_q ? plan.operation->dtype(plan) : wish.dtype;
  const Variant* too_small = nullptr;
  bool any_large_enough = false;
  for (const Variant& listed : listed_variants()) {
    if (listed.backend != backend || listed.dtype != dtype || !listed.is(plan.operation->name)) continue;
    if (!wish.concerns(listed)) continue;
    if (listed.d < wish.d) {
      too_small = &listed;
      continue;
    }
    any_large_enough = true;
    if (const std::string reason = wish.why_not(listed); !reason.empty()) {
      reject(listed, listed.level, reason, rejected);
      continue;
    }
    std::string reason = wish.why_another_tile != nullptr ? wish.why_another_tile(listed) : "";
    if (reason.empty()) reason = why_not_there(listed, device, plan);
    if (reason.empty()) return variant_to_plan(listed, plan);
    reject(listed, listed.name(), reason, rejected);
  }
  if (too_small != nullptr && !any_large_enough)
    reject(*too_small, too_small->level,
           text("it takes head dims up to ", too_small->d, ", but the problem's largest is ", wish.d), rejected);
  return nullptr;
}

}  // namespace

Status take_gpu_variant(Backend backend, const cuda::Device& device, const GpuWish& wish, PlanData* plan) {
  const std::string path = text(name(backend), " ", name(plan->operation->dtype(*plan)));
  const std::size_t before = plan->rejected.size();
  plan->gpu.choices.clear();
  plan->variant = first_that_fits(backend, device, wish, *plan, &plan->rejected);
  if (plan->variant != nullptr) {
    plan->backend = backend;
    plan->gpu.ctas = ctas_an_sm(*plan->variant, device);
    return {};
  }
  if (plan->rejected.size() == before) plan->rejected.push_back({path, wish.none});
  return {Code::unsupported, text("no ", path, " variant fits: ", plan->rejected.back().reason)};
}

const Variant* other_gpu_variant(Backend backend, const cuda::Device& device, const GpuWish& wish,
                                 const PlanData& plan) {
  std::vector<Rejected> unsaid;
  return first_that_fits(backend, device, wish, plan, &unsaid);
}

const Variant* other_of_sm80(VariantKind kind, const cuda::Device& device, const GpuWish& wish, const PlanData& plan) {
  GpuWish of_kind = wish;
  of_kind.concerns = [kind](const Variant& v) { return v.kind == kind; };
  of_kind.why_another_tile = nullptr;
  return other_gpu_variant(Backend::sm80, device, of_kind, plan);
}

}  // namespace falchion
